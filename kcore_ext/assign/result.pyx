"""Assignments as value objects that store arrays. They create a member's Python objects at the first access."""

from collections.abc import Mapping

from cpython.dict cimport PyDict_SetItem, PyDict_Update
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_FromLong
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM

from kcore_ext.assign.containers cimport IntVec, Memory, Scratch, copied, nones, push, zeros
from kcore_ext.assign.ids cimport same_text
from kcore_ext.assign.model cimport Topics, as_number
from kcore_ext.assign.problem cimport as_array
from kcore_ext.assign.rows cimport AssignedRows, same_row, translation

from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.assign.ids import id_order


cdef extern from *:
    # Returns a dict with room for n entries, or an empty dict if this CPython cannot (Cython's preamble decides).
    dict presized_dict "__Pyx_PyDict_NewPresized"(Py_ssize_t n)
    int PyGC_Enable()
    int PyGC_Disable()
    void PyObject_GC_UnTrack(object op)


cdef inline bint same_id(list some, int i, list others, int j) noexcept:
    return same_text(PyList_GET_ITEM(some, i), PyList_GET_ITEM(others, j))


# Many topics have the same partition numbers and short runs of numbers. These are shared objects, up to a limit.
cdef enum:
    SHARED_NUMBERS = 16384
    SHARED_RUNS = 4096
    LONGEST_RUN = 64
cdef list _numbers = list(range(SHARED_NUMBERS))
cdef list _runs = [None] * SHARED_RUNS
cdef int _run_start[SHARED_RUNS]
cdef int _run_count[SHARED_RUNS]  # 0: empty


cdef tuple _new_numbers(const int* parts, int count, int base):
    cdef tuple out = PyTuple_New(count)
    cdef object number
    cdef int i, p
    for i in range(count):
        p = parts[i] - base
        number = _numbers[p] if p < SHARED_NUMBERS else PyLong_FromLong(p)
        Py_INCREF(number)
        PyTuple_SET_ITEM(out, i, number)
    # The tuple contains only ints, so the garbage collector need not track it. The collector would untrack the tuple
    # later, but until then every collection would scan it.
    PyObject_GC_UnTrack(out)
    return out


cdef inline tuple _numbers_of(const int* parts, int count, int base):
    """Returns ascending partition numbers as a tuple; short runs without gaps are shared tuples."""
    cdef int start = parts[0] - base, slot
    cdef tuple out
    if count > LONGEST_RUN or parts[count - 1] - parts[0] != count - 1:
        return _new_numbers(parts, count, base)
    slot = (start + 67 * (count - 1)) & (SHARED_RUNS - 1)
    if _run_start[slot] == start and _run_count[slot] == count:
        return <tuple>_runs[slot]
    out = _new_numbers(parts, count, base)
    _run_start[slot] = start
    _run_count[slot] = count
    _runs[slot] = out
    return out


cdef tuple _sorted_numbers(numbers):
    return tuple(sorted(set(numbers)))


cdef class MemberAssignment(dict):
    """The assignment of one member: an immutable dict topic -> partitions (ascending tuple), without empty topics.

    If the partitions of a member stay the same, successive results have the same object for the member. `dict(row)`
    makes a mutable copy; methods that would change the row itself raise TypeError.
    """

    def __init__(self, partitions=None):
        if len(self):
            _refuse()
        if partitions:
            for topic, numbers in partitions.items():
                numbers = _sorted_numbers(numbers)
                if numbers:
                    PyDict_SetItem(self, topic, numbers)

    @property
    def partitions(self):
        """All partitions as a tuple of TopicPartition, by topic and number."""
        return tuple([TopicPartition(topic, number) for topic, numbers in self.items() for number in numbers])

    @property
    def size(self):
        """The number of partitions."""
        cdef int total = 0
        for numbers in self.values():
            total += len(numbers)
        return total

    def __eq__(self, other):
        if type(other) is not MemberAssignment:
            if not isinstance(other, Mapping):
                return NotImplemented
            other = {topic: _sorted_numbers(numbers) for topic, numbers in other.items() if numbers}
        return dict.__eq__(self, other)

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __repr__(self):
        return f"MemberAssignment({dict(self)!r})"

    def __reduce__(self):
        return MemberAssignment, (dict(self),)

    def __setitem__(self, topic, numbers):
        _refuse()

    def __delitem__(self, topic):
        _refuse()

    def __ior__(self, other):
        _refuse()

    def clear(self):
        """Raises TypeError."""
        _refuse()

    def pop(self, *args):
        """Raises TypeError."""
        _refuse()

    def popitem(self):
        """Raises TypeError."""
        _refuse()

    def setdefault(self, *args):
        """Raises TypeError."""
        _refuse()

    def update(self, *args, **changes):
        """Raises TypeError."""
        _refuse()


