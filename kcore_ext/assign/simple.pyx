# distutils: language = c++
"""Share groups' simple assignor (KIP-932, KAFKA-18901): every partition has as many readers as its share calls for."""

from libc.math cimport ceil
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.problem cimport Problem, as_array, checked_rows

ctypedef long long i64


cdef extern from * nogil:
    """
    #include <utility>
    #include <vector>
    // Scratch space that is kept from topic to topic.
    struct KcoreShare {
        std::vector<int> next, before;                // ring of members below their share, by member index
        std::vector<char> below;
        std::vector<int> load, want;                  // members
        std::vector<int> mark, given;                 // members: last partition that had / got this one
        std::vector<std::pair<int, int>> readers;     // (partition, member), ascending
        std::vector<char> gone;                       // readers that lose the partition
        std::vector<std::pair<int, int>> out;         // result: (member, partition)
    };
    """
    cppclass Share "KcoreShare":
        vector[int] next
        vector[int] before
        vector[char] below
        vector[int] load
        vector[int] want
        vector[int] mark
        vector[int] given
        vector[pair[int, int]] readers
        vector[char] gone
        vector[pair[int, int]] out


cdef int _revoke(Share& share, const int* members, int n, int sharing) noexcept nogil:
    """Members over their share let go of their first partitions; a partition with too many readers of its first ones."""
    cdef int i, j, m, excess
    for i in range(<int>share.readers.size()):
        m = share.readers[i].second
        if share.load[m] > share.want[m]:
            share.gone[i] = 1
            share.load[m] -= 1
    i = 0
    while i < <int>share.readers.size():
        excess = -sharing
        j = i
        while j < <int>share.readers.size() and share.readers[j].first == share.readers[i].first:
            if not share.gone[j]:
                excess += 1
            j += 1
        while i < j:
            if excess > 0 and not share.gone[i]:
                share.gone[i] = 1
                excess -= 1
                share.load[share.readers[i].second] -= 1
                share.below[share.readers[i].second] = 1
            i += 1
    return 0


cdef int _ring(Share& share, const int* members, int n) noexcept nogil:
    """Chains the members below their share, ascending; index n stands for both ends."""
    cdef int i, last = n
    for i in range(n):
        if share.below[members[i]]:
            share.next[last] = i
            share.before[i] = last
            last = i
    share.next[last] = n
    share.before[n] = last
    return 0


cdef int _hand_out(Problem p, Share& share, const int* members, int n, int low_partition, int high_partition,
                   const char* assignable, int sharing) noexcept nogil:
    """Walks the partitions with too few readers and the ring of members together.

    A member that had the partition before this step is passed over, one that got it in this step is not: the second time
    changes nothing but uses up a place. So does Kafka 4.3, and what it gives is what clients see.
    """
    cdef int q, i, m, room, at = 0, cursor = share.next[n], top = <int>share.readers.size()
    cdef bint given = False
    for q in range(low_partition, high_partition):
        room = sharing
        while at < top and share.readers[at].first < q:
            at += 1
        while at < top and share.readers[at].first == q:
            if not share.gone[at]:
                share.mark[share.readers[at].second] = q
                room -= 1
            at += 1
        if not assignable[q] and room == sharing:
            continue
        while room > 0:
            if cursor == n:
                if not given:
                    break
                cursor = share.next[n]
                given = False
                if cursor == n:
                    break
            i = cursor
            m = members[i]
            cursor = share.next[i]
            if share.mark[m] == q:
                continue
            if share.given[m] != q:
                share.given[m] = q
                share.out.push_back(pair[int, int](m, q))
                share.load[m] += 1
            room -= 1
            given = True
            if share.load[m] >= share.want[m]:
                share.next[share.before[i]] = share.next[i]
                share.before[share.next[i]] = share.before[i]
        if share.next[n] == n:
            return 0
    return 0


cdef int _portion(Problem p, Share& share, const int* members, int n, int low_partition, int high_partition, int count,
                  const char* assignable) noexcept nogil:
    """One set of partitions shared by one set of members; `share.readers` holds who has them now."""
    cdef int i, m, upto, before = 0, sharing = (n + count - 1) // count if count else 0
    cdef double precise = <double>(<i64>sharing * count) / n
    for i in range(n):
        m = members[i]
        upto = <int>ceil(precise * (i + 1))
        share.want[m] = upto - before
        before = upto
        share.load[m] = 0
    for i in range(<int>share.readers.size()):
        share.load[share.readers[i].second] += 1
    share.gone.assign(share.readers.size(), 0)
    for i in range(n):
        share.below[members[i]] = share.load[members[i]] < share.want[members[i]]
    _revoke(share, members, n, sharing)
    _ring(share, members, n)
    if share.next[n] != n:
        _hand_out(p, share, members, n, low_partition, high_partition, assignable, sharing)
    for i in range(<int>share.readers.size()):
        if not share.gone[i]:
            share.out.push_back(pair[int, int](share.readers[i].second, share.readers[i].first))
    return 0


