# distutils: language = c++
"""Assignments as value objects over arrays: rows become Python objects when somebody looks."""

from collections.abc import Mapping
from typing import NamedTuple

from cpython.dict cimport PyDict_SetItem
from cpython.long cimport PyLong_FromLong
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libcpp.vector cimport vector

from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport as_array


class TopicPartition(NamedTuple):
    """A partition of a topic, as Kafka names it; `topic` is a name, or an id on the server side."""

    topic: object
    partition: int


# Partition numbers repeat for every topic: one object each, up to a bound.
cdef enum:
    SHARED_NUMBERS = 16384
cdef list _numbers = list(range(SHARED_NUMBERS))


cdef inline tuple _numbers_of(const int* parts, int count, int base):
    cdef tuple out = PyTuple_New(count)
    cdef object number
    cdef int i, p
    for i in range(count):
        p = parts[i] - base
        number = _numbers[p] if p < SHARED_NUMBERS else PyLong_FromLong(p)
        Py_INCREF(number)
        PyTuple_SET_ITEM(out, i, number)
    return out


cdef class MemberAssignment:
    """What one member has: an immutable mapping topic -> partitions (ascending tuple). Topics without any are absent."""

    def __init__(self, partitions=None):
        self.values_by_topic = {}
        if partitions:
            for topic, numbers in partitions.items():
                numbers = tuple(sorted(set(numbers)))
                if numbers:
                    self.values_by_topic[topic] = numbers

    cdef dict built(self):
        if self.values_by_topic is None:
            self.values_by_topic = self.parent.row(self.member)
        return self.values_by_topic

    @property
    def partitions(self):
        """All partitions as a tuple of TopicPartition, by topic and number."""
        return tuple(TopicPartition(topic, number) for topic, numbers in self.built().items() for number in numbers)

    @property
    def size(self):
        """Number of partitions."""
        cdef int total = 0
        if self.parent is not None:
            self.parent.need_rows()
            return self.parent.row_first[self.member + 1] - self.parent.row_first[self.member]
        for numbers in self.values_by_topic.values():
            total += len(numbers)
        return total

    def __getitem__(self, topic):
        return self.built()[topic]

    def get(self, topic, default=None):
        """Partitions of a topic, or `default`."""
        return self.built().get(topic, default)

    def __iter__(self):
        return iter(self.built())

    def __len__(self):
        return len(self.built())

    def __contains__(self, topic):
        return topic in self.built()

    def keys(self):
        """The topics."""
        return self.built().keys()

    def values(self):
        """The partitions, a tuple a topic."""
        return self.built().values()

    def items(self):
        """Pairs of topic and partitions."""
        return self.built().items()

    def __eq__(self, other):
        if isinstance(other, MemberAssignment):
            return self.built() == (<MemberAssignment>other).built()
        if isinstance(other, Mapping):
            return self.built() == {t: tuple(sorted(set(n))) for t, n in other.items() if n}
        return NotImplemented

    def __hash__(self):
        return hash(frozenset(self.built().items()))

    def __repr__(self):
        return f"MemberAssignment({self.built()!r})"

    def __reduce__(self):
        return MemberAssignment, (self.built(),)