cdef int _refuse() except -1:
    raise TypeError("a MemberAssignment is immutable; dict(row) makes a mutable copy")


# Most members of a large group may have no partitions.
cdef MemberAssignment _nothing = MemberAssignment()


cdef class GroupAssignment(AssignedRows):
    """The assignment of a group: an immutable mapping member id -> MemberAssignment, by member id.

    The mapping has every member, also members without partitions. The data are arrays; a member's mapping is built at
    its first access. As the `previous` of a server-side assignor, the assignment needs no conversion, and members with
    unchanged partitions keep their mappings. A result therefore refers to the previous assignment until all its rows
    are built or the next assignment is made from it.
    """

    cdef MemberAssignment made_row(self, int member):
        """Builds the mapping topic -> partitions of one member. The caller has called `need_rows`."""
        cdef const int* rows = self.rows
        cdef int i = self.row_first[member], j, end = self.row_first[member + 1], t, topics = 0
        cdef MemberAssignment out
        cdef dict values
        if i == end:
            return _nothing
        # Consecutive members often have consecutive partitions.
        t = self.topic_at(rows[i], self.hint if self.first[self.hint] <= rows[i] else 0)
        self.hint = t
        if self.identity and rows[end - 1] - rows[i] == end - i - 1 and rows[end - 1] < self.first[t + 1]:
            return self.run(t, rows + i, end - i)
        out = MemberAssignment.__new__(MemberAssignment)
        values = out
        if end - i > 5:
            # A new dict may have too little room for the topics. Fill a template instead: its copy gets a table of the
            # right size at once.
            topics = 1
            for j in range(i + 1, end):
                if rows[j] >= self.first[t + 1]:
                    t = self.topic_at(rows[j], t)
                    topics += 1
            if topics > 5:
                values = presized_dict(topics)
            t = self.hint
        while i < end:
            t = self.topic_at(rows[i], t)
            j = i + 1
            while j < end and rows[j] < self.first[t + 1]:
                j += 1
            PyDict_SetItem(values, <object>self.names[t], _numbers_of(rows + i, j - i, self.first[t]))
            i = j
        if topics > 5:
            PyDict_Update(out, values)
        # Like the tuples, the dict cannot be part of a reference cycle.
        PyObject_GC_UnTrack(out)
        return out

    cdef MemberAssignment run(self, int topic, const int* rows, int count):
        """Returns the row of consecutive partitions of a topic. Reuses a row that an earlier assignment has built."""
        cdef Topics topics = self.topics
        cdef MemberAssignment out
        cdef int slot
        if topics.runs is None:
            topics.open_runs()
        slot = rows[0] & topics.run_mask
        if topics.run_start[slot] == rows[0] and topics.run_count[slot] == count:
            return <MemberAssignment>topics.runs[slot]
        out = MemberAssignment.__new__(MemberAssignment)
        PyDict_SetItem(out, <object>self.names[topic], _numbers_of(rows, count, self.first[topic]))
        PyObject_GC_UnTrack(out)
        topics.run_start[slot] = rows[0]
        topics.run_count[slot] = count
        topics.runs[slot] = out
        return out

    cdef MemberAssignment row(self, int member):
        """Returns the mapping topic -> partitions of one member, which is built only once."""
        cdef MemberAssignment out = None
        cdef int q
        if self.all_built is not None:
            return <MemberAssignment>self.all_built[member]
        if self.built is None:
            self.built = [None] * len(self.ids)
        found = self.built[member]
        if found is not None:
            return <MemberAssignment>found
        self.need_rows()
        if self.before is not None and self.translated():
            q = self.before.position(self.ids[member])
            if q >= 0 and same_row(self, member, self.before, q, self.table):
                out = self.before.row(q)
        if out is None:
            out = self.made_row(member)
        self.built[member] = out
        return out

    cdef bint translated(self) except -1:
        """Builds the rows of the previous assignment, and the translation of its partition numbers, if missing."""
        self.before.need_rows()
        if self.table == NULL:
            self.table = translation(self.before, self, &self.memory)
        return True

    cdef tuple all_rows(self):
        """Builds the rows of all members that are not built yet; returns all rows."""
        cdef int m, n = <int>len(self.ids)
        cdef int* was = NULL
        cdef Scratch scratch
        cdef tuple rows
        cdef bint collecting
        if self.all_built is not None:
            return self.all_built
        # No object that is made here can be garbage before the return, so garbage collections would only cost time.
        collecting = PyGC_Disable()
        try:
            if self.before is not None:
                scratch = Scratch.__new__(Scratch)
                was = nones(&scratch.memory, n)
                self.match_rows(was, &scratch.memory)
            self.need_rows()
            rows = PyTuple_New(n)
            for m in range(n):
                row = self.shared_row(m, -1 if was == NULL else was[m])
                Py_INCREF(row)
                PyTuple_SET_ITEM(rows, m, row)
        finally:
            if collecting:
                PyGC_Enable()
        self.all_built = rows
        self.built = self.before = None
        return rows

    cdef inline MemberAssignment shared_row(self, int m, int q):
        """Returns the row of member `m`.

        If it is not built, returns the row at position `q` of the previous assignment; for `q` = -1, builds a new row.
        """
        if self.built is not None and PyList_GET_ITEM(self.built, m) != <PyObject*>None:
            return <MemberAssignment>PyList_GET_ITEM(self.built, m)
        if q < 0:
            return self.made_row(m)
        if self.before.all_built is not None:
            return <MemberAssignment>PyTuple_GET_ITEM(self.before.all_built, q)
        return self.before.row(q)

    cdef int match_rows(self, int* was, Memory* memory) except -1:
        """Computes, for every member with unchanged partitions, its position in the previous assignment."""
        cdef GroupAssignment before = self.before
        cdef int m, p, found, q = 0, n = <int>len(self.ids), old = <int>len(before.ids)
        cdef bint by_owner = (self.exclusive and before.exclusive and self.identity and before.identity
                              and self.topics is before.topics and self.owner != NULL and before.owner != NULL)
        cdef int* now = nones(memory, old + 1) + 1
        for m in range(n):
            # Both lists ascend: a remaining member usually comes next.
            if q < old and same_id(before.ids, q, self.ids, m):
                pass
            elif q + 1 < old and same_id(before.ids, q + 1, self.ids, m):
                q += 1
            elif q >= old or (m + 1 < n and same_id(before.ids, q, self.ids, m + 1)):
                continue  # a new member; the entry at `q` belongs to a later member
            else:
                found = before.position(self.ids[m])
                if found < 0:
                    continue
                q = found
            was[m] = q
            now[q] = m
            q += 1
        if by_owner:
            for p in range(self.partitions):
                m = self.owner[p]
                q = before.owner[p]
                # Partitions without an owner have -1 on both sides.
                if now[q] != m:
                    if m >= 0:
                        was[m] = -1
                    if q >= 0 and now[q] >= 0:
                        was[now[q]] = -1
            return 0
        self.need_rows()
        self.translated()
        for m in range(n):
            if was[m] >= 0 and not same_row(self, m, before, was[m], self.table):
                was[m] = -1
        return 0

    @property
    def members(self):
        """The member ids, ascending, as a tuple."""
        return tuple(self.ids)

    @property
    def withheld(self):
        """The partitions without an owner in this round of cooperative-sticky, because their old owners must first
        revoke them (KIP-429).
        """
        cdef int i, p, t = 0
        out = []
        for i in range(self.withheld_count):
            p = self.withheld_rows[i]
            t = self.topic_at(p, t)
            out.append(TopicPartition(self.names[t], p - self.first[t]))
        return tuple(out)

    def to_dict(self):
        """Returns the assignment as dicts: member id -> topic -> tuple of partitions.

        The caller owns the outer dict; the inner ones are the members' immutable MemberAssignments.
        """
        cdef tuple rows = self.all_rows()
        cdef int m, n = <int>len(self.ids)
        cdef dict out = presized_dict(n)
        for m in range(n):
            PyDict_SetItem(out, <object>PyList_GET_ITEM(self.ids, m), <object>PyTuple_GET_ITEM(rows, m))
        return out

    def owners(self):
        """Returns a numpy array: for every partition of `array_topics()` the position of its member, -1 for none.

        Raises ValueError for the assignment of a share group, in which a partition may have several members.
        """
        if not self.exclusive:
            raise ValueError("a partition of a share group has several owners")
        return as_array(self.owner, self.partitions)

    def array_topics(self):
        """Returns the topics that `owners()` covers, as pairs (topic, first index)."""
        cdef int t
        return [(self.names[t], self.first[t]) for t in range(self.topic_count)]

    def sizes(self):
        """Returns the number of partitions of every member, as member id -> int."""
        cdef int m
        self.need_rows()
        return {self.ids[m]: self.row_first[m + 1] - self.row_first[m] for m in range(<int>len(self.ids))}

    def changed_members(self, GroupAssignment previous):
        """Returns the ids of members that are new or whose partitions differ from `previous`, ascending.

        These are the members for which KIP-848 requires a new target assignment record. The comparison creates no
        Python objects per partition.
        """
        cdef int m
        cdef Scratch scratch = Scratch.__new__(Scratch)
        cdef int* was
        if previous is None:
            return list(self.ids)
        was = _kept(self, previous, &scratch.memory)
        return [self.ids[m] for m in range(<int>len(self.ids)) if was[m] < 0]

    def changes(self, GroupAssignment previous):
        """Returns the members of `changed_members` with their assignments, as a list of pairs."""
        cdef int m, n = <int>len(self.ids)
        cdef Scratch scratch = Scratch.__new__(Scratch)
        cdef int* was = NULL
        cdef list out = []
        if previous is not None:
            was = _kept(self, previous, &scratch.memory)
        for m in range(n):
            if was == NULL or was[m] < 0:
                out.append((self.ids[m], _new_row(self, m)))
        return out

    def __getitem__(self, member_id):
        cdef int m = self.position(member_id)
        if m < 0:
            raise KeyError(member_id)
        return self.row(m)

    def get(self, member_id, default=None):
        """Returns a member's assignment, or `default`."""
        return self[member_id] if member_id in self else default

    def __contains__(self, member_id):
        return isinstance(member_id, str) and self.position(member_id) >= 0

    def __iter__(self):
        return iter(self.ids)

    def __len__(self):
        return len(self.ids)

    def keys(self):
        """Returns the member ids, ascending."""
        return tuple(self.ids)

    def values(self):
        """Returns the members' assignments, by member id, as a tuple."""
        return self.all_rows()

    def items(self):
        """Returns pairs of member id and assignment."""
        return list(zip(self.ids, self.all_rows()))

    def __eq__(self, other):
        if isinstance(other, Mapping):
            return len(self) == len(other) and all(m in other and self[m] == other[m] for m in self.ids)
        return NotImplemented

    __hash__ = None

    def __repr__(self):
        return f"GroupAssignment({self.to_dict()!r})"

    def __reduce__(self):
        return assignment_of, (self.to_dict(), self.topics)


