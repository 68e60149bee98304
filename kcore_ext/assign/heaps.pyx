"""The least loaded subscriber of a topic, kept live while loads change."""

from kcore_ext.assign.containers cimport IntVec, Memory, copied, ints, nones, push, zeros
from kcore_ext.assign.problem cimport Problem


cdef int _cells(Problem p, Memory* memory, bint by_rack, Loads* loads, int* member_cells) except -1 nogil:
    """Splits the classes into cells; `member_cells` is the cell of every entry of `class_members`."""
    cdef int* cell_of_rack = nones(memory, p.racks + 1)
    cdef IntVec racks = IntVec(NULL, 0, 0), sizes = IntVec(NULL, 0, 0)
    cdef int c, i, m, r
    loads.class_cell_first = ints(memory, p.classes + 1)
    loads.class_cell_first[0] = 0
    for c in range(p.classes):
        for i in range(p.class_first[c], p.class_first[c + 1]):
            m = p.class_members[i]
            loads.seat_first[m + 1] += 1
            r = p.member_rack[m] + 1 if by_rack else 0
            if cell_of_rack[r] < loads.class_cell_first[c]:
                cell_of_rack[r] = <int>racks.size
                push(memory, &racks, r - 1)
                push(memory, &sizes, 0)
            sizes.at[cell_of_rack[r]] += 1
            member_cells[i] = cell_of_rack[r]
        loads.class_cell_first[c + 1] = <int>racks.size
    loads.cell_rack = racks.at
    loads.cell_size = sizes.at
    return 0


cdef int seat(Problem p, Memory* memory, bint by_rack, Loads* loads) except -1 nogil:
    """Seats every member in the cells of its classes and plays all tournaments; `loads.load` is set already."""
    cdef int i, m, cell, leaf, cells, slot = 0
    cdef int* member_cells
    cdef int* cursor
    cdef int* seated
    cdef int* tree
    p.ensure_classes()
    loads.seat_first = zeros(memory, p.members + 1)
    member_cells = ints(memory, p.class_first[p.classes])
    _cells(p, memory, by_rack, loads, member_cells)
    cells = loads.class_cell_first[p.classes]
    loads.cell_at = ints(memory, cells)
    for cell in range(cells):
        loads.cell_at[cell] = slot
        # A cell of one keeps its member at the root's place.
        slot += 2 * loads.cell_size[cell]
    loads.tree = zeros(memory, slot)
    for m in range(p.members):
        loads.seat_first[m + 1] += loads.seat_first[m]
    loads.seat_cell = ints(memory, loads.seat_first[p.members])
    loads.seat_leaf = ints(memory, loads.seat_first[p.members])
    cursor = copied(memory, loads.seat_first, p.members)
    seated = zeros(memory, cells)
    for i in range(p.class_first[p.classes]):
        m = p.class_members[i]
        cell = member_cells[i]
        leaf = loads.cell_size[cell] + seated[cell]
        seated[cell] += 1
        loads.tree[loads.cell_at[cell] + leaf] = m
        loads.seat_cell[cursor[m]] = cell
        loads.seat_leaf[cursor[m]] = leaf
        cursor[m] += 1
    for cell in range(cells):
        tree = loads.tree + loads.cell_at[cell]
        for i in range(loads.cell_size[cell] - 1, 0, -1):
            tree[i] = tree[2 * i + 1] if is_less(loads, tree[2 * i + 1], tree[2 * i]) else tree[2 * i]
    return 0
