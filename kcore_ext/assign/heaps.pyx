# distutils: language = c++
"""The least loaded subscriber of a topic, kept live while loads change."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem


cdef int seat(Problem p, bint by_rack, Loads& loads) noexcept nogil:
    """Seats every member in the cells of its classes and plays all tournaments; `loads.load` is set already."""
    cdef vector[int] cell_of_rack, cursor, member_cells
    cdef int c, i, m, r, cell, slot
    p.ensure_classes()
    loads.class_cell_first.assign(1, 0)
    loads.seat_first.assign(p.members + 1, 0)
    cell_of_rack.assign(p.racks + 1, -1)
    for c in range(p.classes):
        for i in range(p.class_first[c], p.class_first[c + 1]):
            m = p.class_members[i]
            loads.seat_first[m + 1] += 1
            r = p.member_rack[m] + 1 if by_rack else 0
            if cell_of_rack[r] < loads.class_cell_first[c]:
                cell_of_rack[r] = <int>loads.cell_rack.size()
                loads.cell_rack.push_back(r - 1)
                loads.cell_size.push_back(0)
            loads.cell_size[cell_of_rack[r]] += 1
            member_cells.push_back(cell_of_rack[r])
        loads.class_cell_first.push_back(<int>loads.cell_rack.size())
    slot = 0
    for cell in range(<int>loads.cell_size.size()):
        loads.cell_at.push_back(slot)
        # A cell of one keeps its member at the root's place.
        slot += 2 * loads.cell_size[cell]
    loads.tree.assign(slot, 0)
    for m in range(p.members):
        loads.seat_first[m + 1] += loads.seat_first[m]
    loads.seat_cell.resize(loads.seat_first[p.members])
    loads.seat_leaf.resize(loads.seat_first[p.members])
    cursor = loads.seat_first
    loads.cell_size.assign(loads.cell_size.size(), 0)
    cdef vector[int] sizes
    sizes.resize(loads.cell_at.size())
    for cell in range(<int>loads.cell_at.size()):
        sizes[cell] = ((<int>loads.cell_at[cell + 1] if cell + 1 < <int>loads.cell_at.size() else slot) - loads.cell_at[cell]) // 2
    for i in range(<int>member_cells.size()):
        m = p.class_members[i]
        cell = member_cells[i]
        r = sizes[cell] + loads.cell_size[cell]
        loads.cell_size[cell] += 1
        loads.tree[loads.cell_at[cell] + r] = m
        loads.seat_cell[cursor[m]] = cell
        loads.seat_leaf[cursor[m]] = r
        cursor[m] += 1
    for cell in range(<int>loads.cell_at.size()):
        loads.build(cell)
    return 0
