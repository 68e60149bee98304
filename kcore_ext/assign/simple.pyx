"""Share groups' simple assignor (KIP-932, KAFKA-18901), which gives every partition about the same number of
readers.
"""

from libc.string cimport memset

from kcore_ext.assign.containers cimport (
    LongVec,
    Memory,
    Scratch,
    copied,
    first_of,
    flags,
    i64,
    ints,
    longs,
    nones,
    pair,
    push_long,
    reserve_longs,
    second_of,
    zeros,
)
from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.model cimport as_number
from kcore_ext.assign.problem cimport Problem, checked_rows, new_array
from kcore_ext.assign.result cimport GroupAssignment


cdef struct Share:
    # Scratch space that is reused from topic to topic.
    Memory* memory
    int* next  # ring of members below their share, by position in the portion
    int* before
    char* below                    # members
    int* load
    int* want
    int* mark  # members: the last visited partition that the member reads already
    int* given  # members: the last partition that was assigned to the member
    const i64* readers             # pairs (partition, member) of this portion, ascending
    int reader_count
    char* gone                     # readers that lose the partition
    LongVec out                    # result: pairs (member, partition)


# One set of partitions shared by one set of members.
cdef struct Portion:
    const int* members
    int n
    int low_partition
    int high_partition
    int count                      # partitions that can be assigned
    const char* assignable


cdef void _revoke(Share* share, int sharing) noexcept nogil:
    """Removes readers of partitions, in ascending order of the partitions.

    First takes partitions from members that have more than their share. Then removes readers from partitions that
    still have more than `sharing` readers.
    """
    cdef int i, j, m, excess
    for i in range(share.reader_count):
        m = second_of(share.readers[i])
        if share.load[m] > share.want[m]:
            share.gone[i] = 1
            share.load[m] -= 1
    i = 0
    while i < share.reader_count:
        excess = -sharing
        j = i
        while j < share.reader_count and first_of(share.readers[j]) == first_of(share.readers[i]):
            if not share.gone[j]:
                excess += 1
            j += 1
        while i < j:
            if excess > 0 and not share.gone[i]:
                m = second_of(share.readers[i])
                share.gone[i] = 1
                excess -= 1
                share.load[m] -= 1
                share.below[m] = 1
            i += 1


cdef void _ring(Share* share, const int* members, int n) noexcept nogil:
    """Links the members that have less than their share to a ring, in ascending order. The ring begins at index n."""
    cdef int i, last = n
    for i in range(n):
        if share.below[members[i]]:
            share.next[last] = i
            share.before[i] = last
            last = i
    share.next[last] = n
    share.before[n] = last


cdef int _hand_out(Share* share, Portion* portion, int sharing) except -1 nogil:
    """Assigns the partitions that have less than `sharing` readers to the members of the ring, in turn.

    Skips a member that read the partition before this step, but not a member that got the partition in this step. A
    member that gets the partition twice counts as two readers. Kafka 4.3 does the same, and clients see the result.
    """
    cdef int n = portion.n, q, i, m, room, at = 0, cursor = share.next[n], top = share.reader_count
    cdef bint given = False
    for q in range(portion.low_partition, portion.high_partition):
        room = sharing
        while at < top and first_of(share.readers[at]) < q:
            at += 1
        while at < top and first_of(share.readers[at]) == q:
            if not share.gone[at]:
                share.mark[second_of(share.readers[at])] = q
                room -= 1
            at += 1
        if not portion.assignable[q] and room == sharing:
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
            m = portion.members[i]
            cursor = share.next[i]
            if share.mark[m] == q:
                continue
            if share.given[m] != q:
                share.given[m] = q
                push_long(share.memory, &share.out, pair(m, q))
                share.load[m] += 1
            room -= 1
            given = True
            if share.load[m] >= share.want[m]:
                share.next[share.before[i]] = share.next[i]
                share.before[share.next[i]] = share.before[i]
        if share.next[n] == n:
            return 0
    return 0


cdef int _portion(Share* share, Portion* portion) except -1 nogil:
    """Assigns the partitions of one portion, which is a set of partitions that a set of members shares.

    `share.readers` contains the present readers of these partitions.
    """
    cdef int i, m, upto, before = 0, n = portion.n
    cdef int sharing = (n + portion.count - 1) // portion.count if portion.count else 0
    cdef double precise = <double>(<i64>sharing * portion.count) / n, exact
    cdef Py_ssize_t start = share.out.size
    for i in range(n):
        m = portion.members[i]
        exact = precise * (i + 1)
        upto = <int>exact
        # Rounded up by hand: C's ceil is a function call on older processors.
        upto += upto < exact
        share.want[m] = upto - before
        before = upto
        share.load[m] = 0
    for i in range(share.reader_count):
        share.load[second_of(share.readers[i])] += 1
    memset(share.gone, 0, <size_t><unsigned>share.reader_count)
    for i in range(n):
        m = portion.members[i]
        share.below[m] = share.load[m] < share.want[m]
    _revoke(share, sharing)
    _ring(share, portion.members, n)
    if share.next[n] != n:
        _hand_out(share, portion, sharing)
    return _merge_kept(share, start)


