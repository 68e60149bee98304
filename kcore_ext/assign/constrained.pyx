# distutils: language = c++
"""Sticky with equal subscriptions: quotas, then round robin (KAFKA-9987, KIP-881)."""

from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front

ctypedef long long i64


cdef struct Quotas:
    int least                      # every member has this many
    int most                       # `wanted` members have this many
    int wanted
    int over                       # members above `least` so far


cdef bint _off_rack(Problem p, bint rack_aware, int member, int partition) noexcept nogil:
    return rack_aware and p.member_rack[member] >= 0 and not p.on_rack(partition, p.member_rack[member])


cdef int _keep(Problem p, Front& front, Quotas& quotas, vector[int]& owner, vector[int]& revoked, vector[int]& count,
               vector[int]& under, vector[int]& exact) noexcept nogil:
    """Every member keeps what it owns up to its quota, in the order (partition, topic)."""
    cdef vector[int] limit, row_first, cursor
    cdef vector[i64] rows
    cdef int q, m, t, i, kept, trimmed = 0
    count.assign(p.members, 0)
    for q in range(p.partitions):
        m = owner[q]
        if m < 0:
            continue
        if _off_rack(p, front.rack_aware, m, q):
            revoked[q] = m
            owner[q] = -1
        elif not front.doubly.empty() and front.doubly[q]:
            owner[q] = -1
        else:
            count[m] += 1
    for m in range(p.members):
        if count[m] < quotas.least:
            under.push_back(m)
            continue
        if count[m] >= quotas.most and quotas.over < quotas.wanted:
            quotas.over += 1
            if quotas.over == quotas.wanted:
                exact.clear()
            kept = quotas.most
        else:
            kept = quotas.least
            if quotas.over < quotas.wanted:
                exact.push_back(m)
        if count[m] > kept:
            if limit.empty():
                limit.assign(p.members, -1)
            limit[m] = kept
            trimmed += 1
    if trimmed == 0:
        return 0
    row_first.assign(p.members + 1, 0)
    for m in range(p.members):
        row_first[m + 1] = row_first[m] + (<int>count[m] if limit[m] >= 0 else 0)
    rows.resize(row_first[p.members])
    cursor = row_first
    for t in range(p.topics):
        for q in range(p.first[t], p.first[t + 1]):
            m = owner[q]
            if m >= 0 and limit[m] >= 0:
                rows[cursor[m]] = (<i64>(q - p.first[t]) << 32) | t
                cursor[m] += 1
    for m in range(p.members):
        if limit[m] < 0:
            continue
        sort(rows.begin() + row_first[m], rows.begin() + row_first[m + 1])
        for i in range(row_first[m] + limit[m], row_first[m + 1]):
            q = p.first[<int>(rows[i] & 0x7fffffff)] + <int>(rows[i] >> 32)
            revoked[q] = m
            owner[q] = -1
        count[m] = limit[m]
    return 0


cdef int _by_rack_members(Problem p, vector[int]& unassigned) noexcept nogil:
    """Stable sort: partitions with few members on their racks first."""
    cdef vector[int] on_rack
    cdef vector[pair[int, int]] keyed
    cdef int i, j, m, weight
    on_rack.assign(p.racks, 0)
    for m in range(p.members):
        if p.member_rack[m] >= 0:
            on_rack[p.member_rack[m]] += 1
    for i in range(<int>unassigned.size()):
        weight = 0
        for j in range(p.rack_first[unassigned[i]], p.rack_first[unassigned[i] + 1]):
            weight += on_rack[p.rack_list[j]]
        keyed.push_back(pair[int, int](weight, unassigned[i]))
    # The list ascends, so the partition itself is the stable tie-break.
    sort(keyed.begin(), keyed.end())
    for i in range(<int>unassigned.size()):
        unassigned[i] = keyed[i].second
    return 0


