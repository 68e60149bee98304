# distutils: language = c++
"""kcore.balanced: a minimum cost flow.

Partitions that nobody can tell apart (same subscribers, same racks, same earlier owner) are one *group* with a supply.
A group flows straight to its earlier owner, or through the *pool* of its subscribers and racks to any of them:

    group --(miss)--> earlier owner          pool --(miss)--> subscriber
    group --(move)--> pool                   subscriber --(2 * load + 1)--> sink, one more unit at a time

The j-th partition of a member costs 2 * j - 1, so a member with n costs n * n: the flow of least cost has the least sum of
squared loads among all assignments, then the fewest moves, then the fewest partitions off their member's rack. The three
are one number: a move outweighs all rack misses that a simple path can have, one unit of load outweighs all moves.
(The least sum of squares is also least in the largest load, in the sum of pairwise differences, and in any convex
measure: loads of flows form a base polytope, whose least majorized vectors minimise them all.)

Units are sent along shortest paths (successive shortest paths with potentials), all that are equally short at once
(Dinic's blocking flows). Every such flow is of least cost for what it carries, so the last one is optimal.
"""

from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.problem cimport Problem, as_array, checked_owner

ctypedef long long i64
ctypedef unsigned long long u64

cdef i64 FAR = 1LL << 62


cdef extern from * nogil:
    """
    #include <algorithm>
    #include <queue>
    #include <vector>
    struct KcoreNet {
        // Nodes: groups, then pools, then members.
        int groups = 0, pools = 0, members = 0;
        std::vector<long long> supply;       // groups
        std::vector<int> to, flow;           // arcs; arc ^ 1 is its reverse, which has room for `flow[arc ^ 1]`
        std::vector<long long> cost;
        std::vector<int> out_first, out;     // node -> arcs
        std::vector<long long> potential, distance;
        std::vector<int> level, cursor;
        std::vector<int> load;               // members
        long long load_cost = 0, sink_potential = 0;

        typedef std::pair<long long, int> Entry;
        std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;

        inline bool open(int arc) const { return !(arc & 1) || flow[arc ^ 1] > 0; }
    };
    """
    cppclass Net "KcoreNet":
        int groups
        int pools
        int members
        vector[i64] supply
        vector[int] to
        vector[int] flow
        vector[i64] cost
        vector[int] out_first
        vector[int] out
        vector[i64] potential
        vector[i64] distance
        vector[int] level
        vector[int] cursor
        vector[int] load
        i64 load_cost
        i64 sink_potential
        bint open(int arc)


cdef extern from * nogil:
    """
    static inline void kcore_push(KcoreNet &net, long long key, int node) { net.queue.push({key, node}); }
    static inline bool kcore_pop(KcoreNet &net, long long &key, int &node) {
        if (net.queue.empty()) return false;
        key = net.queue.top().first; node = net.queue.top().second; net.queue.pop();
        return true;
    }
    static inline void kcore_clear(KcoreNet &net) { net.queue = {}; }
    """
    void push "kcore_push"(Net& net, i64 key, int node)
    bint pop "kcore_pop"(Net& net, i64& key, int& node)
    void clear_queue "kcore_clear"(Net& net)


cdef void _arc(Net& net, int source, int target, i64 cost, vector[int]& sources) noexcept nogil:
    net.to.push_back(target)
    net.to.push_back(source)
    net.cost.push_back(cost)
    net.cost.push_back(-cost)
    net.flow.push_back(0)
    net.flow.push_back(0)
    sources.push_back(source)
    sources.push_back(target)


cdef inline i64 _price(Net& net, int node) noexcept nogil:
    """What one more unit costs at a member, the way to it included."""
    return net.potential[node] + (2 * <i64>net.load[node - net.groups - net.pools] + 1) * net.load_cost


cdef i64 _distances(Net& net) noexcept nogil:
    """Dijkstra from all supplies over reduced costs, up to the sink. Returns the sink's distance; FAR when cut off."""
    cdef int node, i, arc, base = net.groups + net.pools, target
    cdef i64 key = 0, found, sink = FAR
    net.distance.assign(base + net.members, FAR)
    clear_queue(net)
    for node in range(net.groups):
        if net.supply[node] > 0:
            # Sources are joined by arcs of cost 0 whose potential stays 0.
            net.distance[node] = -net.potential[node]
            push(net, net.distance[node], node)
    while pop(net, key, node):
        if key > net.distance[node]:
            continue
        if key >= sink:
            break
        if node >= base:
            found = key + _price(net, node) - net.sink_potential
            if found < sink:
                sink = found
        for i in range(net.out_first[node], net.out_first[node + 1]):
            arc = net.out[i]
            if net.open(arc):
                target = net.to[arc]
                found = key + net.cost[arc] + net.potential[node] - net.potential[target]
                if found < net.distance[target]:
                    net.distance[target] = found
                    push(net, found, target)
    return sink


