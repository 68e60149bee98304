"""The range assignors of servers and clients, which assign contiguous partitions of each topic to each member.

The assignor of clients also matches the racks of members and partitions (KIP-881).
"""


from libc.string cimport memcpy, memmove, memset

from kcore_ext.assign.containers cimport Memory, Scratch, copied, fill, flags, ints, zeros
from kcore_ext.assign.lower cimport NOTHING, Lowered, lower
from kcore_ext.assign.problem cimport Problem, new_array
from kcore_ext.assign.result cimport GroupAssignment


cdef int without_racks(Problem p, int* owner) except -1 nogil:
    """Assigns consecutive partitions of every topic to each member.

    Of m members and n partitions, the first n % m members get one more than the others.
    """
    cdef int t, c, i, j, at, n, m, share, extra, size
    cdef const int* ordered
    p.ensure_classes()
    ordered = p.ordered_members()
    fill(owner, p.partitions, -1)
    for t in range(p.topics):
        c = p.class_of[t]
        if c < 0:
            continue
        n = p.first[t + 1] - p.first[t]
        m = p.class_first[c + 1] - p.class_first[c]
        share = n // m
        extra = n % m
        at = p.first[t]
        # If there are more members than partitions, the walk ends after the last partition.
        for i in range(m if share else extra):
            size = share + (1 if i < extra else 0)
            for j in range(at, at + size):
                owner[j] = ordered[p.class_first[c] + i]
            at += size
    return 0


cdef struct Quota:
    int share
    int extra  # members that may still exceed their quota by one


cdef inline int _room(Quota* quota, int taken) noexcept nogil:
    cdef int room = quota.share + (1 if quota.extra > 0 else 0) - taken
    return room if room > 0 else 0


cdef inline void _take(Quota* quota, int* taken, int count) noexcept nogil:
    taken[0] += count
    if taken[0] > quota.share:
        quota.extra -= 1


cdef bint _topic_needs_racks(Problem p, int topic, const char* class_rack, char* here) noexcept nogil:
    """Returns True if the racks of a topic's subscribers and partitions must be matched (KIP-881).

    `here` is scratch space of one byte for each rack.
    """
    cdef int i, q, size = 0
    cdef bint common = False
    memset(here, 0, p.racks)
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


cdef int _walk(Problem p, int topic, const int* members, int m, Quota* quota, int* taken, bint racks,
               int* owner) noexcept nogil:
    """Gives members, in order, the first free partitions; with `racks`, only partitions on the member's rack."""
    cdef int i, q, want, got, rack, left = 0
    for q in range(p.first[topic], p.first[topic + 1]):
        if owner[q] < 0:
            left += 1
    for i in range(m):
        if left == 0:
            break
        want = _room(quota, taken[i])
        rack = p.member_rack[members[i]] if racks else -1
        got = 0
        q = p.first[topic]
        while got < want and q < p.first[topic + 1]:
            if owner[q] < 0 and (rack < 0 or p.on_rack(q, rack)):
                owner[q] = members[i]
                got += 1
            q += 1
        if got:
            left -= got
            _take(quota, &taken[i], got)
    return 0


cdef int _together(Problem p, Memory* memory, const int* topics, int count, const int* members, int m, Quota* quota,
                   int* taken, int* owner) except -1 nogil:
    """Assigns co-partitioned topics. Partitions with the same number are assigned to the same member, whose rack has a
    replica of each of them.
    """
    cdef int* open_members = ints(memory, m)
    cdef int* on = ints(memory, p.racks)
    cdef int i, j, k, q, r, t, n = p.first[topics[0] + 1] - p.first[topics[0]], left = m
    for i in range(m):
        open_members[i] = i
    for q in range(n):
        if left == 0:
            break
        memset(on, 0, p.racks * sizeof(int))
        for k in range(count):
            t = topics[k]
            for j in range(p.rack_first[p.first[t] + q], p.rack_first[p.first[t] + q + 1]):
                on[p.rack_list[j]] += 1
        for j in range(left):
            i = open_members[j]
            r = p.member_rack[members[i]]
            if (r < 0 or on[r] == count) and _room(quota, taken[i]) > 0:
                for k in range(count):
                    owner[p.first[topics[k]] + q] = members[i]
                # All topics of the group advance in the same way, so one quota is enough for all of them.
                _take(quota, &taken[i], 1)
                if _room(quota, taken[i]) == 0:
                    left -= 1
                    memmove(open_members + j, open_members + j + 1, (left - j) * sizeof(int))
                break
    return 0


