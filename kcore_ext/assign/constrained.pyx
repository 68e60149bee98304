"""The sticky assignor for equal subscriptions: quotas, then round robin (KAFKA-9987, KIP-881)."""


from libc.string cimport memmove, memset

from kcore_ext.assign.containers cimport (
    IntVec,
    Memory,
    copied,
    first_of,
    i64,
    longs,
    nones,
    pair,
    push,
    reserve,
    second_of,
    sort_longs,
    zeros,
)
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front

cdef struct Quotas:
    int least  # the quota of every member
    int most  # the quota of `larger_count` members
    int larger_count
    int over  # members above `least` so far


cdef struct Work:
    Quotas quotas
    int* owner
    int* revoked  # partitions: previous owner that lost them, -1
    int* count  # members: partitions so far
    IntVec under                   # members below `least`, in order
    IntVec exact                   # members at `least` that may have one more
    IntVec unassigned


cdef bint _off_rack(Problem p, bint rack_aware, int member, int partition) noexcept nogil:
    return rack_aware and p.member_rack[member] >= 0 and not p.on_rack(partition, p.member_rack[member])


cdef inline void _remove(IntVec* list, int i) noexcept nogil:
    list.size -= 1
    memmove(list.at + i, list.at + i + 1, (list.size - i) * sizeof(int))


cdef int _keep(Problem p, Memory* memory, Front* front, Work* work) except -1 nogil:
    """Lets every member keep its partitions up to its quota, in the order (partition, topic)."""
    cdef Quotas* quotas = &work.quotas
    cdef int* owner = work.owner
    cdef int* count = work.count
    cdef int* limit = NULL
    cdef int q, m, kept
    for q in range(p.partitions):
        m = owner[q]
        if m < 0:
            continue
        if _off_rack(p, front.rack_aware, m, q):
            work.revoked[q] = m
            owner[q] = -1
        elif front.doubly != NULL and front.doubly[q]:
            owner[q] = -1
        else:
            count[m] += 1
    for m in range(p.members):
        if count[m] < quotas.least:
            push(memory, &work.under, m)
            continue
        if count[m] >= quotas.most and quotas.over < quotas.larger_count:
            quotas.over += 1
            if quotas.over == quotas.larger_count:
                work.exact.size = 0
            kept = quotas.most
        else:
            kept = quotas.least
            if quotas.over < quotas.larger_count:
                push(memory, &work.exact, m)
        if count[m] > kept:
            if limit == NULL:
                limit = nones(memory, p.members)
            limit[m] = kept
    return _trim(p, memory, limit, work) if limit != NULL else 0


cdef int _trim(Problem p, Memory* memory, const int* limit, Work* work) except -1 nogil:
    """Revokes the partitions above the limit from each member that has a limit."""
    cdef int* owner = work.owner
    cdef int* row_first = zeros(memory, p.members + 1)
    cdef int* cursor
    cdef i64* rows
    cdef int q, m, t, i
    for m in range(p.members):
        row_first[m + 1] = row_first[m] + (work.count[m] if limit[m] >= 0 else 0)
    rows = longs(memory, row_first[p.members])
    cursor = copied(memory, row_first, p.members)
    for t in range(p.topics):
        for q in range(p.first[t], p.first[t + 1]):
            m = owner[q]
            if m >= 0 and limit[m] >= 0:
                rows[cursor[m]] = pair(q - p.first[t], t)
                cursor[m] += 1
    for m in range(p.members):
        if limit[m] < 0:
            continue
        sort_longs(rows + row_first[m], row_first[m + 1] - row_first[m])
        for i in range(row_first[m] + limit[m], row_first[m + 1]):
            q = p.first[second_of(rows[i])] + first_of(rows[i])
            work.revoked[q] = m
            owner[q] = -1
        work.count[m] = limit[m]
    return 0


cdef int _by_rack_members(Problem p, Memory* memory, IntVec* unassigned) except -1 nogil:
    """Sorts partitions by the number of members on their racks, the fewest first."""
    cdef int* on_rack = zeros(memory, p.racks)
    cdef i64* keyed = longs(memory, unassigned.size)
    cdef int i, j, m, q, weight
    for m in range(p.members):
        if p.member_rack[m] >= 0:
            on_rack[p.member_rack[m]] += 1
    for i in range(<int>unassigned.size):
        q = unassigned.at[i]
        weight = 0
        for j in range(p.rack_first[q], p.rack_first[q + 1]):
            weight += on_rack[p.rack_list[j]]
        keyed[i] = pair(weight, q)
    # Partitions with equal numbers stay in ascending order.
    sort_longs(keyed, unassigned.size)
    for i in range(<int>unassigned.size):
        unassigned.at[i] = second_of(keyed[i])
    return 0


