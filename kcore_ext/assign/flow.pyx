"""The assignor `kcore.balanced`, which computes the most balanced assignment as a minimum-cost flow.

Partitions with the same subscribers, racks and earlier owner form one *group*, whose supply is the number of its
partitions. Groups with the same subscribers and racks have one *pool*. Each partition of a group flows directly to the
earlier owner, or through the pool to any subscriber:

    group --(miss)--> earlier owner          pool --(miss)--> subscriber
    group --(move)--> pool                   subscriber --(2 * load + 1)--> sink, for each additional unit

The j-th partition of a member costs 2 * j - 1, so a member with n partitions costs n * n. The flow of least cost
therefore has the least sum of squared loads among all assignments. Among the assignments with this sum, it has the
fewest moves, and among those, the fewest partitions that are not on their member's rack. One number encodes all three
costs: a move outweighs all rack misses of a simple path, and one unit of load outweighs all moves. The least sum of
squares also minimises the largest load, the sum of pairwise differences, and any other convex measure. The reason is
that the loads of flows form a base polytope, and its least majorized vectors minimise all these measures.

The algorithm sends units along shortest paths (successive shortest paths with potentials). It uses all paths of equal
length at once (Dinic's blocking flows). Every intermediate flow has the least cost for its amount, so the last one is
optimal.
"""


from libc.string cimport memcmp, memcpy, memset

from kcore_ext.assign.containers cimport (
    Index,
    IntVec,
    LongVec,
    Memory,
    Scratch,
    add_key,
    copied,
    fill,
    found,
    found_next,
    i64,
    ints,
    longs,
    mixed,
    nones,
    push,
    push_long,
    reserve,
    sort_ints,
    take,
    u64,
    zeros,
)
from kcore_ext.assign.lower cimport OWNED, Lowered, lower
from kcore_ext.assign.problem cimport Problem, checked_owner, new_array
from kcore_ext.assign.result cimport GroupAssignment

cdef i64 FAR = 1LL << 62


cdef struct Entry:
    i64 key
    int node


cdef struct Net:
    Memory* memory
    # Nodes: groups, then pools, then members.
    int groups
    int pools
    int members
    LongVec supply                 # groups
    IntVec to                      # arcs; arc ^ 1 is its reverse, which has room for `flow[arc ^ 1]`
    IntVec sources  # arcs: the node where they start
    LongVec cost
    int* flow
    int* out_first                 # node -> arcs
    int* out
    i64* potential
    i64* distance
    int* level
    int* cursor
    int* load                      # members
    i64 load_cost
    i64 sink_potential
    Entry* heap  # ordered by distance, then by node number
    int heap_size
    int heap_room
    IntVec queue
    IntVec path


cdef inline bint _open(Net* net, int arc) noexcept nogil:
    return not arc & 1 or net.flow[arc ^ 1] > 0


cdef inline bint _nearer(Entry a, Entry b) noexcept nogil:
    return a.key < b.key if a.key != b.key else a.node < b.node


cdef int _push(Net* net, i64 key, int node) except -1 nogil:
    cdef int k = net.heap_size, parent
    cdef Entry entry
    cdef Entry* wider
    if k == net.heap_room:
        wider = <Entry*>take(net.memory, (2 * <size_t>k + 64) * sizeof(Entry))
        if k:
            memcpy(wider, net.heap, k * sizeof(Entry))
        net.heap = wider
        net.heap_room = 2 * k + 64
    net.heap_size += 1
    entry.key = key
    entry.node = node
    while k > 0:
        parent = (k - 1) >> 1
        if not _nearer(entry, net.heap[parent]):
            break
        net.heap[k] = net.heap[parent]
        k = parent
    net.heap[k] = entry
    return 0


cdef Entry _pop(Net* net) noexcept nogil:
    cdef Entry top = net.heap[0], last
    cdef int k = 0, child, n
    net.heap_size -= 1
    n = net.heap_size
    last = net.heap[n]
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and _nearer(net.heap[child + 1], net.heap[child]):
            child += 1
        if not _nearer(net.heap[child], last):
            break
        net.heap[k] = net.heap[child]
        k = child
    net.heap[k] = last
    return top


cdef int _arc(Net* net, int source, int target, i64 cost) except -1 nogil:
    push(net.memory, &net.to, target)
    push(net.memory, &net.to, source)
    push(net.memory, &net.sources, source)
    push(net.memory, &net.sources, target)
    push_long(net.memory, &net.cost, cost)
    push_long(net.memory, &net.cost, -cost)
    return 0


cdef inline i64 _price(Net* net, int node) noexcept nogil:
    """Returns the cost of one more unit at a member, including the path to it."""
    return net.potential[node] + (2 * <i64>net.load[node - net.groups - net.pools] + 1) * net.load_cost


