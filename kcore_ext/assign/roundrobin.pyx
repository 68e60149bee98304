"""Round robin: assigns each partition to the next member, cyclically, that subscribes to its topic."""


from kcore_ext.assign.containers cimport Memory, Scratch, fill, ints
from kcore_ext.assign.lower cimport NOTHING, Lowered, lower
from kcore_ext.assign.problem cimport Problem, new_array
from kcore_ext.assign.result cimport GroupAssignment


cdef int deal(Problem p, Memory* memory, int* owner) except -1 nogil:
    """Assigns each partition to the next subscriber in the ring of members, which continues from topic to topic."""
    cdef int* position
    cdef int* ring_positions
    cdef const int* ordered
    cdef int t, c, i, m, at, q, ring = 0, low, high, middle
    fill(owner, p.partitions, -1)
    if p.members == 0:
        return 0
    p.ensure_classes()
    ordered = p.ordered_members()
    # Positions of a class's members in the ring. They ascend, because the class and the ring are in member order.
    position = ints(memory, p.members)
    for i in range(p.members):
        position[p.order[i] if p.order != NULL else i] = i
    ring_positions = ints(memory, p.class_first[p.classes])
    for i in range(p.class_first[p.classes]):
        ring_positions[i] = position[ordered[i]]
    for t in range(p.topics):
        c = p.class_of[t]
        if c < 0 or p.first[t + 1] == p.first[t]:
            continue
        at = p.class_first[c]
        m = p.class_first[c + 1] - at
        low = 0
        high = m
        while low < high:
            middle = (low + high) >> 1
            if ring_positions[at + middle] < ring:
                low = middle + 1
            else:
                high = middle
        i = low if low < m else 0
        for q in range(p.first[t], p.first[t + 1]):
            owner[q] = ordered[at + i]
            ring = ring_positions[at + i] + 1
            i = i + 1 if i + 1 < m else 0
        if ring == p.members:
            ring = 0
    return 0


def run(Problem problem not None):
    """Runs the assignor `roundrobin` over arrays. Returns the owner of every partition."""
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef int* owner
    out = new_array(problem.partitions, &owner)
    with nogil:
        deal(problem, &scratch.memory, owner)
    return out


def assign(members, topics):
    """Runs the assignor `roundrobin` over value objects; returns a GroupAssignment."""
    cdef Lowered low = lower(members, topics, NOTHING, False, None)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment out = low.exclusive()
    with nogil:
        deal(low.problem, &scratch.memory, out.owner)
    return out