cdef int _merge_kept(Share* share, Py_ssize_t start) except -1 nogil:
    """Merges the remaining readers into the new pairs from `start` on, so that all pairs ascend by partition."""
    cdef Py_ssize_t new = share.out.size - 1, at, kept = 0
    cdef int i
    cdef i64* out
    for i in range(share.reader_count):
        kept += not share.gone[i]
    reserve_longs(share.memory, &share.out, share.out.size + kept)
    share.out.size += kept
    out = share.out.at
    at = share.out.size - 1
    for i in range(share.reader_count - 1, -1, -1):
        if share.gone[i]:
            continue
        while new >= start and second_of(out[new]) > first_of(share.readers[i]):
            out[at] = out[new]
            at -= 1
            new -= 1
        out[at] = pair(second_of(share.readers[i]), first_of(share.readers[i]))
        at -= 1
    return 0


cdef int _readers(Problem p, Memory* memory, const int* claim_first, const int* claims, i64* out) except -1 nogil:
    """Lists all valid pairs (partition, member), ascending and without duplicates. Returns their number."""
    cdef int* topic_of = ints(memory, p.partitions)
    cdef int* first = zeros(memory, p.partitions + 1)
    cdef int* cursor
    cdef int* rows
    cdef int m, i, q, t, j, last, total = claim_first[p.members], count = 0
    p.topic_of_each(topic_of)
    for i in range(total):
        first[claims[i] + 1] += 1
    for q in range(p.partitions):
        first[q + 1] += first[q]
    rows = ints(memory, total)
    cursor = copied(memory, first, p.partitions)
    for m in range(p.members):
        j = p.kind_first[p.kind_of[m]]
        last = p.kind_first[p.kind_of[m] + 1]
        for i in range(claim_first[m], claim_first[m + 1]):
            q = claims[i]
            t = topic_of[q]
            # Claims mostly ascend, like the topics of a kind.
            if i > claim_first[m] and q < claims[i - 1]:
                j = p.kind_first[p.kind_of[m]]
            while j < last and p.kind_topics[j] < t:
                j += 1
            # Members ascend, so a repeated claim is the entry just written.
            if cursor[q] > first[q] and rows[cursor[q] - 1] == m:
                continue
            if j < last and p.kind_topics[j] == t:
                rows[cursor[q]] = m
                cursor[q] += 1
    for q in range(p.partitions):
        for j in range(first[q], cursor[q]):
            out[count] = pair(q, rows[j])
            count += 1
    return count


cdef int _prepare(Problem p, Memory* memory, int readers, Share* share) except -1 nogil:
    memset(share, 0, sizeof(Share))
    share.memory = memory
    share.next = ints(memory, p.members + 1)
    share.before = ints(memory, p.members + 1)
    share.below = flags(memory, p.members, False)
    share.load = zeros(memory, p.members)
    share.want = zeros(memory, p.members)
    share.mark = nones(memory, p.members)
    share.given = nones(memory, p.members)
    share.gone = flags(memory, readers, False)
    return 0


cdef int _homogeneous(Problem p, Share* share, const i64* readers, int reader_count,
                      const char* assignable) except -1 nogil:
    """Assigns the partitions of all topics together, for members with equal subscriptions."""
    cdef Portion portion
    cdef int* everyone = ints(share.memory, p.members)
    cdef int i, q
    for i in range(p.members):
        everyone[i] = i
    portion.members = everyone
    portion.n = p.members
    portion.low_partition = 0
    portion.high_partition = p.partitions
    portion.assignable = assignable
    portion.count = 0
    for q in range(p.partitions):
        portion.count += assignable[q]
    share.readers = readers
    share.reader_count = reader_count
    # The upper limit: every partition with its share of readers, rounded up.
    reserve_longs(share.memory, &share.out, portion.count + p.members)
    if p.members and p.partitions:
        _portion(share, &portion)
    return 0


cdef int _heterogeneous(Problem p, Share* share, const i64* readers, int reader_count,
                        const char* assignable) except -1 nogil:
    """Assigns the partitions of each topic separately, for members with unequal subscriptions."""
    cdef Portion portion
    cdef int t, c, q, at = 0
    cdef Py_ssize_t most = p.partitions
    portion.assignable = assignable
    p.ensure_classes()
    for t in range(p.topics):
        if p.class_of[t] >= 0 and p.first[t + 1] > p.first[t]:
            most += p.class_first[p.class_of[t] + 1] - p.class_first[p.class_of[t]]
    reserve_longs(share.memory, &share.out, most)
    for t in range(p.topics):
        c = p.class_of[t]
        portion.count = 0
        for q in range(p.first[t], p.first[t + 1]):
            portion.count += assignable[q]
        share.readers = readers + at
        share.reader_count = 0
        while at < reader_count and first_of(readers[at]) < p.first[t + 1]:
            share.reader_count += 1
            at += 1
        if c >= 0 and p.first[t + 1] > p.first[t]:
            portion.members = p.class_members + p.class_first[c]
            portion.n = p.class_first[c + 1] - p.class_first[c]
            portion.low_partition = p.first[t]
            portion.high_partition = p.first[t + 1]
            _portion(share, &portion)
    return 0


