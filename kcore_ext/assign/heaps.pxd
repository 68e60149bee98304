"""The least loaded subscriber of a topic, kept live while loads change."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.problem cimport Problem


cdef struct Loads:
    # A class of topics is split by rack into cells; each cell is a tournament of its members by (load, index).
    int* load                      # members
    int* class_cell_first          # classes + 1
    int* cell_rack                 # -1: no rack
    int* cell_at                   # start of the cell's tree (2 * size entries)
    int* cell_size
    int* tree                      # members
    int* seat_first                # members + 1
    int* seat_cell
    int* seat_leaf


cdef inline bint is_less(Loads* loads, int a, int b) noexcept nogil:
    return loads.load[a] < loads.load[b] if loads.load[a] != loads.load[b] else a < b


cdef inline void change_load(Loads* loads, int member, int change) noexcept nogil:
    """Adds to a member's load and plays its matches again."""
    cdef int s, i, winner
    cdef int* tree
    loads.load[member] += change
    for s in range(loads.seat_first[member], loads.seat_first[member + 1]):
        tree = loads.tree + loads.cell_at[loads.seat_cell[s]]
        i = loads.seat_leaf[s] >> 1
        while i > 0:
            winner = tree[2 * i + 1] if is_less(loads, tree[2 * i + 1], tree[2 * i]) else tree[2 * i]
            if tree[i] == winner and winner != member:
                break
            tree[i] = winner
            i >>= 1


cdef inline int least_of_cell(Loads* loads, int cell) noexcept nogil:
    return loads.tree[loads.cell_at[cell] + 1]


cdef inline int least_of_class(Loads* loads, int c) noexcept nogil:
    cdef int cell, m, best = -1
    for cell in range(loads.class_cell_first[c], loads.class_cell_first[c + 1]):
        m = least_of_cell(loads, cell)
        if best < 0 or is_less(loads, m, best):
            best = m
    return best


cdef int seat(Problem p, Memory* memory, bint by_rack, Loads* loads) except -1 nogil