cdef i64 _distances(Net* net) except -1 nogil:
    """Computes the shortest distances from the supplies, up to the sink (Dijkstra's algorithm over reduced costs).

    Returns the sink's distance, or FAR if the sink cannot be reached.
    """
    cdef Entry nearest
    cdef int node, i, arc, base = net.groups + net.pools, target
    cdef i64 key, there, sink = FAR
    for node in range(base + net.members):
        net.distance[node] = FAR
    net.heap_size = 0
    for node in range(net.groups):
        if net.supply.at[node] > 0:
            # Arcs of cost 0 join the sources; their potential stays 0.
            net.distance[node] = -net.potential[node]
            _push(net, net.distance[node], node)
    while net.heap_size:
        nearest = _pop(net)
        key = nearest.key
        node = nearest.node
        if key > net.distance[node]:
            continue
        if key >= sink:
            break
        if node >= base:
            there = key + _price(net, node) - net.sink_potential
            if there < sink:
                sink = there
        for i in range(net.out_first[node], net.out_first[node + 1]):
            arc = net.out[i]
            if _open(net, arc):
                target = net.to.at[arc]
                there = key + net.cost.at[arc] + net.potential[node] - net.potential[target]
                if there < net.distance[target]:
                    net.distance[target] = there
                    _push(net, there, target)
    return sink


cdef int _levels(Net* net) except -1 nogil:
    """Assigns levels to the nodes on shortest paths. Returns True if a path reaches a member at the current price."""
    cdef int node, i, arc, target, head = 0, base = net.groups + net.pools
    cdef bint reached = False
    fill(net.level, base + net.members, -1)
    # A node is queued once.
    reserve(net.memory, &net.queue, base + net.members)
    net.queue.size = 0
    for node in range(net.groups):
        if net.supply.at[node] > 0 and net.potential[node] == 0:
            net.level[node] = 0
            push(net.memory, &net.queue, node)
    while head < net.queue.size:
        node = net.queue.at[head]
        head += 1
        if node >= base and _price(net, node) == net.sink_potential:
            reached = True
        for i in range(net.out_first[node], net.out_first[node + 1]):
            arc = net.out[i]
            target = net.to.at[arc]
            if (net.level[target] < 0 and _open(net, arc)
                    and net.cost.at[arc] + net.potential[node] == net.potential[target]):
                net.level[target] = net.level[node] + 1
                push(net.memory, &net.queue, target)
    return reached


cdef int _augment(Net* net, int start) except -1 nogil:
    """Searches along levels, depth first, for a path from a group to a member with room, and sends one unit along it.

    Returns False if there is no path.
    """
    cdef int node = start, arc, target, i, base = net.groups + net.pools
    cdef IntVec* path = &net.path
    cdef bint advanced
    path.size = 0
    while True:
        if node >= base and _price(net, node) == net.sink_potential:
            net.load[node - base] += 1
            for i in range(<int>path.size):
                arc = path.at[i]
                if arc & 1:
                    net.flow[arc ^ 1] -= 1
                else:
                    net.flow[arc] += 1
            return True
        advanced = False
        while net.cursor[node] < net.out_first[node + 1]:
            arc = net.out[net.cursor[node]]
            target = net.to.at[arc]
            if (net.level[target] == net.level[node] + 1 and _open(net, arc)
                    and net.cost.at[arc] + net.potential[node] == net.potential[target]):
                push(net.memory, path, arc)
                node = target
                advanced = True
                break
            net.cursor[node] += 1
        if not advanced:
            if path.size == 0:
                return False
            net.level[node] = -1
            path.size -= 1
            node = net.to.at[path.at[path.size] ^ 1]
            net.cursor[node] += 1


cdef int _send_all(Net* net) except -1 nogil:
    """Sends every supply. Each round raises the price to the price of the cheapest remaining path."""
    cdef i64 sink
    cdef int node, nodes = net.groups + net.pools + net.members
    net.potential = longs(net.memory, nodes)
    memset(net.potential, 0, nodes * sizeof(i64))
    net.distance = longs(net.memory, nodes)
    net.level = ints(net.memory, nodes)
    net.cursor = ints(net.memory, nodes)
    while True:
        sink = _distances(net)
        if sink >= FAR:
            return 0
        for node in range(nodes):
            net.potential[node] += net.distance[node] if net.distance[node] < sink else sink
        net.sink_potential += sink
        while _levels(net):
            memcpy(net.cursor, net.out_first, nodes * sizeof(int))
            for node in range(net.groups):
                while net.supply.at[node] > 0 and net.level[node] == 0 and _augment(net, node):
                    net.supply.at[node] -= 1