cdef class GroupAssignment:
    """What every member of a group has: an immutable mapping member id -> MemberAssignment, by member id.

    Every member is present, also one with nothing. The whole sits in arrays; a member's mapping is built when it is
    asked for. Given back as `previous` to a server-side assignor it costs no conversion.
    """

    cdef int need_rows(self) except -1:
        """Sorts partitions by owner, once."""
        cdef int p, m, n
        cdef vector[int] cursor
        if self.rows_ready:
            return 0
        n = <int>len(self.ids)
        self.row_first.assign(n + 1, 0)
        for p in range(<int>self.owner.size()):
            if self.owner[p] >= 0:
                self.row_first[self.owner[p] + 1] += 1
        for m in range(n):
            self.row_first[m + 1] += self.row_first[m]
        self.rows.resize(self.row_first[n])
        cursor = self.row_first
        for p in range(<int>self.owner.size()):
            if self.owner[p] >= 0:
                self.rows[cursor[self.owner[p]]] = p
                cursor[self.owner[p]] += 1
        self.rows_ready = True
        return 0

    cdef dict row(self, int member):
        """Builds one member's topic -> partitions."""
        cdef dict out = {}
        cdef int i, j, end, t, low, high, middle
        self.need_rows()
        i = self.row_first[member]
        end = self.row_first[member + 1]
        while i < end:
            low = 0
            high = <int>self.first.size() - 1
            while high - low > 1:
                middle = (low + high) >> 1
                if self.first[middle] <= self.rows[i]:
                    low = middle
                else:
                    high = middle
            t = low
            j = i + 1
            while j < end and self.rows[j] < self.first[t + 1]:
                j += 1
            PyDict_SetItem(out, self.topics.ordered[t if self.identity else self.local[t]],
                           _numbers_of(self.rows.data() + i, j - i, self.first[t]))
            i = j
        return out

    cdef int position(self, str member_id) except -2:
        if self.positions is None:
            self.positions = {name: i for i, name in enumerate(self.ids)}
        found = self.positions.get(member_id)
        return -1 if found is None else <int>found

    @property
    def members(self):
        """The member ids, ascending, as a tuple."""
        return tuple(self.ids)

    @property
    def withheld(self):
        """Partitions that cooperative-sticky gives to nobody this round: their old owner must let go first (KIP-429)."""
        cdef int p, t = 0
        out = []
        for p in self.withheld_rows:
            while self.first[t + 1] <= p:
                t += 1
            out.append(TopicPartition(self.topics.ordered[t if self.identity else self.local[t]], p - self.first[t]))
        return tuple(out)

    def to_dict(self):
        """Everything as plain dicts: member id -> topic -> tuple of partitions."""
        cdef int m
        return {self.ids[m]: self.row(m) for m in range(<int>len(self.ids))}

    def owners(self):
        """The same as a numpy array: for every partition of `array_topics()` the position of its member, -1 for nobody.

        Raises ValueError for the assignment of a share group, where a partition has several.
        """
        if not self.exclusive:
            raise ValueError("a partition of a share group has several owners")
        return as_array(self.owner)

    def array_topics(self):
        """The topics that `owners()` counts through, as pairs (topic, first index)."""
        cdef int t
        return [(self.topics.ordered[t if self.identity else self.local[t]], self.first[t])
                for t in range(<int>self.first.size() - 1)]

    def sizes(self):
        """Number of partitions of every member, as member id -> int."""
        cdef int m
        self.need_rows()
        return {self.ids[m]: self.row_first[m + 1] - self.row_first[m] for m in range(<int>len(self.ids))}

    def changed_members(self, GroupAssignment previous):
        """Ids of members that are new or whose partitions differ from `previous`, ascending.

        These are the members for which KIP-848 writes a target assignment record. Costs arrays only, no Python
        objects a partition.
        """
        cdef int m, q, t, n = <int>len(self.ids)
        cdef vector[int] table
        cdef bint same
        self.need_rows()
        if previous is None:
            return list(self.ids)
        previous.need_rows()
        table = _translation(previous, self)
        out = []
        for m in range(n):
            member_id = self.ids[m]
            q = m if m < len(previous.ids) and previous.ids[m] is member_id else previous.position(member_id)
            same = q >= 0 and _same_row(self, m, previous, q, table)
            if not same:
                out.append(member_id)
        return out

    def __getitem__(self, member_id):
        cdef int m = self.position(member_id)
        if m < 0:
            raise KeyError(member_id)
        return self.member_at(m)

    cdef MemberAssignment member_at(self, int member):
        """A view of one row. Not kept: a reference back would make every assignment a cycle."""
        cdef MemberAssignment out = MemberAssignment.__new__(MemberAssignment)
        out.parent = self
        out.member = member
        return out

    def get(self, member_id, default=None):
        """A member's assignment, or `default`."""
        return self[member_id] if member_id in self else default

    def __contains__(self, member_id):
        return isinstance(member_id, str) and self.position(member_id) >= 0

    def __iter__(self):
        return iter(self.ids)

    def __len__(self):
        return len(self.ids)

    def keys(self):
        """The member ids, ascending."""
        return tuple(self.ids)

    def values(self):
        """The members' assignments, by member id."""
        cdef int m
        return [self.member_at(m) for m in range(<int>len(self.ids))]

    def items(self):
        """Pairs of member id and assignment."""
        cdef int m
        return [(self.ids[m], self.member_at(m)) for m in range(<int>len(self.ids))]

    def __eq__(self, other):
        if isinstance(other, Mapping):
            return len(self) == len(other) and all(m in other and self[m] == other[m] for m in self.ids)
        return NotImplemented

    __hash__ = None

    def __repr__(self):
        return f"GroupAssignment({self.to_dict()!r})"

    def __reduce__(self):
        return assignment_of, (self.to_dict(), self.topics)


