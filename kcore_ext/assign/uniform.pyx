# distutils: language = c++
"""KIP-848's uniform assignor: one builder for equal subscriptions, one for unequal ones (KAFKA-17710, KAFKA-18688)."""

from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.problem cimport Problem, as_array, checked_owner

ctypedef long long i64

cdef enum:
    # Kafka's own bound on balancing sweeps.
    MOST_SWEEPS = 16


cdef int _drop(Problem p, vector[int]& owner, vector[int]& load) noexcept nogil:
    """Takes away what is no longer subscribed and counts the rest."""
    cdef int t, q, m, last, k = -1
    cdef bint yes = False
    load.assign(p.members, 0)
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


cdef int homogeneous(Problem p, vector[int]& owner) noexcept nogil:
    """Every member keeps up to its quota; what is over goes in blocks to those below theirs.

    A member that does not need the extra partition leaves it to others while more members than extras are left.
    """
    cdef vector[int] load, limit, taker, want, pool
    cdef int m, q, t, i, extra, least, quota, kept, rest, trimmed = 0
    cdef bint bonus
    if p.members == 0:
        return 0
    load.assign(p.members, 0)
    for t in range(p.topics):
        if p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                if owner[q] >= 0:
                    load[owner[q]] += 1
                else:
                    pool.push_back(q)
        else:
            for q in range(p.first[t], p.first[t + 1]):
                owner[q] = -1
    least = p.subscribed_partitions // p.members
    extra = p.subscribed_partitions % p.members
    for m in range(p.members):
        bonus = extra > 0
        quota = least + (1 if bonus else 0)
        kept = <int>load[m] if load[m] < quota else quota
        rest = quota - kept
        if rest > 0 and bonus and p.members - m > extra:
            bonus = False
            rest -= 1
        if rest > 0:
            taker.push_back(m)
            want.push_back(rest)
        if bonus:
            extra -= 1
        if load[m] > kept:
            if limit.empty():
                limit.assign(p.members, -1)
            limit[m] = kept
            trimmed += load[m] - kept
    if trimmed:
        _trim(p, owner, load, limit, trimmed, pool)
    i = 0
    for q in pool:
        owner[q] = taker[i]
        want[i] -= 1
        if want[i] == 0:
            i += 1
    return 0


cdef int _trim(Problem p, vector[int]& owner, vector[int]& load, vector[int]& limit, int trimmed,
               vector[int]& pool) noexcept nogil:
    """Members over their quota keep their first partitions; the others join the pool, member by member."""
    cdef vector[int] at
    cdef int m, q, next_slot = <int>pool.size()
    at.assign(p.members, 0)
    for m in range(p.members):
        if limit[m] >= 0:
            at[m] = next_slot
            next_slot += load[m] - limit[m]
    pool.resize(next_slot)
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
    return 0


cdef extern from * nogil:
    """
    #include <vector>
    // Subscribers of one topic by load, consumed from both ends, level by level.
    struct KcoreBalancer {
        std::vector<int> sorted;
        std::vector<int> bucket;
        int low_level, low_end, low_cursor;
        int high_level, high_start, high_end, high_cursor;

        // Counting sort: members ascend already, so equal loads stay in index order.
        void fill(const int *members, int n, const std::vector<int> &load, int low, int high) {
            bucket.assign((size_t)(high - low) + 2, 0);
            for (int i = 0; i < n; i++) bucket[load[members[i]] - low + 1]++;
            for (size_t i = 1; i < bucket.size(); i++) bucket[i] += bucket[i - 1];
            sorted.resize(n);
            for (int i = 0; i < n; i++) sorted[bucket[load[members[i]] - low]++] = members[i];
        }
        void start(int low, int high) {
            low_level = low - 1; low_end = 0; low_cursor = 0;
            high_level = high + 1; high_start = high_end = (int)sorted.size(); high_cursor = high_end - 1;
        }
        inline int next_least(const std::vector<int> &load) {
            if (low_cursor >= low_end) {
                low_level++;
                while (low_end < (int)sorted.size() && load[sorted[low_end]] == low_level) low_end++;
                low_cursor = 0;
            }
            return sorted[low_cursor++];
        }
        inline int next_most(const std::vector<int> &load) {
            if (high_cursor < high_start) {
                if (high_start == high_end) {
                    if (high_start == 0) return -1;
                    high_level = load[sorted[high_start - 1]];
                } else {
                    high_level--;
                }
                while (high_start > 0 && load[sorted[high_start - 1]] == high_level) high_start--;
                high_cursor = high_end - 1;
            }
            return sorted[high_cursor--];
        }
        // The member returned last has nothing more to give.
        inline void exclude() {
            int at = high_cursor + 1;
            std::swap(sorted[at], sorted[high_end - 1]);
            high_end--;
        }
    };
    """
    cppclass Balancer "KcoreBalancer":
        vector[int] sorted
        int low_level
        int high_level
        void fill(const int* members, int n, vector[int]& load, int low, int high)
        void start(int low, int high)
        int next_least(vector[int]& load)
        int next_most(vector[int]& load)
        void exclude()


cdef struct Order:
    double share
    int subscribers
    int topic


cdef bint _before(const Order& a, const Order& b) noexcept nogil:
    if a.share != b.share:
        return a.share > b.share
    if a.subscribers != b.subscribers:
        return a.subscribers < b.subscribers
    return a.topic < b.topic