cdef int _next_on_rack(Problem p, vector[int]& members, int start, int partition) noexcept nogil:
    """Index of the first member, cyclically from `start`, on one of the partition's racks; -1: none."""
    cdef int i, j, n = <int>members.size(), rack
    for i in range(n):
        j = start + i
        if j >= n:
            j -= n
        rack = p.member_rack[members[j]]
        if rack >= 0 and p.on_rack(partition, rack):
            return j
    return -1


cdef int _rack_round(Problem p, Quotas& quotas, vector[int]& unassigned, vector[int]& owner, vector[int]& count,
                     vector[int]& under, vector[int]& exact) noexcept nogil:
    """Round robin among members on the partition's rack; what finds none stays in `unassigned`."""
    cdef int r, w = 0, q, m, i, cursor = 0
    for r in range(<int>unassigned.size()):
        q = unassigned[r]
        i = _next_on_rack(p, under, cursor, q)
        if i >= 0:
            m = under[i]
            if count[m] + 1 >= quotas.least:
                under.erase(under.begin() + i)
                if count[m] + 1 < quotas.most and quotas.over < quotas.wanted:
                    exact.push_back(m)
            else:
                i += 1
            cursor = 0 if under.empty() else i % <int>under.size()
        else:
            i = _next_on_rack(p, exact, 0, q)
            if i < 0:
                unassigned[w] = q
                w += 1
                continue
            m = exact[i]
            if count[m] + 1 == quotas.most:
                exact.erase(exact.begin() + i)
                quotas.over += 1
                if quotas.over == quotas.wanted:
                    exact.clear()
        owner[q] = m
        count[m] += 1
    unassigned.resize(w)
    return 0


cdef int _round(Quotas& quotas, vector[int]& unassigned, vector[int]& owner, vector[int]& count, vector[int]& under,
                vector[int]& exact) noexcept nogil:
    """Members below the least quota take one each, in turn; then those at it take one more."""
    cdef int i = 0, r = 0, w, m, n = <int>unassigned.size()
    cdef size_t head = 0
    while i < n and not under.empty():
        w = 0
        r = 0
        while r < <int>under.size():
            if i == n:
                under[w] = under[r]
                w += 1
                r += 1
                continue
            m = under[r]
            owner[unassigned[i]] = m
            i += 1
            count[m] += 1
            if count[m] == quotas.least:
                exact.push_back(m)
            else:
                under[w] = m
                w += 1
            r += 1
        under.resize(w)
    while i < n and head < exact.size():
        m = exact[head]
        head += 1
        owner[unassigned[i]] = m
        count[m] += 1
        i += 1
    return 0


cdef int constrained(Problem p, Front& front, vector[int]& owner, vector[int]& transferring) noexcept nogil:
    """Fills `owner`; `transferring` lists what changes hands and must first be revoked."""
    cdef vector[int] revoked, count, under, exact, unassigned, fresh
    cdef Quotas quotas
    cdef int t, q
    owner.swap(front.owner)
    quotas.least = p.subscribed_partitions // p.members
    quotas.wanted = p.subscribed_partitions % p.members
    quotas.most = quotas.least + (1 if quotas.wanted else 0)
    quotas.over = 0
    if p.subscribed_partitions != p.partitions:
        for t in range(p.topics):
            if not p.subscribed[t]:
                for q in range(p.first[t], p.first[t + 1]):
                    owner[q] = -1
    revoked.assign(p.partitions, -1)
    _keep(p, front, quotas, owner, revoked, count, under, exact)
    for t in range(p.topics):
        if p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                if owner[q] < 0:
                    unassigned.push_back(q)
    fresh = unassigned
    if p.has_racks:
        _by_rack_members(p, unassigned)
        if front.rack_aware:
            _rack_round(p, quotas, unassigned, owner, count, under, exact)
    _round(quotas, unassigned, owner, count, under, exact)
    for q in fresh:
        if (revoked[q] >= 0 and revoked[q] != owner[q]) or (not front.doubly.empty() and front.doubly[q]):
            transferring.push_back(q)
    return 0
