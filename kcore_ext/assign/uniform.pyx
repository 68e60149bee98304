"""KIP-848's uniform assignor: builders for equal and for unequal subscriptions (KAFKA-17710, KAFKA-18688)."""


from libc.stdlib cimport qsort
from libc.string cimport memset

from kcore_ext.assign.containers cimport (
    IntVec,
    Memory,
    Scratch,
    first_of,
    i64,
    ints,
    longs,
    nones,
    pair,
    reserve,
    second_of,
    sort_longs,
    take,
    zeros,
)
from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.problem cimport SMALL_GROUP, Problem, checked_owner, new_array
from kcore_ext.assign.result cimport GroupAssignment

cdef enum:
    # Kafka's own limit of balancing sweeps.
    MOST_SWEEPS = 16


cdef int _drop(Problem p, int* owner, int* load) noexcept nogil:
    """Removes owners that no longer subscribe to the topic, and counts the remaining partitions of each member."""
    cdef int t, q, m, last, k = -1
    cdef bint yes = False
    for t in range(p.topics):
        last = -1
        for q in range(p.first[t], p.first[t + 1]):
            m = owner[q]
            if m < 0:
                continue
            # Neighbouring partitions often have owners of one kind.
            if last < 0 or p.kind_of[m] != k:
                last = m
                k = p.kind_of[m]
                yes = p.subscribes(m, t)
            if yes:
                load[m] += 1
            else:
                owner[q] = -1
    return 0


cdef int homogeneous(Problem p, Memory* memory, int* owner) except -1 nogil:
    """Lets members keep partitions up to their quota; gives the other partitions in blocks to members below their
    quota.

    If the partitions do not divide evenly, the quota of some members is one partition higher than the quota of the
    others. While more members than higher quotas remain, only a member that already owns more partitions than the lower
    quota has the higher quota.
    """
    cdef int* load
    cdef int* limit = NULL
    cdef int* taker
    cdef int* want
    cdef int* pool
    cdef int m, q, t, i, extra, least, quota, kept, rest, trimmed = 0, takers = 0, left = 0
    cdef bint bonus
    if p.members == 0:
        return 0
    load = zeros(memory, p.members)
    taker = ints(memory, p.members)
    want = ints(memory, p.members)
    pool = ints(memory, p.partitions)
    for t in range(p.topics):
        if p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                if owner[q] >= 0:
                    load[owner[q]] += 1
                else:
                    pool[left] = q
                    left += 1
        else:
            for q in range(p.first[t], p.first[t + 1]):
                owner[q] = -1
    least = p.subscribed_partitions // p.members
    extra = p.subscribed_partitions % p.members
    for m in range(p.members):
        bonus = extra > 0
        quota = least + (1 if bonus else 0)
        kept = load[m] if load[m] < quota else quota
        rest = quota - kept
        if rest > 0 and bonus and p.members - m > extra:
            bonus = False
            rest -= 1
        if rest > 0:
            taker[takers] = m
            want[takers] = rest
            takers += 1
        if bonus:
            extra -= 1
        if load[m] > kept:
            if limit == NULL:
                limit = nones(memory, p.members)
            limit[m] = kept
            trimmed += load[m] - kept
    if trimmed:
        left = _trim(p, memory, owner, load, limit, pool, left)
    t = 0
    for i in range(takers):
        m = taker[i]
        for q in range(t, min(t + want[i], left)):
            owner[pool[q]] = m
        t += want[i]
    return 0


cdef int _trim(Problem p, Memory* memory, int* owner, const int* load, int* limit, int* pool, int left) except -1 nogil:
    """Takes partitions from the members above their quota, and adds these partitions to the pool.

    A member keeps its first partitions. Returns the pool's new size.
    """
    cdef int* at = zeros(memory, p.members)
    cdef int m, q
    for m in range(p.members):
        if limit[m] >= 0:
            at[m] = left
            left += load[m] - limit[m]
    for q in range(p.partitions):
        m = owner[q]
        if m < 0 or limit[m] < 0:
            continue
        if limit[m] > 0:
            limit[m] -= 1
        else:
            pool[at[m]] = q
            at[m] += 1
            owner[q] = -1
    return left


cdef struct Balancer:
    # Subscribers of one topic by load, consumed from both ends, level by level.
    const int* load                # members
    int* sorted
    int size
    IntVec bucket
    int low_level
    int low_end
    int low_cursor
    int high_level
    int high_start
    int high_end
    int high_cursor