cdef int _readers(Problem p, vector[int]& claim_first, vector[int]& claims, vector[pair[int, int]]& out) noexcept nogil:
    """All valid pairs (partition, member), ascending and without duplicates."""
    cdef vector[int] topic_of, first, cursor, rows
    cdef int m, i, q, j, start
    if claims.empty():
        return 0
    p.topic_of_each(topic_of)
    first.assign(p.partitions + 1, 0)
    for i in range(<int>claims.size()):
        first[claims[i] + 1] += 1
    for q in range(p.partitions):
        first[q + 1] += first[q]
    rows.resize(claims.size())
    cursor = first
    for m in range(p.members):
        for i in range(claim_first[m], claim_first[m + 1]):
            q = claims[i]
            # Members ascend, so a repeated claim is the entry just written.
            if cursor[q] > first[q] and rows[cursor[q] - 1] == m:
                continue
            if p.subscribes(m, topic_of[q]):
                rows[cursor[q]] = m
                cursor[q] += 1
    for q in range(p.partitions):
        for j in range(first[q], cursor[q]):
            out.push_back(pair[int, int](q, rows[j]))
    return 0


cdef int _prepare(Problem p, Share& share) noexcept nogil:
    share.next.resize(p.members + 1)
    share.before.resize(p.members + 1)
    share.below.assign(p.members, 0)
    share.load.assign(p.members, 0)
    share.want.assign(p.members, 0)
    share.mark.assign(p.members, -1)
    share.given.assign(p.members, -1)
    return 0


cdef int solve(Problem p, vector[int]& claim_first, vector[int]& claims, vector[char]& assignable, vector[int]& row_first,
               vector[int]& rows) noexcept nogil:
    """Fills the rows member -> partitions."""
    cdef Share share
    cdef vector[pair[int, int]] readers
    cdef vector[int] everyone, cursor
    cdef int t, q, c, i, count, at = 0
    _prepare(p, share)
    if assignable.empty():
        assignable.assign(p.partitions, 1)
    for t in range(p.topics):
        if not p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                assignable[q] = 0
    _readers(p, claim_first, claims, readers)
    if p.homogeneous:
        everyone.resize(p.members)
        for i in range(p.members):
            everyone[i] = i
        count = 0
        for q in range(p.partitions):
            count += assignable[q]
        share.readers.swap(readers)
        if p.members and p.partitions:
            _portion(p, share, everyone.data(), p.members, 0, p.partitions, count, assignable.data())
    else:
        p.ensure_classes()
        for t in range(p.topics):
            c = p.class_of[t]
            count = 0
            for q in range(p.first[t], p.first[t + 1]):
                count += assignable[q]
            share.readers.clear()
            while at < <int>readers.size() and readers[at].first < p.first[t + 1]:
                share.readers.push_back(readers[at])
                at += 1
            if c >= 0 and p.first[t + 1] > p.first[t]:
                _portion(p, share, &p.class_members[p.class_first[c]], p.class_first[c + 1] - p.class_first[c],
                         p.first[t], p.first[t + 1], count, assignable.data())
    _rows(p, share.out, row_first, rows)
    return 0


cdef int _rows(Problem p, vector[pair[int, int]]& pairs, vector[int]& row_first, vector[int]& rows) noexcept nogil:
    """Pairs (member, partition) as ascending rows: two counting sorts, by partition and then by member."""
    cdef vector[int] at, order, cursor
    cdef int i, n = <int>pairs.size()
    at.assign(p.partitions + 1, 0)
    row_first.assign(p.members + 1, 0)
    for i in range(n):
        at[pairs[i].second + 1] += 1
        row_first[pairs[i].first + 1] += 1
    for i in range(p.partitions):
        at[i + 1] += at[i]
    for i in range(p.members):
        row_first[i + 1] += row_first[i]
    order.resize(n)
    for i in range(n):
        order[at[pairs[i].second]] = i
        at[pairs[i].second] += 1
    rows.resize(n)
    cursor = row_first
    for i in order:
        rows[cursor[pairs[i].first]] = pairs[i].second
        cursor[pairs[i].first] += 1
    return 0


def run(Problem problem not None, claim_first=None, claims=None):
    """Simple over arrays: rows member -> partitions in (None: nobody has anything) and out, as (first, rows)."""
    cdef vector[int] first, given, row_first, rows
    cdef vector[char] assignable
    if claim_first is not None:
        checked_rows(problem, claim_first, claims, first, given)
    with nogil:
        solve(problem, first, given, assignable, row_first, rows)
    return as_array(row_first), as_array(rows)


def assign(members, topics, previous=None, assignable=None):
    """Simple over value objects; returns (GroupAssignment, topics that are not known).

    `assignable`: topic -> partition numbers that are initialised; None: all of them.
    """
    cdef Lowered low = lower(members, topics, OWNED, False, previous)
    cdef Problem p = low.problem
    cdef vector[int] row_first, rows
    cdef vector[char] usable
    cdef int t, m, q, count
    if assignable is not None:
        usable.assign(p.partitions, 0)
        for t in range(p.topics):
            for number in assignable.get(low.topics.ordered[low.local[t]], ()):
                if 0 <= number < p.first[t + 1] - p.first[t]:
                    usable[p.first[t] + <int>number] = 1
    if p.has_owner:
        # An exclusive earlier assignment: the same facts as rows.
        p.claim_first.assign(p.members + 1, 0)
        p.has_owner = False
        p.has_claims = True
        for q in range(p.partitions):
            if p.given_owner[q] >= 0:
                p.claim_first[p.given_owner[q] + 1] += 1
        for m in range(p.members):
            p.claim_first[m + 1] += p.claim_first[m]
        p.claims.resize(p.claim_first[p.members])
        rows = p.claim_first
        for q in range(p.partitions):
            if p.given_owner[q] >= 0:
                p.claims[rows[p.given_owner[q]]] = q
                rows[p.given_owner[q]] += 1
    with nogil:
        solve(p, p.claim_first, p.claims, usable, row_first, rows)
    return low.shared(row_first, rows), low.missing