cdef bint _levels(Net& net, vector[int]& queue) noexcept nogil:
    """Breadth first over tight arcs; True when a member that takes a unit at this price is reached."""
    cdef int node, i, arc, target, head = 0, base = net.groups + net.pools
    cdef bint reached = False
    net.level.assign(base + net.members, -1)
    queue.clear()
    for node in range(net.groups):
        if net.supply[node] > 0 and net.potential[node] == 0:
            net.level[node] = 0
            queue.push_back(node)
    while head < <int>queue.size():
        node = queue[head]
        head += 1
        if node >= base and _price(net, node) == net.sink_potential:
            reached = True
        for i in range(net.out_first[node], net.out_first[node + 1]):
            arc = net.out[i]
            target = net.to[arc]
            if net.level[target] < 0 and net.open(arc) and net.cost[arc] + net.potential[node] == net.potential[target]:
                net.level[target] = net.level[node] + 1
                queue.push_back(target)
    return reached


cdef bint _augment(Net& net, int start, vector[int]& path) noexcept nogil:
    """Depth first along levels from one group to a member with room; sends one unit. False when there is no way."""
    cdef int node = start, arc, target, base = net.groups + net.pools
    cdef bint advanced
    path.clear()
    while True:
        if node >= base and _price(net, node) == net.sink_potential:
            net.load[node - base] += 1
            for arc in path:
                if arc & 1:
                    net.flow[arc ^ 1] -= 1
                else:
                    net.flow[arc] += 1
            return True
        advanced = False
        while net.cursor[node] < net.out_first[node + 1]:
            arc = net.out[net.cursor[node]]
            target = net.to[arc]
            if (net.level[target] == net.level[node] + 1 and net.open(arc)
                    and net.cost[arc] + net.potential[node] == net.potential[target]):
                path.push_back(arc)
                node = target
                advanced = True
                break
            net.cursor[node] += 1
        if not advanced:
            if path.empty():
                return False
            net.level[node] = -1
            node = net.to[path.back() ^ 1]
            path.pop_back()
            net.cursor[node] += 1


cdef int _send_all(Net& net) noexcept nogil:
    """Sends every supply; each round raises the price to that of the cheapest way left."""
    cdef vector[int] queue, path
    cdef i64 sink
    cdef int node
    net.potential.assign(net.groups + net.pools + net.members, 0)
    while True:
        sink = _distances(net)
        if sink >= FAR:
            return 0
        for node in range(<int>net.potential.size()):
            net.potential[node] += <i64>net.distance[node] if net.distance[node] < sink else sink
        net.sink_potential += sink
        while _levels(net, queue):
            net.cursor = net.out_first
            for node in range(net.groups):
                while net.supply[node] > 0 and net.level[node] == 0 and _augment(net, node, path):
                    net.supply[node] -= 1


cdef int _pool_of_each(Problem p, bint racks, vector[int]& topic_of, vector[int]& pool_of, vector[int]& sample) noexcept nogil:
    """Numbers the pairs (class of topics, set of racks); `sample` is one partition of each."""
    cdef unordered_map[u64, vector[int]] seen
    cdef vector[int] row, other
    cdef int q, i, j, c, pool
    cdef u64 mix
    pool_of.assign(p.partitions, -1)
    for q in range(p.partitions):
        c = p.class_of[topic_of[q]]
        if c < 0:
            continue
        mix = <u64>c + 0x9E3779B97F4A7C15ULL
        row.clear()
        if racks:
            for i in range(p.rack_first[q], p.rack_first[q + 1]):
                row.push_back(p.rack_list[i])
            sort(row.begin(), row.end())
            for i in row:
                mix = (mix ^ <u64>(i + 1)) * 1099511628211ULL
        pool = -1
        for j in seen[mix]:
            if p.class_of[topic_of[sample[j]]] != c:
                continue
            other.clear()
            if racks:
                for i in range(p.rack_first[sample[j]], p.rack_first[sample[j] + 1]):
                    other.push_back(p.rack_list[i])
                sort(other.begin(), other.end())
            if other == row:
                pool = j
                break
        if pool < 0:
            pool = <int>sample.size()
            sample.push_back(q)
            seen[mix].push_back(pool)
        pool_of[q] = pool
    return 0


cdef inline int _miss(Problem p, bint racks, int member, int partition) noexcept nogil:
    """1 when the member does not read this partition from its own rack."""
    return 1 if racks and not (p.member_rack[member] >= 0 and p.on_rack(partition, p.member_rack[member])) else 0