cdef int _start(Balancer* b, Memory* memory, const int* members, int n, int low, int high) except -1 nogil:
    """Sorts the subscribers of a topic by load with a counting sort. Equal loads stay in the order of the indices."""
    cdef int i
    reserve(memory, &b.bucket, high - low + 2)
    memset(b.bucket.at, 0, (high - low + 2) * sizeof(int))
    for i in range(n):
        b.bucket.at[b.load[members[i]] - low + 1] += 1
    for i in range(high - low + 1):
        b.bucket.at[i + 1] += b.bucket.at[i]
    for i in range(n):
        b.sorted[b.bucket.at[b.load[members[i]] - low]] = members[i]
        b.bucket.at[b.load[members[i]] - low] += 1
    b.size = n
    b.low_level = low - 1
    b.low_end = b.low_cursor = 0
    b.high_level = high + 1
    b.high_start = b.high_end = n
    b.high_cursor = n - 1
    return 0


cdef inline int _next_least(Balancer* b) noexcept nogil:
    if b.low_cursor >= b.low_end:
        b.low_level += 1
        while b.low_end < b.size and b.load[b.sorted[b.low_end]] == b.low_level:
            b.low_end += 1
        b.low_cursor = 0
    b.low_cursor += 1
    return b.sorted[b.low_cursor - 1]


cdef inline int _next_most(Balancer* b) noexcept nogil:
    if b.high_cursor < b.high_start:
        if b.high_start == b.high_end:
            if b.high_start == 0:
                return -1
            b.high_level = b.load[b.sorted[b.high_start - 1]]
        else:
            b.high_level -= 1
        while b.high_start > 0 and b.load[b.sorted[b.high_start - 1]] == b.high_level:
            b.high_start -= 1
        b.high_cursor = b.high_end - 1
    b.high_cursor -= 1
    return b.sorted[b.high_cursor + 1]


cdef inline void _exclude(Balancer* b) noexcept nogil:
    """Removes the member that `_next_most` returned last, because it owns no further partition of the topic."""
    cdef int at = b.high_cursor + 1, member = b.sorted[at]
    b.high_end -= 1
    b.sorted[at] = b.sorted[b.high_end]
    b.sorted[b.high_end] = member


cdef struct Order:
    double share
    int subscribers
    int topic


cdef int _compare(const void* left, const void* right) noexcept nogil:
    cdef const Order* a = <const Order*>left
    cdef const Order* b = <const Order*>right
    if a.share != b.share:
        return -1 if a.share > b.share else 1
    if a.subscribers != b.subscribers:
        return -1 if a.subscribers < b.subscribers else 1
    return -1 if a.topic < b.topic else 1


cdef int _topic_sequence(Problem p, Memory* memory, int* out) except -1 nogil:
    """Orders topics by partitions per subscriber (descending), number of subscribers, and id. Returns their number."""
    cdef Order* orders = <Order*>take(memory, p.topics * sizeof(Order))
    cdef int t, c, count = 0
    for t in range(p.topics):
        c = p.class_of[t]
        if c >= 0:
            orders[count].subscribers = p.class_first[c + 1] - p.class_first[c]
            orders[count].share = <double>(p.first[t + 1] - p.first[t]) / orders[count].subscribers
            orders[count].topic = t
            count += 1
    qsort(orders, count, sizeof(Order), _compare)
    for t in range(count):
        out[t] = orders[t].topic
    return count


cdef inline void _extremes(Problem p, int c, const int* load, int* low, int* high) noexcept nogil:
    cdef int i, value
    low[0] = high[0] = load[p.class_members[p.class_first[c]]]
    for i in range(p.class_first[c] + 1, p.class_first[c + 1]):
        value = load[p.class_members[i]]
        if value < low[0]:
            low[0] = value
        if value > high[0]:
            high[0] = value


cdef int _fill_levels(Problem p, Memory* memory, int t, Balancer* balancer, int* load, int* owner) except -1 nogil:
    """Assigns each free partition of a topic to the subscriber with the least load."""
    cdef int q, c = p.class_of[t], low = 0, high = 0, m
    cdef bint started = False
    for q in range(p.first[t], p.first[t + 1]):
        if owner[q] >= 0:
            continue
        if not started:
            started = True
            _extremes(p, c, load, &low, &high)
            _start(balancer, memory, p.class_members + p.class_first[c], p.class_first[c + 1] - p.class_first[c], low, high)
        m = _next_least(balancer)
        owner[q] = m
        load[m] += 1
    return 0