cdef int solve(Problem p, Memory* memory, const int* claim_first, const int* claims, char* assignable,
               LongVec* out) except -1 nogil:
    """Assigns all partitions: fills `out` with pairs (member, partition).

    `claim_first` is NULL if no partition has earlier readers; `assignable` is NULL if all partitions can be assigned.
    """
    cdef Share share
    cdef i64* readers
    cdef int t, q, count = 0, claimed = claim_first[p.members] if claim_first != NULL else 0
    if assignable == NULL:
        assignable = flags(memory, p.partitions, True)
    for t in range(p.topics):
        if not p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                assignable[q] = 0
    readers = longs(memory, claimed)
    if claimed:
        count = _readers(p, memory, claim_first, claims, readers)
    _prepare(p, memory, count, &share)
    if p.homogeneous:
        _homogeneous(p, &share, readers, count, assignable)
    else:
        _heterogeneous(p, &share, readers, count, assignable)
    out[0] = share.out
    return 0


cdef int _rows(Problem p, Memory* memory, const LongVec* pairs, int* row_first, int* rows) except -1 nogil:
    """Converts pairs (member, partition), ascending by partition, to a row of partitions for each member."""
    cdef int n = <int>pairs.size, i, m
    cdef int* cursor
    memset(row_first, 0, (p.members + 1) * sizeof(int))
    for i in range(n):
        row_first[first_of(pairs.at[i]) + 1] += 1
    for i in range(p.members):
        row_first[i + 1] += row_first[i]
    cursor = copied(memory, row_first, p.members)
    for i in range(n):
        m = first_of(pairs.at[i])
        rows[cursor[m]] = second_of(pairs.at[i])
        cursor[m] += 1
    return 0


def run(Problem problem not None, claim_first=None, claims=None):
    """Runs the assignor `simple` over arrays.

    The arguments `claim_first` and `claims` are the previous rows member -> partitions (None: no readers). Returns the
    new rows as (first, rows).
    """
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef Memory* memory = &scratch.memory
    cdef int* first = NULL
    cdef int* given = NULL
    cdef int* row_first
    cdef int* rows
    cdef LongVec pairs
    if claim_first is not None:
        checked_rows(problem, claim_first, claims, memory, &first, &given)
    with nogil:
        solve(problem, memory, first, given, NULL, &pairs)
    firsts = new_array(problem.members + 1, &row_first)
    out = new_array(pairs.size, &rows)
    with nogil:
        _rows(problem, memory, &pairs, row_first, rows)
    return firsts, out


cdef char* _usable(Lowered low, Memory* memory, object assignable) except NULL:
    """Returns one byte per partition: 1 if it is initialised."""
    cdef Problem p = low.problem
    cdef char* usable = flags(memory, p.partitions, False)
    cdef int t
    cdef long number
    for t in range(p.topics):
        topic = low.topics.ordered[low.local[t]]
        try:
            for given in assignable.get(topic, ()):
                number = as_number(given)
                if 0 <= number < p.first[t + 1] - p.first[t]:
                    usable[p.first[t] + number] = 1
        except (TypeError, OverflowError) as error:
            raise ValueError(f"assignable: topic {topic!r}: invalid partition numbers: {error}") from error
    return usable


cdef int _owners_as_claims(Problem p, Memory* memory) except -1:
    """Converts the earlier owner of each partition to the earlier partitions of each member (`claims`)."""
    cdef int* cursor
    cdef int m, q
    p.has_owner = False
    p.has_claims = True
    p.claim_first = zeros(&p.memory, p.members + 1)
    for q in range(p.partitions):
        if p.given_owner[q] >= 0:
            p.claim_first[p.given_owner[q] + 1] += 1
    for m in range(p.members):
        p.claim_first[m + 1] += p.claim_first[m]
    p.claims.size = p.claims.room = p.claim_first[p.members]
    p.claims.at = ints(&p.memory, p.claims.size)
    cursor = copied(memory, p.claim_first, p.members)
    for q in range(p.partitions):
        if p.given_owner[q] >= 0:
            p.claims.at[cursor[p.given_owner[q]]] = q
            cursor[p.given_owner[q]] += 1
    return 0


def assign(members, topics, previous=None, assignable=None):
    """Runs the assignor `simple` over value objects; returns (GroupAssignment, unknown topics).

    `assignable`: topic -> partition numbers that are initialised; None: all of them.
    """
    cdef Lowered low = lower(members, topics, OWNED, False, previous)
    cdef Problem p = low.problem
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef Memory* memory = &scratch.memory
    cdef char* usable = NULL
    cdef LongVec pairs
    cdef GroupAssignment out
    if assignable is not None:
        usable = _usable(low, memory, assignable)
    if p.has_owner:
        _owners_as_claims(p, memory)
    with nogil:
        solve(p, memory, p.claim_first, p.claims.at, usable, &pairs)
    out = low.shared(pairs.size)
    with nogil:
        _rows(p, memory, &pairs, out.row_first, out.rows)
    return out, low.missing