cdef int _next_on_rack(Problem p, IntVec* members, int start, int partition) noexcept nogil:
    """Returns the index of the first member, cyclically from `start`, on one of the partition's racks; -1 if there is
    none.
    """
    cdef int i, j, n = <int>members.size, rack
    for i in range(n):
        j = start + i
        if j >= n:
            j -= n
        rack = p.member_rack[members.at[j]]
        if rack >= 0 and p.on_rack(partition, rack):
            return j
    return -1


cdef int _rack_round(Problem p, Memory* memory, Work* work) except -1 nogil:
    """Assigns round robin among members on the partition's rack; other partitions stay in `unassigned`."""
    cdef Quotas* quotas = &work.quotas
    cdef IntVec* under = &work.under
    cdef IntVec* exact = &work.exact
    cdef int* count = work.count
    cdef int r, w = 0, q, m, i, cursor = 0
    for r in range(<int>work.unassigned.size):
        q = work.unassigned.at[r]
        i = _next_on_rack(p, under, cursor, q)
        if i >= 0:
            m = under.at[i]
            if count[m] + 1 >= quotas.least:
                _remove(under, i)
                if count[m] + 1 < quotas.most and quotas.over < quotas.larger_count:
                    push(memory, exact, m)
            else:
                i += 1
            cursor = 0 if under.size == 0 else i % <int>under.size
        else:
            i = _next_on_rack(p, exact, 0, q)
            if i < 0:
                work.unassigned.at[w] = q
                w += 1
                continue
            m = exact.at[i]
            if count[m] + 1 == quotas.most:
                _remove(exact, i)
                quotas.over += 1
                if quotas.over == quotas.larger_count:
                    exact.size = 0
        work.owner[q] = m
        count[m] += 1
    work.unassigned.size = w
    return 0


cdef int _round(Memory* memory, Work* work) except -1 nogil:
    """Assigns partitions in turn to the members below the lower quota: partitions per member, rounded down.

    Then assigns one further partition to each member at that quota, as long as partitions are left.
    """
    cdef IntVec* under = &work.under
    cdef IntVec* exact = &work.exact
    cdef int* unassigned = work.unassigned.at
    cdef int i = 0, r, w, m, n = <int>work.unassigned.size
    cdef Py_ssize_t head = 0
    while i < n and under.size:
        w = 0
        for r in range(<int>under.size):
            m = under.at[r]
            if i == n:
                under.at[w] = m
                w += 1
                continue
            work.owner[unassigned[i]] = m
            i += 1
            work.count[m] += 1
            if work.count[m] == work.quotas.least:
                push(memory, exact, m)
            else:
                under.at[w] = m
                w += 1
        under.size = w
    while i < n and head < exact.size:
        m = exact.at[head]
        head += 1
        work.owner[unassigned[i]] = m
        work.count[m] += 1
        i += 1
    return 0


cdef int constrained(Problem p, Memory* memory, Front* front, IntVec* transferring) except -1 nogil:
    """Replaces the earlier owners in `front.owner` by the new owners.

    Adds to `transferring` the partitions that their earlier owners must first revoke.
    """
    cdef int* fresh
    cdef int t, q, i, fresh_count
    cdef Work work
    memset(&work, 0, sizeof(work))
    work.owner = front.owner
    work.revoked = nones(memory, p.partitions)
    work.count = zeros(memory, p.members)
    work.quotas.least = p.subscribed_partitions // p.members
    work.quotas.larger_count = p.subscribed_partitions % p.members
    work.quotas.most = work.quotas.least + (1 if work.quotas.larger_count else 0)
    if p.subscribed_partitions != p.partitions:
        for t in range(p.topics):
            if not p.subscribed[t]:
                for q in range(p.first[t], p.first[t + 1]):
                    work.owner[q] = -1
    _keep(p, memory, front, &work)
    # Reserves room for all partitions: the system provides only those pages that are written.
    reserve(memory, &work.unassigned, p.partitions)
    for t in range(p.topics):
        if p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                if work.owner[q] < 0:
                    push(memory, &work.unassigned, q)
    fresh = copied(memory, work.unassigned.at, work.unassigned.size)
    fresh_count = <int>work.unassigned.size
    if p.has_racks:
        _by_rack_members(p, memory, &work.unassigned)
        if front.rack_aware:
            _rack_round(p, memory, &work)
    _round(memory, &work)
    for i in range(fresh_count):
        q = fresh[i]
        if (work.revoked[q] >= 0 and work.revoked[q] != work.owner[q]) or (front.doubly != NULL and front.doubly[q]):
            push(memory, transferring, q)
    return 0