cdef int _build(Problem p, bint racks, vector[int]& previous, vector[int]& topic_of, vector[int]& pool_of,
                vector[int]& sample, vector[int]& group_of, Net& net) noexcept nogil:
    """Makes the network. Arcs of group g come first: 4 * g to its pool, 4 * g + 2 to its earlier owner if any."""
    cdef vector[int] sources, group_pool, group_owner, cursor
    cdef unordered_map[u64, int] known
    cdef int q, m, g, i, k, c, base
    cdef i64 move = 4 * (<i64>p.members + 2)
    cdef u64 key
    net.load_cost = move * move
    group_of.assign(p.partitions, -1)
    for q in range(p.partitions):
        if pool_of[q] < 0:
            continue
        m = previous[q]
        if m >= 0 and not p.subscribes(m, topic_of[q]):
            m = -1
        key = (<u64>pool_of[q] << 32) | <u64>(m + 1)
        if known.count(key) == 0:
            known[key] = <int>group_pool.size()
            group_pool.push_back(pool_of[q])
            group_owner.push_back(m)
            net.supply.push_back(0)
        group_of[q] = known[key]
        net.supply[group_of[q]] += 1
    net.groups = <int>group_pool.size()
    net.pools = <int>sample.size()
    net.members = p.members
    base = net.groups + net.pools
    for g in range(net.groups):
        m = group_owner[g]
        _arc(net, g, net.groups + group_pool[g], move if m >= 0 else 0, sources)
        # A group without an owner has a second arc to the pool, so that arcs stay where they are looked for.
        if m >= 0:
            _arc(net, g, base + m, _miss(p, racks, m, sample[group_pool[g]]), sources)
        else:
            _arc(net, g, net.groups + group_pool[g], 0, sources)
    for k in range(net.pools):
        c = p.class_of[topic_of[sample[k]]]
        for i in range(p.class_first[c], p.class_first[c + 1]):
            m = p.class_members[i]
            _arc(net, net.groups + k, base + m, _miss(p, racks, m, sample[k]), sources)
    net.out_first.assign(base + net.members + 1, 0)
    for i in range(<int>sources.size()):
        net.out_first[sources[i] + 1] += 1
    for i in range(base + net.members):
        net.out_first[i + 1] += net.out_first[i]
    cursor = net.out_first
    net.out.resize(sources.size())
    for i in range(<int>sources.size()):
        net.out[cursor[sources[i]]] = i
        cursor[sources[i]] += 1
    net.load.assign(p.members, 0)
    return 0


cdef int least_imbalance(Problem p, vector[int]& previous, bint racks, vector[int]& owner) noexcept nogil:
    """Fills `owner` with the optimum. `previous`: earlier owners, -1 for none; those who may not have it are ignored."""
    cdef vector[int] topic_of, pool_of, sample, group_of, stay, pool_arc, left
    cdef Net net
    cdef int q, g, k, m, arc, base
    racks = racks and p.has_racks
    p.ensure_classes()
    p.topic_of_each(topic_of)
    _pool_of_each(p, racks, topic_of, pool_of, sample)
    _build(p, racks, previous, topic_of, pool_of, sample, group_of, net)
    _send_all(net)
    base = net.groups + net.pools
    stay.resize(net.groups)
    for g in range(net.groups):
        arc = 4 * g + 2
        stay[g] = <int>net.flow[arc] if net.to[arc] >= base else 0
    pool_arc.resize(net.pools)
    left.resize(net.pools)
    for k in range(net.pools):
        pool_arc[k] = -1
    arc = 4 * net.groups
    while arc < <int>net.to.size():
        k = net.to[arc ^ 1] - net.groups
        if pool_arc[k] < 0:
            pool_arc[k] = arc
            left[k] = net.flow[arc]
        arc += 2
    owner.assign(p.partitions, -1)
    # Within a group partitions are alike: the first stay, the others go to the pool's takers, by member id.
    for q in range(p.partitions):
        g = group_of[q]
        if g < 0:
            continue
        if stay[g] > 0:
            stay[g] -= 1
            owner[q] = net.to[4 * g + 2] - base
            continue
        k = pool_of[q]
        while left[k] == 0:
            pool_arc[k] += 2
            left[k] = net.flow[pool_arc[k]]
        left[k] -= 1
        owner[q] = net.to[pool_arc[k]] - base
    return 0


cdef int _newest_owners(Problem p, vector[int]& owner) noexcept nogil:
    """Earlier owners; of several claimants the one of the newest generation, then the lowest member id."""
    cdef int m, i, q
    p.owners_of_claims(owner)
    if p.has_owner or not p.has_claims or p.generation.empty():
        return 0
    for m in range(p.members):
        for i in range(p.claim_first[m], p.claim_first[m + 1]):
            q = p.claims[i]
            if p.generation[m] > p.generation[owner[q]]:
                owner[q] = m
    return 0


def run(Problem problem not None, previous=None, bint racks=True):
    """kcore.balanced over arrays: the owner of every partition."""
    cdef vector[int] before, owner
    checked_owner(problem, previous, before)
    with nogil:
        least_imbalance(problem, before, racks, owner)
    return as_array(owner)


def assign(members, topics, previous=None):
    """kcore.balanced over value objects; returns a GroupAssignment."""
    cdef Lowered low = lower(members, topics, OWNED, True, previous)
    cdef vector[int] before, owner
    with nogil:
        _newest_owners(low.problem, before)
        least_imbalance(low.problem, before, True, owner)
    return low.exclusive(owner)
