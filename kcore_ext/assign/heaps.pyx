"""Tournament trees that find the least loaded subscriber of a topic."""

from kcore_ext.assign.containers cimport IntVec, Memory, i64, ints, longs, nones, pair, push, take, zeros
from kcore_ext.assign.problem cimport Problem


cdef int _cells(Problem p, Memory* memory, Loads* loads, int* member_cells, IntVec* sizes) except -1 nogil:
    """Splits the subscribers of each class of topics by rack into cells, which are the sets of a tournament.

    A class consists of topics with the same subscribers. `member_cells[i]` becomes the cell of `class_members[i]`.
    """
    cdef int* cell_of_rack = nones(memory, p.racks + 1)
    cdef IntVec racks = IntVec(NULL, 0, 0)
    cdef int c, i, r
    for c in range(p.classes):
        for i in range(p.class_first[c], p.class_first[c + 1]):
            r = p.member_rack[p.class_members[i]] + 1
            if cell_of_rack[r] < loads.class_cell_first[c]:
                cell_of_rack[r] = <int>racks.size
                push(memory, &racks, r - 1)
                push(memory, sizes, 0)
            sizes.at[cell_of_rack[r]] += 1
            member_cells[i] = cell_of_rack[r]
        loads.class_cell_first[c + 1] = <int>racks.size
    loads.cell_rack = racks.at
    return 0


cdef int _whole_classes(Problem p, Memory* memory, Loads* loads, IntVec* sizes) except -1 nogil:
    """Puts all subscribers of a class of topics into one cell, for groups without racks."""
    cdef int c
    loads.cell_rack = nones(memory, p.classes)
    for c in range(p.classes):
        push(memory, sizes, p.class_first[c + 1] - p.class_first[c])
        loads.class_cell_first[c + 1] = c + 1
    return 0


cdef int seat(Problem p, Memory* memory, bint by_rack, Loads* loads) except -1 nogil:
    """Builds the tournament trees: adds every member to its cells, and computes the winner of each cell.

    The caller has set `loads.load`. A cell contains the subscribers of a class of topics; with `by_rack`, only those on
    one rack.
    """
    cdef int c, i, m, k, cell, cells, seats
    cdef int* member_cells = NULL
    cdef int* cursor
    cdef int* leaves
    cdef i64* tree
    cdef Seat* taken
    cdef IntVec sizes = IntVec(NULL, 0, 0)
    p.ensure_classes()
    seats = p.class_first[p.classes]
    loads.class_cell_first = zeros(memory, p.classes + 1)
    if by_rack:
        member_cells = ints(memory, seats)
        _cells(p, memory, loads, member_cells, &sizes)
    else:
        _whole_classes(p, memory, loads, &sizes)
    cells = loads.class_cell_first[p.classes]
    loads.tree = <i64**>take(memory, cells * sizeof(void*))
    # In a cell with one member, the winner's index is also the member's index.
    tree = longs(memory, 2 * seats)
    leaves = ints(memory, cells)
    for cell in range(cells):
        loads.tree[cell] = tree
        tree += 2 * sizes.at[cell]
        leaves[cell] = sizes.at[cell]
    loads.seat_first = ints(memory, p.members + 1)
    cursor = ints(memory, p.members)
    loads.seat_first[0] = 0
    for m in range(p.members):
        k = p.kind_of[m]
        cursor[m] = loads.seat_first[m]
        loads.seat_first[m + 1] = cursor[m] + p.kind_class_first[k + 1] - p.kind_class_first[k]
    loads.seats = <Seat*>take(memory, seats * sizeof(Seat))
    for c in range(p.classes):
        for i in range(p.class_first[c], p.class_first[c + 1]):
            m = p.class_members[i]
            cell = member_cells[i] if by_rack else c
            taken = &loads.seats[cursor[m]]
            cursor[m] += 1
            taken.tree = loads.tree[cell]
            taken.leaf = leaves[cell]
            leaves[cell] += 1
            taken.tree[taken.leaf] = pair(loads.load[m], m)
    for cell in range(cells):
        tree = loads.tree[cell]
        for i in range(sizes.at[cell] - 1, 0, -1):
            tree[i] = tree[2 * i + 1] if tree[2 * i + 1] < tree[2 * i] else tree[2 * i]
    return 0