cdef struct OwnedRows:
    i64* rows                      # pairs (owner, partition) of one topic, ascending
    int* start                     # members: their row
    int* stop


cdef int _sort_by_owner(Problem p, int t, const int* owner, OwnedRows* owned) noexcept nogil:
    """Sorts a topic's partitions by owner."""
    cdef int c = p.class_of[t], n = p.first[t + 1] - p.first[t], i, m
    for i in range(n):
        owned.rows[i] = pair(owner[p.first[t] + i], p.first[t] + i)
    sort_longs(owned.rows, n)
    for i in range(p.class_first[c], p.class_first[c + 1]):
        owned.start[p.class_members[i]] = owned.stop[p.class_members[i]] = 0
    for i in range(n):
        m = first_of(owned.rows[i])
        if i == 0 or first_of(owned.rows[i - 1]) != m:
            owned.start[m] = i
        owned.stop[m] = i + 1
    return 0


cdef int _balance(
    Problem p, Memory* memory, int t, Balancer* balancer, int* load, int* owner, OwnedRows* owned
) except -1 nogil:
    """Moves partitions of one topic from its most to its least loaded subscribers. Returns the number of moves."""
    cdef int c = p.class_of[t], low = 0, high = 0, m, to, moved = 0
    _extremes(p, c, load, &low, &high)
    if high - low <= 1:
        return 0
    _start(balancer, memory, p.class_members + p.class_first[c], p.class_first[c + 1] - p.class_first[c], low, high)
    _sort_by_owner(p, t, owner, owned)
    while True:
        m = _next_most(balancer)
        while m >= 0 and owned.stop[m] == owned.start[m]:
            _exclude(balancer)
            m = _next_most(balancer)
        if m < 0:
            return moved
        owned.stop[m] -= 1
        to = _next_least(balancer)
        if balancer.high_level - balancer.low_level <= 1:
            return moved
        owner[second_of(owned.rows[owned.stop[m]])] = to
        load[m] -= 1
        load[to] += 1
        moved += 1


cdef int heterogeneous(Problem p, Memory* memory, int* owner) except -1 nogil:
    """Keeps valid owners, and assigns free partitions to the least loaded subscribers.

    Then balances one topic after the other, until a pass over all topics moves no partition.
    """
    cdef int* load = zeros(memory, p.members)
    cdef int* sequence = ints(memory, p.topics)
    cdef int i, t, c, sweep, count, shared = 0, most = 0, last_changed = 0
    cdef Balancer balancer
    cdef OwnedRows owned
    memset(&balancer, 0, sizeof(balancer))
    balancer.load = load
    balancer.sorted = ints(memory, p.members)
    p.ensure_classes()
    _drop(p, owner, load)
    count = _topic_sequence(p, memory, sequence)
    for i in range(count):
        t = sequence[i]
        _fill_levels(p, memory, t, &balancer, load, owner)
        c = p.class_of[t]
        if p.class_first[c + 1] - p.class_first[c] >= 2:
            sequence[shared] = t
            shared += 1
            most = max(most, p.first[t + 1] - p.first[t])
    owned.rows = longs(memory, most)
    owned.start = ints(memory, p.members)
    owned.stop = ints(memory, p.members)
    for sweep in range(MOST_SWEEPS):
        for i in range(shared):
            if sweep and i == last_changed:
                return 0
            if _balance(p, memory, sequence[i], &balancer, load, owner, &owned):
                last_changed = i
    return 0


cdef int _solve(Problem p, Memory* memory, int* owner) except -1 nogil:
    return homogeneous(p, memory, owner) if p.homogeneous else heterogeneous(p, memory, owner)


def run(Problem problem not None, previous=None):
    """Runs the assignor `uniform` over arrays.

    `previous` is the previous owner array; None: the partitions that the members report as owned. Returns the new owner
    array.
    """
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef int* owner
    out = new_array(problem.partitions, &owner)
    checked_owner(problem, previous, owner)
    if problem.members + problem.partitions < SMALL_GROUP:
        _solve(problem, &scratch.memory, owner)
    else:
        with nogil:
            _solve(problem, &scratch.memory, owner)
    return out


def assign(members, topics, previous=None):
    """Runs the assignor `uniform` over value objects; returns (GroupAssignment, unknown topics)."""
    cdef Lowered low = lower(members, topics, OWNED, False, previous)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment out = low.exclusive()
    with nogil:
        low.problem.owners_of_claims(out.owner)
        _solve(low.problem, &scratch.memory, out.owner)
    return out, low.missing