cdef int _topics_of_classes(Problem p, Memory* memory, int** first, int** topics) except -1 nogil:
    """Builds a row for each class of topics: those topics of the class that have partitions."""
    cdef int* cursor
    cdef int t, c
    first[0] = zeros(memory, p.classes + 1)
    for t in range(p.topics):
        if p.class_of[t] >= 0 and p.first[t + 1] > p.first[t]:
            first[0][p.class_of[t] + 1] += 1
    for c in range(p.classes):
        first[0][c + 1] += first[0][c]
    topics[0] = ints(memory, first[0][p.classes])
    cursor = copied(memory, first[0], p.classes)
    for t in range(p.topics):
        if p.class_of[t] >= 0 and p.first[t + 1] > p.first[t]:
            topics[0][cursor[p.class_of[t]]] = t
            cursor[p.class_of[t]] += 1
    return 0


cdef bint _needs(Problem p, int* first, int* topics, char* class_rack, char* here, char* needs) noexcept nogil:
    """Determines the topics that are matched by rack; returns True if there are any."""
    cdef int c, i, t
    cdef bint any_need = False
    for c in range(p.classes):
        memset(class_rack, 0, p.racks)
        for i in range(p.class_first[c], p.class_first[c + 1]):
            if p.member_rack[p.class_members[i]] >= 0:
                class_rack[p.member_rack[p.class_members[i]]] = 1
        for i in range(first[c], first[c + 1]):
            t = topics[i]
            needs[t] = _topic_needs_racks(p, t, class_rack, here)
            any_need = any_need or needs[t]
    return any_need


cdef int _class_with_racks(Problem p, Memory* memory, int c, const int* topics, int count, const char* needs, char* done,
                           int* owner) except -1 nogil:
    """Assigns the topics of one class, which have the same subscribers.

    Topics with the same number of partitions are assigned together.
    """
    cdef const int* members = p.ordered_members() + p.class_first[c]
    cdef int i, j, k, t, n, together, m = p.class_first[c + 1] - p.class_first[c]
    cdef int* group = ints(memory, count)
    cdef int* taken = ints(memory, m)
    cdef int* taken_here = ints(memory, m)
    cdef Quota quota, quota_here
    cdef bint any_rack = False
    for i in range(m):
        any_rack = any_rack or p.member_rack[members[i]] >= 0
    for j in range(count):
        t = topics[j]
        if done[t]:
            continue
        n = p.first[t + 1] - p.first[t]
        together = 0
        for k in range(j, count):
            if p.first[topics[k] + 1] - p.first[topics[k]] == n:
                group[together] = topics[k]
                together += 1
                done[topics[k]] = 1
        quota.share = n // m
        quota.extra = n % m
        memset(taken, 0, m * sizeof(int))
        # If no subscriber names a rack, Kafka ignores the racks of partitions: no topic is matched.
        if together > 1 and any_rack:
            _together(p, memory, group, together, members, m, &quota, taken, owner)
        elif together == 1 and needs[t]:
            _walk(p, t, members, m, &quota, taken, True, owner)
        for k in range(together):
            quota_here = quota
            memcpy(taken_here, taken, m * sizeof(int))
            _walk(p, group[k], members, m, &quota_here, taken_here, False, owner)
    return 0


cdef int with_racks(Problem p, Memory* memory, int* owner) except -1 nogil:
    """Assigns partitions by rack first, and then the remaining partitions without regard to racks.

    Topics with the same subscribers are assigned together.
    """
    cdef int* first
    cdef int* topics
    cdef char* needs
    cdef char* done
    cdef int c
    p.ensure_classes()
    _topics_of_classes(p, memory, &first, &topics)
    needs = flags(memory, p.topics, False)
    if not _needs(p, first, topics, flags(memory, p.racks, False), flags(memory, p.racks, False), needs):
        return without_racks(p, owner)
    fill(owner, p.partitions, -1)
    done = flags(memory, p.topics, False)
    for c in range(p.classes):
        _class_with_racks(p, memory, c, topics + first[c], first[c + 1] - first[c], needs, done, owner)
    return 0


cdef int solve(Problem p, bint racks, Memory* memory, int* owner) except -1 nogil:
    return with_racks(p, memory, owner) if racks and p.has_racks else without_racks(p, owner)


def run(Problem problem not None, bint racks=True):
    """Runs the assignor `range` over arrays.

    Returns the owner of every partition. `racks` is True to match racks first, as the client's assignor does.
    """
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef int* owner
    out = new_array(problem.partitions, &owner)
    with nogil:
        solve(problem, racks, &scratch.memory, owner)
    return out


def assign(members, topics, bint racks):
    """Runs the assignor `range` over value objects; returns (GroupAssignment, unknown topics)."""
    cdef Lowered low = lower(members, topics, NOTHING, racks, None)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment out = low.exclusive()
    with nogil:
        solve(low.problem, racks, &scratch.memory, out.owner)
    return out, low.missing