cdef vector[int] _translation(GroupAssignment source, GroupAssignment target):
    """For each topic row of `source`: what to add to its partition numbers to get `target`'s; -1 << 30 when gone."""
    cdef vector[int] out
    cdef dict where = {}
    cdef int t, i
    for t in range(<int>target.first.size() - 1):
        where[target.topics.ordered[t if target.identity else target.local[t]]] = t
    for t in range(<int>source.first.size() - 1):
        found = where.get(source.topics.ordered[t if source.identity else source.local[t]])
        if found is None:
            out.push_back(-(1 << 30))
        else:
            i = found
            out.push_back(target.first[i] - source.first[t])
    return out


cdef bint _same_row(GroupAssignment a, int m, GroupAssignment b, int q, vector[int]& table):
    """True when row m of `a` and row q of `b` are the same partitions."""
    cdef int i = a.row_first[m], j = b.row_first[q], t = 0
    if a.row_first[m + 1] - i != b.row_first[q + 1] - j:
        return False
    if a.identity and b.identity and a.topics is b.topics:
        while i < a.row_first[m + 1]:
            if a.rows[i] != b.rows[j]:
                return False
            i += 1
            j += 1
        return True
    if i == a.row_first[m + 1]:
        return True
    t = _topic_at(b, b.rows[j])
    while i < a.row_first[m + 1]:
        while b.rows[j] >= b.first[t + 1]:
            t += 1
        if table[t] == -(1 << 30) or a.rows[i] != b.rows[j] + table[t]:
            return False
        i += 1
        j += 1
    return True


cdef int _topic_at(GroupAssignment a, int partition):
    """The topic row that holds a partition index."""
    cdef int low = 0, high = <int>a.first.size() - 1, middle
    while high - low > 1:
        middle = (low + high) >> 1
        if a.first[middle] <= partition:
            low = middle
        else:
            high = middle
    return low


def assignment_of(values, topics):
    """A GroupAssignment from member id -> topic -> partitions, for an assignor of one's own.

    Args:
        values: every member's partitions; a partition may have several members (share groups).
        topics: the Topics (or topic -> partition count) that `values` speaks of.

    Raises ValueError for a topic or partition that `topics` does not have.
    """
    cdef GroupAssignment out = GroupAssignment.__new__(GroupAssignment)
    cdef Topics known = topics if isinstance(topics, Topics) else Topics(topics)
    cdef int count, i, m
    from kcore_ext.assign.ids import id_order
    ids = list(values)
    out.topics = known
    out.identity = True
    out.first = known.first
    out.ids = [ids[i] for i in id_order(ids)]
    out.owner.assign(known.first.back(), -1)
    out.exclusive = True
    out.row_first.push_back(0)
    for m, member_id in enumerate(out.ids):
        row = set()
        for topic, numbers in values[member_id].items():
            if topic not in known.index:
                raise ValueError(f"member {member_id!r}: topic {topic!r} is not known")
            i = known.index[topic]
            count = known.first[i + 1] - known.first[i]
            for number in numbers:
                if not 0 <= number < count:
                    raise ValueError(f"member {member_id!r}: topic {topic!r} has no partition {number}")
                row.add(known.first[i] + number)
        for p in sorted(row):
            if out.owner[p] >= 0:
                out.exclusive = False
            out.owner[p] = m
            out.rows.push_back(p)
        out.row_first.push_back(<int>out.rows.size())
    if not out.exclusive:
        out.owner.clear()
    out.rows_ready = True
    return out


Mapping.register(MemberAssignment)
Mapping.register(GroupAssignment)
