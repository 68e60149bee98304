# distutils: language = c++
"""Sticky with unequal subscriptions: keep, fill the least loaded, then move while it helps (KIP-54, KIP-341).

Kafka tests before every partition whether the whole is balanced. That test only ends a sweep early (a partition that
can move is itself the proof that the whole is not balanced), so it is left out here, and the least loaded subscriber
comes from a tournament tree in place of a walk over a sorted set.

Kafka's loop need not end: a move may give back another partition of the topic, which takes from a third member. A sweep
that ends in a state seen before would repeat for ever; here it is noticed (Brent's method) and the least unbalanced
assignment with the fewest moves is taken in its place.
"""

from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.set cimport set as ordered_set
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kcore_ext.assign.flow cimport least_imbalance
from kcore_ext.assign.heaps cimport Loads, seat
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front

ctypedef long long i64
ctypedef unsigned long long u64

# Far above what runs that end by themselves need; bounds the time where the period is long.
cdef enum:
    MOST_SWEEPS = 1000


cdef extern from * nogil:
    """
    #include <set>
    #include <unordered_map>
    #include <vector>
    // Which partition of a topic moved from whom to whom in this run.
    struct KcoreMoves {
        std::vector<int> source, target;   // partitions; source -1: not moved
        struct Key {
            int topic, source, target;
            bool operator==(const Key &o) const { return topic == o.topic && source == o.source && target == o.target; }
        };
        struct Hash {
            size_t operator()(const Key &k) const {
                unsigned long long h = (unsigned)k.topic * 0x9E3779B97F4A7C15ULL;
                h = (h ^ (unsigned)k.source) * 0xC2B2AE3D27D4EB4FULL;
                h = (h ^ (unsigned)k.target) * 0x165667B19E3779F9ULL;
                return (size_t)(h ^ (h >> 31));
            }
        };
        std::unordered_map<Key, std::set<int>, Hash> moved;

        // The partition to move in place of `partition`: one that went the other way, else itself.
        int actual(int topic, int partition, int from, int to) const {
            if (moved.empty()) return partition;
            if (source[partition] >= 0) from = source[partition];
            auto found = moved.find(Key{topic, to, from});
            return found == moved.end() ? partition : *found->second.begin();
        }
        void record(int topic, int partition, int from, int to) {
            int origin = from;
            if (source[partition] >= 0) {
                auto found = moved.find(Key{topic, source[partition], target[partition]});
                found->second.erase(partition);
                if (found->second.empty()) moved.erase(found);
                origin = source[partition];
                source[partition] = target[partition] = -1;
                if (origin == to) return;
            }
            source[partition] = origin;
            target[partition] = to;
            moved[Key{topic, origin, to}].insert(partition);
        }
    };
    """
    cppclass Moves "KcoreMoves":
        vector[int] source
        vector[int] target
        int actual(int topic, int partition, int from_, int to)
        void record(int topic, int partition, int from_, int to)


cdef inline void _count(Loads& loads, int member, int change) noexcept nogil:
    loads.load[member] += change
    loads.changed(member)


cdef bint _drop_invalid(Problem p, bint rack_aware, vector[int]& owner) noexcept nogil:
    """Takes away what its owner may not have any more. True when something had to be revoked for it."""
    cdef int t, q, m
    cdef bint revoked = False
    for t in range(p.topics):
        if not p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                owner[q] = -1
            continue
        for q in range(p.first[t], p.first[t + 1]):
            m = owner[q]
            if m >= 0 and (not p.subscribes(m, t)
                           or (rack_aware and p.member_rack[m] >= 0 and not p.on_rack(q, p.member_rack[m]))):
                owner[q] = -1
                revoked = True
    return revoked


cdef int _fill(Problem p, bint rack_aware, vector[int]& unassigned, vector[int]& topic_of, Loads& loads,
               vector[int]& owner) noexcept nogil:
    """Each partition to the least loaded subscriber: first on its rack, then anywhere."""
    cdef int i, q, m, best, cell, c, rack
    if rack_aware:
        for i in range(<int>unassigned.size()):
            q = unassigned[i]
            c = p.class_of[topic_of[q]]
            best = -1
            for cell in range(loads.class_cell_first[c], loads.class_cell_first[c + 1]):
                rack = loads.cell_rack[cell]
                if rack < 0 or p.on_rack(q, rack):
                    m = loads.least(cell)
                    if best < 0 or loads.load[m] < loads.load[best] or (loads.load[m] == loads.load[best] and m < best):
                        best = m
            if best >= 0:
                owner[q] = best
                _count(loads, best, 1)
    for i in range(<int>unassigned.size()):
        q = unassigned[i]
        if owner[q] < 0:
            owner[q] = loads.least_of_class(p.class_of[topic_of[q]])
            _count(loads, owner[q], 1)
    return 0


cdef bint _sweep(Problem p, vector[int]& partitions, vector[int]& topic_of, vector[int]& older, Loads& loads,
                 Moves& moves, vector[int]& owner) noexcept nogil:
    """One pass over the partitions; True when something moved."""
    cdef int i, q, t, m, to, back
    cdef bint modified = False
    for i in range(<int>partitions.size()):
        q = partitions[i]
        m = owner[q]
        t = topic_of[q]
        to = -1
        if not older.empty():
            back = older[q]
            # Kafka does not ask whether the older owner still subscribes; a result must stay valid.
            if back >= 0 and loads.load[m] > loads.load[back] + 1 and p.subscribes(back, t):
                to = back
        if to < 0:
            to = loads.least_of_class(p.class_of[t])
            if loads.load[m] <= loads.load[to] + 1:
                continue
        q = moves.actual(t, q, m, to)
        m = owner[q]
        moves.record(t, q, m, to)
        owner[q] = to
        _count(loads, m, -1)
        _count(loads, to, 1)
        modified = True
    return modified