cdef int* _kept(GroupAssignment now, GroupAssignment before, Memory* memory) except NULL:
    """Computes the position in `before` of every member with unchanged partitions; -1 for other members."""
    cdef int* was = nones(memory, <int>len(now.ids) + 1)
    cdef int* table
    cdef int m, q
    if before is now.before:
        now.match_rows(was, memory)
        return was
    now.need_rows()
    before.need_rows()
    table = translation(before, now, memory)
    for m in range(<int>len(now.ids)):
        member_id = now.ids[m]
        q = m if m < len(before.ids) and before.ids[m] is member_id else before.position(member_id)
        if q >= 0 and same_row(now, m, before, q, table):
            was[m] = q
    return was


cdef MemberAssignment _new_row(GroupAssignment now, int member):
    """Returns a row that the previous assignment does not have; built once, like `row`."""
    if now.all_built is not None:
        return <MemberAssignment>now.all_built[member]
    if now.built is None:
        now.built = [None] * len(now.ids)
    if now.built[member] is None:
        now.need_rows()
        now.built[member] = now.made_row(member)
    return <MemberAssignment>now.built[member]


def assignment_of(values, topics):
    """Makes a GroupAssignment from member id -> topic -> partitions, for user-defined assignors.

    Args:
        values: every member's partitions; a partition may have several members (share groups).
        topics: the Topics (or topic -> partition count) that `values` refers to.

    Raises ValueError for an unknown topic or partition.
    """
    cdef GroupAssignment out = GroupAssignment.__new__(GroupAssignment)
    cdef Topics known = topics if isinstance(topics, Topics) else Topics(topics)
    cdef IntVec rows = IntVec(NULL, 0, 0)
    cdef int count, i, m, p
    cdef long number
    ids = list(values)
    out.topics = known
    out.identity = True
    out.names = known.ordered
    out.topic_count = known.count
    out.partitions = known.first[known.count]
    out.memory.block_size = FIRST_RESULT_BLOCK
    out.first = copied(&out.memory, known.first, known.count + 1)
    out.ids = [ids[i] for i in id_order(ids)]
    out.owner = nones(&out.memory, out.partitions)
    out.exclusive = True
    out.row_first = zeros(&out.memory, len(out.ids) + 1)
    for m, member_id in enumerate(out.ids):
        row = set()
        for topic, numbers in values[member_id].items():
            if topic not in known.index:
                raise ValueError(f"member {member_id!r}: topic {topic!r} is not known")
            i = known.index[topic]
            count = known.first[i + 1] - known.first[i]
            for given in numbers:
                try:
                    number = as_number(given)
                except (TypeError, OverflowError):
                    number = -1
                if not 0 <= number < count:
                    raise ValueError(f"member {member_id!r}: topic {topic!r} has no partition {given!r}")
                row.add(known.first[i] + number)
        for p in sorted(row):
            if out.owner[p] >= 0:
                out.exclusive = False
            out.owner[p] = m
            push(&out.memory, &rows, p)
        out.row_first[m + 1] = <int>rows.size
    out.rows = rows.at
    out.rows_ready = True
    return out


Mapping.register(GroupAssignment)
