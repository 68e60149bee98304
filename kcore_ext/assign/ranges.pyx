# distutils: language = c++
"""Range: contiguous partitions a topic, co-partitioned; on the client side first by rack (KIP-881)."""

from libcpp.vector cimport vector

from kcore_ext.assign.lower cimport NOTHING, Lowered, lower
from kcore_ext.assign.problem cimport Problem, as_array


cdef int plain(Problem p, vector[int]& owner) noexcept nogil:
    """Every topic in runs: the first n % m members, in member order, have one more than the others."""
    cdef int t, c, i, j, at, n, m, share, extra, size
    cdef const int* ordered
    p.ensure_classes()
    ordered = p.ordered_members()
    owner.assign(p.partitions, -1)
    for t in range(p.topics):
        c = p.class_of[t]
        if c < 0:
            continue
        n = p.first[t + 1] - p.first[t]
        m = p.class_first[c + 1] - p.class_first[c]
        share = n // m
        extra = n % m
        at = p.first[t]
        # With more members than partitions the walk ends with the partitions.
        for i in range(m if share else extra):
            size = share + (1 if i < extra else 0)
            for j in range(at, at + size):
                owner[j] = ordered[p.class_first[c] + i]
            at += size
    return 0


cdef struct Quota:
    int share
    int extra                      # members that may still take one more than their share


cdef inline int _room(Quota& quota, int taken) noexcept nogil:
    cdef int room = quota.share + (1 if quota.extra > 0 else 0) - taken
    return room if room > 0 else 0


cdef inline void _take(Quota& quota, int& taken, int count) noexcept nogil:
    (&taken)[0] = taken + count
    if taken > quota.share:
        quota.extra -= 1


cdef bint _topic_needs_racks(Problem p, int topic, vector[char]& class_rack) noexcept nogil:
    """KIP-881's switch for one topic, with its own subscribers' racks."""
    cdef vector[char] here
    cdef int i, q, size = 0
    cdef bint common = False
    here.assign(p.racks, 0)
    for i in range(p.rack_first[p.first[topic]], p.rack_first[p.first[topic + 1]]):
        if not here[p.rack_list[i]]:
            here[p.rack_list[i]] = 1
            size += 1
            if class_rack[p.rack_list[i]]:
                common = True
    if not common:
        return False
    for q in range(p.first[topic], p.first[topic + 1]):
        if p.rack_first[q + 1] - p.rack_first[q] != size:
            return True
    return False


cdef int _walk(Problem p, int topic, const int* members, int m, Quota& quota, vector[int]& taken, bint racks,
               vector[int]& owner) noexcept nogil:
    """Members in order take the first partitions that are left (and on their rack, when `racks`)."""
    cdef int i, q, want, got, rack, left = 0
    for q in range(p.first[topic], p.first[topic + 1]):
        if owner[q] < 0:
            left += 1
    for i in range(m):
        if left == 0:
            break
        want = _room(quota, taken[i])
        rack = <int>p.member_rack[members[i]] if racks else -1
        got = 0
        q = p.first[topic]
        while got < want and q < p.first[topic + 1]:
            if owner[q] < 0 and (rack < 0 or p.on_rack(q, rack)):
                owner[q] = members[i]
                got += 1
            q += 1
        if got:
            left -= got
            _take(quota, taken[i], got)
    return 0


cdef int _together(Problem p, vector[int]& topics, const int* members, int m, Quota& quota, vector[int]& taken,
                   vector[int]& owner) noexcept nogil:
    """Co-partitioned topics: partition number q of all of them goes to a member on a rack of each."""
    cdef vector[int] open_members, on
    cdef int i, j, q, r, t, n = p.first[topics[0] + 1] - p.first[topics[0]], count = <int>topics.size()
    for i in range(m):
        open_members.push_back(i)
    for q in range(n):
        if open_members.empty():
            break
        on.assign(p.racks, 0)
        for t in topics:
            for j in range(p.rack_first[p.first[t] + q], p.rack_first[p.first[t] + q + 1]):
                on[p.rack_list[j]] += 1
        for j in range(<int>open_members.size()):
            i = open_members[j]
            r = p.member_rack[members[i]]
            if (r < 0 or on[r] == count) and _room(quota, taken[i]) > 0:
                for t in topics:
                    owner[p.first[t] + q] = members[i]
                # All topics of the group advance alike, so one quota stands for each.
                _take(quota, taken[i], 1)
                if _room(quota, taken[i]) == 0:
                    open_members.erase(open_members.begin() + j)
                break
    return 0


cdef int with_racks(Problem p, vector[int]& owner) noexcept nogil:
    """The rack pass and then the plain walk over what is left, class by class."""
    cdef vector[vector[int]] topics_of
    cdef vector[char] needs, class_rack, done
    cdef vector[int] group, taken, taken_here
    cdef Quota quota, quota_here
    cdef const int* members
    cdef int c, t, u, i, j, k, m, n
    cdef bint any_need = False, any_rack
    p.ensure_classes()
    topics_of.resize(p.classes)
    needs.assign(p.topics, 0)
    for t in range(p.topics):
        if p.class_of[t] >= 0 and p.first[t + 1] > p.first[t]:
            topics_of[p.class_of[t]].push_back(t)
    for c in range(p.classes):
        class_rack.assign(p.racks, 0)
        for i in range(p.class_first[c], p.class_first[c + 1]):
            if p.member_rack[p.class_members[i]] >= 0:
                class_rack[p.member_rack[p.class_members[i]]] = 1
        for t in topics_of[c]:
            needs[t] = _topic_needs_racks(p, t, class_rack)
            any_need = any_need or needs[t]
    if not any_need:
        return plain(p, owner)
    owner.assign(p.partitions, -1)
    done.assign(p.topics, 0)
    for c in range(p.classes):
        members = p.ordered_members() + p.class_first[c]
        m = p.class_first[c + 1] - p.class_first[c]
        any_rack = False
        for i in range(m):
            any_rack = any_rack or p.member_rack[members[i]] >= 0
        for j in range(<int>topics_of[c].size()):
            t = topics_of[c][j]
            if done[t]:
                continue
            n = p.first[t + 1] - p.first[t]
            group.clear()
            for k in range(j, <int>topics_of[c].size()):
                u = topics_of[c][k]
                if p.first[u + 1] - p.first[u] == n:
                    group.push_back(u)
                    done[u] = 1
            quota.share = n // m
            quota.extra = n % m
            taken.assign(m, 0)
            # Kafka counts no racks of partitions when no subscriber names a rack: nothing is matched then.
            if group.size() > 1 and any_rack:
                _together(p, group, members, m, quota, taken, owner)
            elif group.size() == 1 and needs[t]:
                _walk(p, t, members, m, quota, taken, True, owner)
            for u in group:
                quota_here = quota
                taken_here = taken
                _walk(p, u, members, m, quota_here, taken_here, False, owner)
    return 0


def run(Problem problem not None, bint racks=True):
    """Range over arrays: the owner of every partition. `racks`: match racks first (the client's assignor)."""
    cdef vector[int] owner
    with nogil:
        if racks and problem.has_racks:
            with_racks(problem, owner)
        else:
            plain(problem, owner)
    return as_array(owner)


def assign(members, topics, bint racks):
    """Range over value objects; returns (GroupAssignment, topics that are not known)."""
    cdef Lowered low = lower(members, topics, NOTHING, racks, None)
    cdef vector[int] owner
    if racks and low.problem.has_racks:
        with nogil:
            with_racks(low.problem, owner)
    else:
        with nogil:
            plain(low.problem, owner)
    return low.exclusive(owner), low.missing