cdef int _reassign(Problem p, vector[int]& partitions, vector[int]& topic_of, vector[int]& older, Loads& loads,
                   Moves& moves, vector[int]& owner, bint& endless) noexcept nogil:
    """Sweeps until one changes nothing. Sets `endless` when a state repeats. Returns the number of sweeps that moved."""
    cdef vector[int] seen_owner, seen_source, seen_target
    cdef int sweeps = 0, power = 1
    while _sweep(p, partitions, topic_of, older, loads, moves, owner):
        sweeps += 1
        if sweeps > 1 and ((owner == seen_owner and moves.source == seen_source and moves.target == seen_target)
                           or sweeps > MOST_SWEEPS):
            (&endless)[0] = True
            break
        if sweeps == power:
            seen_owner = owner
            seen_source = moves.source
            seen_target = moves.target
            power *= 2
    return sweeps


cdef i64 _score(vector[int]& owner, vector[char]& fixed) noexcept nogil:
    """Sum of the differences of all pairs of members that take part."""
    cdef vector[int] count, sizes
    cdef i64 total = 0
    cdef int q, m, i, n
    count.assign(fixed.size(), 0)
    for q in range(<int>owner.size()):
        if owner[q] >= 0:
            count[owner[q]] += 1
    for m in range(<int>fixed.size()):
        if not fixed[m]:
            sizes.push_back(count[m])
    sort(sizes.begin(), sizes.end())
    n = <int>sizes.size()
    for i in range(n):
        total += <i64>(2 * i - n + 1) * sizes[i]
    return total


cdef int _find_fixed(Problem p, vector[int]& topic_of, vector[int]& owner, Loads& loads,
                     vector[char]& fixed) noexcept nogil:
    """Members that have all they can have, and nothing that somebody else could have."""
    cdef vector[char] contested
    cdef int m, i, q, c, k, most
    contested.assign(p.members, 0)
    for q in range(p.partitions):
        if owner[q] >= 0:
            c = p.class_of[topic_of[q]]
            if p.class_first[c + 1] - p.class_first[c] >= 2:
                contested[owner[q]] = 1
    fixed.assign(p.members, 0)
    for m in range(p.members):
        k = p.kind_of[m]
        if contested[m]:
            continue
        most = 0
        for i in range(p.kind_first[k], p.kind_first[k + 1]):
            most += p.first[p.kind_topics[i] + 1] - p.first[p.kind_topics[i]]
        fixed[m] = loads.load[m] >= most
    return 0


cdef int _sequence(Problem p, vector[int]& out) noexcept nogil:
    """All partitions: topics by number of subscribers, then by name."""
    cdef vector[pair[int, int]] keyed
    cdef int t, i, q, c
    for t in range(p.topics):
        c = p.class_of[t]
        if c >= 0:
            keyed.push_back(pair[int, int](p.class_first[c + 1] - p.class_first[c], t))
    sort(keyed.begin(), keyed.end())
    for i in range(<int>keyed.size()):
        t = keyed[i].second
        for q in range(p.first[t], p.first[t + 1]):
            out.push_back(q)
    return 0


cdef int general(Problem p, Front& front, vector[int]& owner) noexcept nogil:
    """Fills `owner`."""
    cdef vector[int] settled, topic_of, sequence, unassigned, movable, movable_new, before
    cdef vector[char] fixed
    cdef Loads loads
    cdef Moves moves
    cdef int i, q, c
    cdef bint revoked, initializing = True, endless = False
    p.ensure_classes()
    settled = front.owner
    owner.swap(front.owner)
    revoked = _drop_invalid(p, front.rack_aware, owner)
    p.topic_of_each(topic_of)
    loads.load.assign(p.members, 0)
    for q in range(p.partitions):
        if owner[q] >= 0:
            loads.load[owner[q]] += 1
            initializing = False
    seat(p, front.rack_aware, loads)
    _sequence(p, sequence)
    for i in range(<int>sequence.size()):
        if owner[sequence[i]] < 0:
            unassigned.push_back(sequence[i])
    _fill(p, front.rack_aware, unassigned, topic_of, loads, owner)
    for i in range(<int>sequence.size()):
        q = sequence[i]
        c = p.class_of[topic_of[q]]
        if p.class_first[c + 1] - p.class_first[c] >= 2:
            movable.push_back(q)
    moves.source.assign(p.partitions, -1)
    moves.target.assign(p.partitions, -1)
    before = owner
    if not initializing:
        _find_fixed(p, topic_of, owner, loads, fixed)
    if not revoked:
        for i in range(<int>unassigned.size()):
            q = unassigned[i]
            c = p.class_of[topic_of[q]]
            if p.class_first[c + 1] - p.class_first[c] >= 2:
                movable_new.push_back(q)
        _reassign(p, movable_new, topic_of, front.older, loads, moves, owner, endless)
    if not endless and _reassign(p, movable, topic_of, front.older, loads, moves, owner, endless) and not endless:
        if not initializing and _score(owner, fixed) >= _score(before, fixed):
            owner.swap(before)
    if endless:
        least_imbalance(p, settled, front.rack_aware, owner)
    return 0
