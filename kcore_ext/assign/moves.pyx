"""A record of the partition moves in one run of the sticky assignor for unequal subscriptions.

A partition may be about to move from B to A after another partition of the topic has moved from A to B. Then the lowest
partition that has moved from A to B moves instead (Kafka's PartitionMovements). This requires sets of partitions from
which the lowest and any other element can be removed. A partition is in at most one set, so the sets are pairing heaps
whose links are arrays by partition.
"""

from libc.string cimport memset

from kcore_ext.assign.containers cimport Memory, add_key, drop_number, found, found_next, ints, nones, u64


cdef inline u64 _hash(int topic, int source, int target) noexcept nogil:
    cdef u64 mix = <u64><unsigned>topic * 0x9E3779B97F4A7C15ULL
    mix = (mix ^ <u64><unsigned>source) * 0xC2B2AE3D27D4EB4FULL
    mix = (mix ^ <u64><unsigned>target) * 0x165667B19E3779F9ULL
    return mix ^ (mix >> 31)


cdef int start_moves(Moves* moves, Memory* memory, int partitions) except -1 nogil:
    """Initialises an empty record of moves."""
    memset(moves, 0, sizeof(Moves))
    moves.memory = memory
    moves.partitions = partitions
    moves.source = nones(memory, partitions)
    moves.target = nones(memory, partitions)
    return 0


cdef int _open(Moves* moves) except -1 nogil:
    """Allocates the arrays of the sets, which many runs never need."""
    cdef int n = moves.partitions
    moves.set_topic = ints(moves.memory, n)
    moves.root = ints(moves.memory, n)
    moves.child = nones(moves.memory, n)
    moves.next = nones(moves.memory, n)
    moves.before = nones(moves.memory, n)
    return 0


cdef int _set_of(Moves* moves, int topic, int source, int target) noexcept nogil:
    """Returns the number of the set of a topic's partitions that moved from `source` to `target`; -1 without such a set."""
    cdef int number = found(&moves.sets, _hash(topic, source, target)), least
    while number >= 0:
        least = moves.root[number]
        if moves.set_topic[number] == topic and moves.source[least] == source and moves.target[least] == target:
            return number
        number = found_next(&moves.sets, number)
    return -1


cdef int _meld(Moves* moves, int a, int b) noexcept nogil:
    """Joins two heaps; the roots have no neighbours."""
    if a < 0 or b < 0:
        return b if a < 0 else a
    if b < a:
        a, b = b, a
    moves.next[b] = moves.child[a]
    if moves.child[a] >= 0:
        moves.before[moves.child[a]] = b
    moves.before[b] = a
    moves.child[a] = b
    return a


cdef int _pairs(Moves* moves, int node) noexcept nogil:
    """Joins a list of neighbouring heaps: first in pairs from the left, then all from the right."""
    cdef int left, right, rest, joined = -1, out = -1
    while node >= 0:
        left = node
        right = moves.next[left]
        rest = moves.next[right] if right >= 0 else -1
        moves.next[left] = moves.before[left] = -1
        if right >= 0:
            moves.next[right] = moves.before[right] = -1
        left = _meld(moves, left, right)
        moves.next[left] = joined
        joined = left
        node = rest
    while joined >= 0:
        left = joined
        joined = moves.next[left]
        moves.next[left] = -1
        out = _meld(moves, out, left)
    return out


cdef void _remove(Moves* moves, int number, int partition) noexcept nogil:
    """Removes a partition from its set; drops an empty set."""
    cdef int parent = moves.before[partition], rest
    if partition != moves.root[number]:
        if moves.child[parent] == partition:
            moves.child[parent] = moves.next[partition]
        else:
            moves.next[parent] = moves.next[partition]
        if moves.next[partition] >= 0:
            moves.before[moves.next[partition]] = parent
    rest = _pairs(moves, moves.child[partition])
    if partition != moves.root[number]:
        rest = _meld(moves, moves.root[number], rest)
    moves.child[partition] = moves.next[partition] = moves.before[partition] = -1
    moves.root[number] = rest
    if rest < 0:
        drop_number(&moves.sets, number)
        moves.live -= 1


cdef int actual_partition(Moves* moves, int topic, int partition, int source, int target) noexcept nogil:
    """Returns the partition to move in place of `partition`: a partition that moved in the opposite direction, else
    `partition`.
    """
    cdef int number
    if moves.live == 0:
        return partition
    if moves.source[partition] >= 0:
        source = moves.source[partition]
    number = _set_of(moves, topic, target, source)
    return partition if number < 0 else moves.root[number]


cdef int record_move(Moves* moves, int topic, int partition, int source, int target) except -1 nogil:
    """Records a move. If a partition moves again, its first source stays recorded."""
    cdef int number
    if moves.child == NULL:
        _open(moves)
    if moves.source[partition] >= 0:
        number = _set_of(moves, topic, moves.source[partition], moves.target[partition])
        source = moves.source[partition]
        _remove(moves, number, partition)
        moves.source[partition] = moves.target[partition] = -1
        if source == target:
            return 0
    number = _set_of(moves, topic, source, target)
    moves.source[partition] = source
    moves.target[partition] = target
    if number < 0:
        number = add_key(moves.memory, &moves.sets, _hash(topic, source, target))
        moves.set_topic[number] = topic
        moves.root[number] = partition
        moves.live += 1
    else:
        moves.root[number] = _meld(moves, moves.root[number], partition)
    return 0
