"""Tournament trees that find the least loaded subscriber of a topic."""

from kcore_ext.assign.containers cimport Memory, first_of, i64, second_of
from kcore_ext.assign.problem cimport Problem


cdef struct Seat:
    i64* tree                      # of the cell
    int leaf


cdef struct Loads:
    # A class of topics is split by rack into cells; each cell is a tournament of its members, pairs (load, index), in
    # which the least wins. In a cell of n members, index 1 has the winner, and the indices n to 2 n - 1 have the
    # members.
    int* load                      # members
    int* class_cell_first          # classes + 1
    int* cell_rack                 # -1: no rack
    i64** tree                     # cells
    int* seat_first                # members + 1
    Seat* seats


cdef inline void change_load(Loads* loads, int member, int change) noexcept nogil:
    """Adds `change` to a member's load, and updates the tournaments in which the member takes part."""
    cdef int s, i
    cdef i64 winner
    cdef i64* tree
    loads.load[member] += change
    for s in range(loads.seat_first[member], loads.seat_first[member + 1]):
        tree = loads.seats[s].tree
        i = loads.seats[s].leaf
        # The load is the upper half.
        tree[i] += <i64>change << 32
        i >>= 1
        while i > 0:
            winner = tree[2 * i + 1] if tree[2 * i + 1] < tree[2 * i] else tree[2 * i]
            if tree[i] == winner:
                break
            tree[i] = winner
            i >>= 1


cdef inline i64 least_of_cell(Loads* loads, int cell) noexcept nogil:
    return loads.tree[cell][1]


cdef inline i64 least_of_class(Loads* loads, int c) noexcept nogil:
    """Returns the least loaded subscriber of a class of topics, as a pair (load, index of the member)."""
    cdef int cell = loads.class_cell_first[c]
    cdef i64 best = loads.tree[cell][1]
    for cell in range(cell + 1, loads.class_cell_first[c + 1]):
        if loads.tree[cell][1] < best:
            best = loads.tree[cell][1]
    return best


cdef int seat(Problem p, Memory* memory, bint by_rack, Loads* loads) except -1 nogil