cdef int _rack_row(Problem p, int partition, int* row) noexcept nogil:
    """Writes a partition's racks to `row`, ascending. Returns the number of racks."""
    cdef int n = p.rack_first[partition + 1] - p.rack_first[partition]
    memcpy(row, p.rack_list + p.rack_first[partition], n * sizeof(int))
    sort_ints(row, n)
    return n


cdef int _most_racks(Problem p) noexcept nogil:
    cdef int q, most = 0
    for q in range(p.partitions):
        most = max(most, p.rack_first[q + 1] - p.rack_first[q])
    return most


cdef int _pool_of_each(Problem p, Memory* memory, bint racks, const int* topic_of, int* pool_of,
                       IntVec* sample) except -1 nogil:
    """Numbers the pools, which are sets of partitions with the same subscribers and the same racks.

    Adds one partition of each pool to `sample`.
    """
    cdef Index seen                # hash of class and racks -> pool
    cdef int width = _most_racks(p) if racks else 0
    cdef int* row = ints(memory, width)
    cdef int* other = ints(memory, width)
    cdef int q, i, c, pool, there, n = 0
    cdef u64 mix
    memset(&seen, 0, sizeof(seen))
    for q in range(p.partitions):
        pool_of[q] = -1
        c = p.class_of[topic_of[q]]
        if c < 0:
            continue
        mix = <u64>c + 0x9E3779B97F4A7C15ULL
        if racks:
            n = _rack_row(p, q, row)
            for i in range(n):
                mix = mixed(mix, <u64>(row[i] + 1))
        pool = found(&seen, mix)
        while pool >= 0:
            there = sample.at[pool]
            if p.class_of[topic_of[there]] == c and (not racks or (
                    _rack_row(p, there, other) == n and memcmp(row, other, n * sizeof(int)) == 0)):
                break
            pool = found_next(&seen, pool)
        if pool < 0:
            pool = add_key(memory, &seen, mix)
            push(memory, sample, q)
        pool_of[q] = pool
    return 0


cdef inline int _miss(Problem p, bint racks, int member, int partition) noexcept nogil:
    """Returns 1 if the member does not read this partition from its own rack."""
    return 1 if racks and not (p.member_rack[member] >= 0 and p.on_rack(partition, p.member_rack[member])) else 0


cdef int _arcs_out(Net* net, int nodes) except -1 nogil:
    """Builds rows node -> outgoing arcs, and clears the flow."""
    cdef int i, arcs = <int>net.sources.size
    cdef int* cursor
    net.out_first = zeros(net.memory, nodes + 1)
    for i in range(arcs):
        net.out_first[net.sources.at[i] + 1] += 1
    for i in range(nodes):
        net.out_first[i + 1] += net.out_first[i]
    cursor = copied(net.memory, net.out_first, nodes)
    net.out = ints(net.memory, arcs)
    for i in range(arcs):
        net.out[cursor[net.sources.at[i]]] = i
        cursor[net.sources.at[i]] += 1
    net.flow = zeros(net.memory, arcs)
    return 0


cdef int _groups(Problem p, const int* previous, const int* topic_of, const int* pool_of, int* group_of,
                 IntVec* group_pool, IntVec* group_owner, Net* net) except -1 nogil:
    """Numbers the pairs (pool, earlier owner) and counts the supply of each."""
    cdef Index known
    cdef int q, m, g
    cdef u64 key
    memset(&known, 0, sizeof(known))
    for q in range(p.partitions):
        group_of[q] = -1
        if pool_of[q] < 0:
            continue
        m = previous[q]
        if m >= 0 and not p.subscribes(m, topic_of[q]):
            m = -1
        key = (<u64>pool_of[q] << 32) | <u64>(m + 1)
        g = found(&known, key)
        if g < 0:
            g = add_key(net.memory, &known, key)
            push(net.memory, group_pool, pool_of[q])
            push(net.memory, group_owner, m)
            push_long(net.memory, &net.supply, 0)
        group_of[q] = g
        net.supply.at[g] += 1
    return 0