cdef int _topic_sequence(Problem p, vector[int]& out) noexcept nogil:
    """Topics with the most partitions a subscriber first, then those with fewer subscribers, then by id."""
    cdef vector[Order] orders
    cdef Order order
    cdef int t, c
    for t in range(p.topics):
        c = p.class_of[t]
        if c >= 0:
            order.subscribers = p.class_first[c + 1] - p.class_first[c]
            order.share = <double>(p.first[t + 1] - p.first[t]) / order.subscribers
            order.topic = t
            orders.push_back(order)
    sort(orders.begin(), orders.end(), _before)
    for t in range(<int>orders.size()):
        out.push_back(orders[t].topic)
    return 0


cdef inline void _extremes(Problem p, int c, vector[int]& load, int& low, int& high) noexcept nogil:
    cdef int i, value
    (&low)[0] = load[p.class_members[p.class_first[c]]]
    (&high)[0] = low
    for i in range(p.class_first[c] + 1, p.class_first[c + 1]):
        value = load[p.class_members[i]]
        if value < low:
            (&low)[0] = value
        if value > high:
            (&high)[0] = value


cdef int _place(Problem p, int t, Balancer& balancer, vector[int]& load, vector[int]& owner) noexcept nogil:
    """Fills the lowest levels of a topic's subscribers with its free partitions."""
    cdef int q, c = p.class_of[t], low = 0, high = 0, m
    cdef bint started = False
    for q in range(p.first[t], p.first[t + 1]):
        if owner[q] >= 0:
            continue
        if not started:
            started = True
            _extremes(p, c, load, low, high)
            balancer.fill(&p.class_members[p.class_first[c]], p.class_first[c + 1] - p.class_first[c], load, low, high)
            balancer.start(low, high)
        m = balancer.next_least(load)
        owner[q] = m
        load[m] += 1
    return 0


cdef int _balance(Problem p, int t, Balancer& balancer, vector[int]& load, vector[int]& owner,
                  vector[pair[int, int]]& held, vector[int]& start, vector[int]& stop) noexcept nogil:
    """Moves partitions of one topic from its most to its least loaded subscribers. Returns how many moved."""
    cdef int c = p.class_of[t], low = 0, high = 0, q, i, m, to, moved = 0
    _extremes(p, c, load, low, high)
    if high - low <= 1:
        return 0
    balancer.fill(&p.class_members[p.class_first[c]], p.class_first[c + 1] - p.class_first[c], load, low, high)
    balancer.start(low, high)
    held.clear()
    for q in range(p.first[t], p.first[t + 1]):
        held.push_back(pair[int, int](owner[q], q))
    sort(held.begin(), held.end())
    for i in range(p.class_first[c], p.class_first[c + 1]):
        start[p.class_members[i]] = stop[p.class_members[i]] = 0
    for i in range(<int>held.size()):
        m = held[i].first
        if i == 0 or held[i - 1].first != m:
            start[m] = i
        stop[m] = i + 1
    while True:
        m = balancer.next_most(load)
        while m >= 0 and stop[m] == start[m]:
            balancer.exclude()
            m = balancer.next_most(load)
        if m < 0:
            return moved
        stop[m] -= 1
        q = held[stop[m]].second
        to = balancer.next_least(load)
        if balancer.high_level - balancer.low_level <= 1:
            return moved
        owner[q] = to
        load[m] -= 1
        load[to] += 1
        moved += 1


cdef int heterogeneous(Problem p, vector[int]& owner) noexcept nogil:
    """Keep what is valid, fill level by level, then balance topic by topic until a whole cycle changes nothing."""
    cdef vector[int] load, sequence, shared, start, stop
    cdef vector[pair[int, int]] held
    cdef Balancer balancer
    cdef int i, t, c, sweep, last_changed = 0
    p.ensure_classes()
    _drop(p, owner, load)
    _topic_sequence(p, sequence)
    for t in sequence:
        _place(p, t, balancer, load, owner)
        c = p.class_of[t]
        if p.class_first[c + 1] - p.class_first[c] >= 2:
            shared.push_back(t)
    start.resize(p.members)
    stop.resize(p.members)
    for sweep in range(MOST_SWEEPS):
        for i in range(<int>shared.size()):
            if sweep and i == last_changed:
                return 0
            if _balance(p, shared[i], balancer, load, owner, held, start, stop):
                last_changed = i
    return 0


def run(Problem problem not None, previous=None):
    """Uniform over arrays: previous owner array (None: the problem's claims) in, owner array out."""
    cdef vector[int] owner
    checked_owner(problem, previous, owner)
    if problem.members + problem.partitions < 4096:
        # Letting go of the interpreter lock costs more than so small a group.
        _solve(problem, owner)
    else:
        with nogil:
            _solve(problem, owner)
    return as_array(owner)


cdef int _solve(Problem p, vector[int]& owner) noexcept nogil:
    return homogeneous(p, owner) if p.homogeneous else heterogeneous(p, owner)


def assign(members, topics, previous=None):
    """Uniform over value objects; returns (GroupAssignment, topics that are not known)."""
    cdef Lowered low = lower(members, topics, OWNED, False, previous)
    cdef vector[int] owner
    with nogil:
        low.problem.owners_of_claims(owner)
        _solve(low.problem, owner)
    return low.exclusive(owner), low.missing