cdef int _build(Problem p, bint racks, const int* previous, const int* topic_of, const int* pool_of,
                const IntVec* sample, int* group_of, Net* net) except -1 nogil:
    """Builds the network. Arcs of group g come first: 4 * g to its pool, 4 * g + 2 to its earlier owner if any."""
    cdef IntVec group_pool = IntVec(NULL, 0, 0), group_owner = IntVec(NULL, 0, 0)
    cdef int m, g, i, k, c, base
    cdef i64 move = 4 * (<i64>p.members + 2)
    net.load_cost = move * move
    _groups(p, previous, topic_of, pool_of, group_of, &group_pool, &group_owner, net)
    net.groups = <int>group_pool.size
    net.pools = <int>sample.size
    net.members = p.members
    base = net.groups + net.pools
    for g in range(net.groups):
        m = group_owner.at[g]
        _arc(net, g, net.groups + group_pool.at[g], move if m >= 0 else 0)
        # A group without an owner has a second arc to the pool, so that arc numbers stay computable.
        if m >= 0:
            _arc(net, g, base + m, _miss(p, racks, m, sample.at[group_pool.at[g]]))
        else:
            _arc(net, g, net.groups + group_pool.at[g], 0)
    for k in range(net.pools):
        c = p.class_of[topic_of[sample.at[k]]]
        for i in range(p.class_first[c], p.class_first[c + 1]):
            m = p.class_members[i]
            _arc(net, net.groups + k, base + m, _miss(p, racks, m, sample.at[k]))
    net.load = zeros(net.memory, p.members)
    return _arcs_out(net, base + net.members)


cdef int _read_flow(Problem p, Net* net, const int* group_of, const int* pool_of, int* owner) except -1 nogil:
    """Reads the assignment from the flow. The first partitions of a group stay with their owner. The others go to the
    receivers of the pool, in the order of the member ids.
    """
    cdef int q, g, k, arc, base = net.groups + net.pools
    cdef int* stay = ints(net.memory, net.groups)
    cdef int* pool_arc = nones(net.memory, net.pools)
    cdef int* left = zeros(net.memory, net.pools)
    for g in range(net.groups):
        arc = 4 * g + 2
        stay[g] = net.flow[arc] if net.to.at[arc] >= base else 0
    for arc in range(4 * net.groups, <int>net.to.size, 2):
        k = net.to.at[arc ^ 1] - net.groups
        if pool_arc[k] < 0:
            pool_arc[k] = arc
            left[k] = net.flow[arc]
    for q in range(p.partitions):
        owner[q] = -1
        g = group_of[q]
        if g < 0:
            continue
        if stay[g] > 0:
            stay[g] -= 1
            owner[q] = net.to.at[4 * g + 2] - base
            continue
        k = pool_of[q]
        while left[k] == 0:
            pool_arc[k] += 2
            left[k] = net.flow[pool_arc[k]]
        left[k] -= 1
        owner[q] = net.to.at[pool_arc[k]] - base
    return 0


cdef int least_imbalance(Problem p, Memory* memory, const int* previous, bint racks, int* owner) except -1 nogil:
    """Fills `owner` with the owners in the optimal assignment. `previous` has the earlier owners, -1 for none; earlier
    owners that may not own the partition are ignored.

    `previous` and `owner` may be the same array, because `previous` is read before `owner` is written.
    """
    cdef int* topic_of = ints(memory, p.partitions)
    cdef int* pool_of = ints(memory, p.partitions)
    cdef int* group_of = ints(memory, p.partitions)
    cdef IntVec sample = IntVec(NULL, 0, 0)
    cdef Net net
    memset(&net, 0, sizeof(net))
    net.memory = memory
    racks = racks and p.has_racks
    p.ensure_classes()
    p.topic_of_each(topic_of)
    _pool_of_each(p, memory, racks, topic_of, pool_of, &sample)
    _build(p, racks, previous, topic_of, pool_of, &sample, group_of, &net)
    _send_all(&net)
    return _read_flow(p, &net, group_of, pool_of, owner)


cdef int _newest_owners(Problem p, int* owner) noexcept nogil:
    """Determines earlier owners; of several claimants, the newest generation wins, then the lowest member id."""
    cdef int m, i, q
    p.owners_of_claims(owner)
    if p.has_owner or not p.has_claims or p.generation == NULL:
        return 0
    for m in range(p.members):
        for i in range(p.claim_first[m], p.claim_first[m + 1]):
            q = p.claims.at[i]
            if p.generation[m] > p.generation[owner[q]]:
                owner[q] = m
    return 0


def run(Problem problem not None, previous=None, bint racks=True):
    """Runs the assignor `kcore.balanced` over arrays. Returns the owner of every partition."""
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef int* owner
    out = new_array(problem.partitions, &owner)
    checked_owner(problem, previous, owner)
    with nogil:
        least_imbalance(problem, &scratch.memory, owner, racks, owner)
    return out


def assign(members, topics, previous=None):
    """Runs the assignor `kcore.balanced` over value objects; returns a GroupAssignment."""
    cdef Lowered low = lower(members, topics, OWNED, True, previous)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment out = low.exclusive()
    with nogil:
        _newest_owners(low.problem, out.owner)
        least_imbalance(low.problem, &scratch.memory, out.owner, True, out.owner)
    return out
