"""Inputs of an assignor as value objects: topics with partitions and racks, subscriptions, members."""

from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport qsort

from kcore_ext.assign.containers cimport IntVec, ints, push, release, sort_ints, zeros
from kcore_ext.util.byte_order cimport read_int64


def utf16_key(str text):
    """Returns a sort key that orders like Java's String.compareTo (UTF-16 code units)."""
    return text.encode("utf-16-be", "surrogatepass")


_SIGNS = 1 << 127 | 1 << 63


def uuid_key(bytes topic_id):
    """Returns a sort key that orders like Kafka's Uuid.compareTo: two signed 64-bit halves."""
    return int.from_bytes(topic_id, "big") ^ _SIGNS


cdef struct SortedId:
    int64_t high
    int64_t low
    PyObject* key


cdef int _compare_ids(const void* one, const void* other) noexcept nogil:
    cdef const SortedId* a = <const SortedId*>one
    cdef const SortedId* b = <const SortedId*>other
    if a.high != b.high:
        return -1 if a.high < b.high else 1
    return (a.low > b.low) - (a.low < b.low)


cdef list _sorted_ids(list keys):
    """Sorts topic ids in the order of `uuid_key`, without a Python call per id: with that function, 60,000 ids took 50
    ms.
    """
    cdef Py_ssize_t i, count = len(keys)
    cdef const unsigned char* data
    cdef SortedId* ids = <SortedId*>PyMem_Malloc(max(count, 1) * sizeof(SortedId))
    if ids is NULL:
        raise MemoryError
    try:
        for i in range(count):
            key = <bytes?>keys[i]
            if len(<bytes>key) != 16:
                raise ValueError(f"topic {key!r}: a topic id has 16 bytes, not {len(<bytes>key)}")
            data = <const unsigned char*><const char*>(<bytes>key)
            ids[i].high, ids[i].low = read_int64(data), read_int64(data + 8)
            ids[i].key = <PyObject*>key
        qsort(ids, count, sizeof(SortedId), _compare_ids)
        return [<object>ids[i].key for i in range(count)]
    finally:
        PyMem_Free(ids)


def sorted_keys(keys):
    """Sorts topic keys (all names or all 16-byte ids) in Kafka's order. Raises TypeError or ValueError."""
    cdef Py_ssize_t named = 0
    cdef list listed = list(keys)
    for key in listed:
        if isinstance(key, str):
            named += 1
        elif not isinstance(key, bytes):
            raise TypeError("topics are all named (str) or all given by id (16 bytes)")
    if named == len(listed):
        return sorted(listed, key=utf16_key)
    if named:
        raise TypeError("topics are all named (str) or all given by id (16 bytes)")
    return _sorted_ids(listed)


cdef long long _serials = 0

cdef enum:
    MOST_RUNS = 1 << 16


cdef class Topics:
    """The known topics: partition counts and, if known, the racks of every partition's replicas.

    Args:
        partitions: topic name (str) or topic id (16 bytes) -> number of partitions. All keys of one type.
        names: name -> id, if the keys are ids, so that members may subscribe by name.
        racks: topic -> one collection of rack ids for each partition, with the racks of all replicas, in sync or not.
            Collections beyond the number of partitions are ignored.

    Immutable. Iterates over the keys in Kafka's order (names by UTF-16 code units, ids as Uuid.compareTo). Build one
    `Topics` for each metadata image, because assignors cache derived data in it. Raises ValueError for a count that is
    negative or too large (2**31 - 2 partitions in all) and for a rack list shorter than the partition count.
    """

    def __cinit__(self):
        self.first = zeros(&self.memory, 1)

    def __dealloc__(self):
        release(&self.memory)

    def __init__(self, partitions, *, names=None, racks=None):
        global _serials
        cdef long total = 0, count
        cdef int i, topics
        cdef int* first
        self.ordered = tuple(sorted_keys(partitions))
        self.index = {key: i for i, key in enumerate(self.ordered)}
        topics = <int>len(self.ordered)
        first = ints(&self.memory, topics + 1)
        first[0] = 0
        for i, key in enumerate(self.ordered):
            given = partitions[key]
            try:
                count = as_number(given)
            except (TypeError, OverflowError):
                count = -1
            if not 0 <= count <= MOST_PARTITIONS - total:
                raise ValueError(
                    f"topic {key!r}: the number of partitions is {given!r}; valid: a whole number, 0 or more, and at "
                    f"most {MOST_PARTITIONS} for all topics together"
                )
            total += count
            first[i + 1] = <int>total
        self.first = first
        self.count = topics
        for name, topic_id in (names or {}).items():
            number = self.index.get(topic_id)
            if number is not None:
                self.index[name] = number
        self.rack_index = {}
        if racks:
            self._read_racks(racks)
        self.rack_names = tuple(self.rack_index)
        _serials += 1
        self.serial = _serials

    def _read_racks(self, racks):
        cdef int p, count, at = 0
        cdef IntVec listed = IntVec(NULL, 0, 0)
        self.rack_first = zeros(&self.memory, self.first[self.count] + 1)
        for key in self.ordered:
            given = racks.get(key)
            count = self.partition_count(key)
            if given is not None and len(given) < count:
                raise ValueError(
                    f"topic {key!r}: the racks of {count} partitions are needed, not of {len(given)}"
                )
            for p in range(count):
                for rack in sorted(set(given[p])) if given is not None else ():
                    push(&self.memory, &listed, self.rack_index.setdefault(rack, len(self.rack_index)))
                at += 1
                self.rack_first[at] = <int>listed.size
        self.rack_list = listed.at
        self.has_racks = listed.size > 0

    cdef int open_runs(self) except -1:
        """Allocates the table of rows of consecutive partitions, which all assignments of these topics share.

        The table has at least one slot for each partition, but at most `MOST_RUNS` slots.
        """
        cdef int room = 16
        while room < MOST_RUNS and room < self.first[self.count]:
            room *= 2
        self.run_start = zeros(&self.memory, room)
        self.run_count = zeros(&self.memory, room)
        self.run_mask = room - 1
        self.runs = [None] * room
        return 0

    def partition_count(self, topic):
        """Returns the number of partitions of a topic; raises KeyError for an unknown topic.

        `topic` is the topic's key, or its name if the keys are ids.
        """
        cdef int i = self.index[topic]
        return self.first[i + 1] - self.first[i]

    def racks_of(self, topic, int partition):
        """Returns the rack ids of a partition's replicas, as a frozenset; empty if racks are not known."""
        cdef int i = self.index[topic], j
        if not self.has_racks:
            return frozenset()
        if not 0 <= partition < self.first[i + 1] - self.first[i]:
            raise IndexError(f"topic {topic!r} has no partition {partition}")
        partition += self.first[i]
        return frozenset(self.rack_names[self.rack_list[j]]
                         for j in range(self.rack_first[partition], self.rack_first[partition + 1]))

    @property
    def total_partitions(self):
        """The number of partitions of all topics together."""
        return self.first[self.count]

    def key_of(self, topic):
        """Returns the key that assignments use for a topic; None for an unknown topic.

        `topic` is the topic's key, or its name if the keys are ids.
        """
        i = self.index.get(topic)
        return None if i is None else self.ordered[i]

    def __iter__(self):
        return iter(self.ordered)

    def __len__(self):
        return len(self.ordered)

    def __contains__(self, topic):
        return topic in self.index

    def __getitem__(self, topic):
        return self.partition_count(topic)

    def keys(self):
        """Returns the topics in Kafka's order, as a tuple (also the attribute `ordered`)."""
        return self.ordered

    def values(self):
        """Returns the partition counts, in the order of `keys`."""
        return [self.partition_count(key) for key in self.ordered]

    def items(self):
        """Returns pairs of topic and partition count."""
        return [(key, self.partition_count(key)) for key in self.ordered]

    def get(self, topic, default=None):
        """Returns the number of partitions of a topic, or `default`."""
        return self.partition_count(topic) if topic in self.index else default

    def __repr__(self):
        return f"Topics({ {key: self[key] for key in self.ordered}!r})"

    def __reduce__(self):
        names = {name: self.ordered[i] for name, i in self.index.items() if name != self.ordered[i]}
        racks = {key: [sorted(self.racks_of(key, p)) for p in range(self[key])] for key in self.ordered}
        return _topics, ({key: self[key] for key in self.ordered}, names, racks if self.has_racks else None)


def _topics(partitions, names, racks):
    return Topics(partitions, names=names, racks=racks)


_as_given = WeakValueDictionary()
_canonical = WeakValueDictionary()


cdef class Subscription:
    """A set of subscribed topics. Members with the same topics share one object."""

    def __dealloc__(self):
        release(&self.memory)

    cdef int resolve(self, Topics topics) except -1:
        """Computes the positions of the subscribed topics in `topics`; caches them for the last `topics`."""
        cdef object i
        cdef int r, w = 0, count = 0
        if self.serial == topics.serial:
            return 0
        # If memory runs out, this may end halfway. The serial is 0 then, which no Topics has, so the positions are not
        # used.
        self.serial = self.resolved_count = 0
        if self.resolved == NULL:
            self.resolved = ints(&self.memory, len(self.topics))
        self.missing = []
        for topic in self.topics:
            i = topics.index.get(topic)
            if i is None:
                self.missing.append(topic)
            else:
                self.resolved[count] = i
                count += 1
        sort_ints(self.resolved, count)
        # A topic may be named by key and by alias.
        for r in range(count):
            if w == 0 or self.resolved[w - 1] != self.resolved[r]:
                self.resolved[w] = self.resolved[r]
                w += 1
        self.resolved_count = w
        self.serial = topics.serial
        return 0


cdef Subscription _intern(tuple given):
    cdef Subscription found = _as_given.get(given)
    if found is not None:
        return found
    for topic in given:
        if not isinstance(topic, str) and not (isinstance(topic, bytes) and len(topic) == 16):
            raise ValueError(f"topic {topic!r}: a name (str) or an id (16 bytes) is needed")
    unique = frozenset(given)
    # Removes duplicates and keeps the order. Most subscriptions are sorted already, and sorting a sorted list takes
    # linear time.
    listed = list(dict.fromkeys(given))
    if all(isinstance(topic, str) for topic in listed) or all(isinstance(topic, bytes) for topic in listed):
        listed.sort()
    else:
        listed.sort(key=lambda t: (isinstance(t, bytes), t))
    canonical = tuple(listed)
    identity = (canonical, len(given))
    found = _canonical.get(identity)
    if found is None:
        found = Subscription()
        found.topics = canonical
        found.listed = len(given)
        found.unique = unique
        _canonical[identity] = found
    _as_given[given] = found
    return found


_NOTHING = {}


cdef class Member:
    """One member of a group as an assignor sees it. Immutable; compares by value.

    Args:
        member_id: the id that the coordinator uses for the member.
        topics: names (or, for server-side assignors, 16-byte ids) of its subscribed topics.
        owned: topic -> partitions: the owned partitions in the subscription (client side) or the current target
            assignment (server side). A `MemberAssignment` of an earlier result is read fastest.
        generation_id: the generation in the subscription (KIP-792); -1 if there is none.
        rack_id: the client's rack (`client.rack`, KIP-881); None or "" if it has none.
        instance_id: `group.instance.id` of a static member (KIP-345), else None.
        user_data: the subscription's user data: bytes, or a decoded `StickyAssignorUserData`.

    Raises TypeError for an argument of a wrong type; ValueError for a topic that is neither a name nor an id, and for a
    generation that does not fit into 32 bits. Owned partitions are read when an assignor runs.
    """

    def __init__(self, str member_id not None, topics=(), *, owned=None, generation_id=-1, rack_id=None,
                 instance_id=None, user_data=None):
        if type(topics) is not tuple and (isinstance(topics, str | bytes) or not isinstance(topics, Iterable)):
            raise TypeError(f"member {member_id!r}: topics: a collection of topics is needed")
        if owned is not None and not isinstance(owned, dict) and not isinstance(owned, Mapping):
            raise TypeError(f"member {member_id!r}: owned: a mapping topic -> partitions is needed")
        if (rack_id is not None and not isinstance(rack_id, str)) or (
                instance_id is not None and not isinstance(instance_id, str)):
            raise TypeError(f"member {member_id!r}: rack_id, instance_id: a str is needed")
        if user_data is not None and type(user_data) is not bytes and not hasattr(user_data, "generation_id"):
            raise TypeError(f"member {member_id!r}: user_data: bytes or StickyAssignorUserData are needed")
        self.member_id = member_id
        try:
            self.subscription = _intern(topics if type(topics) is tuple else tuple(topics))
            self.generation_id = generation_id
        except (ValueError, OverflowError) as error:
            raise ValueError(f"member {member_id!r}: {error}") from error
        self.owned = owned if owned is not None else _NOTHING
        self.rack_id = rack_id or None
        self.instance_id = instance_id
        self.user_data = user_data

    @property
    def topics(self):
        """The subscribed topics, sorted and without duplicates."""
        return self.subscription.topics

    def _values(self):
        return (self.member_id, self.subscription.topics, {t: tuple(p) for t, p in self.owned.items()},
                self.generation_id, self.rack_id, self.instance_id, self.user_data)

    def __eq__(self, other):
        return isinstance(other, Member) and self._values() == (<Member>other)._values()

    def __hash__(self):
        return hash((self.member_id, self.subscription.topics))

    def __repr__(self):
        return f"Member({self.member_id!r}, {list(self.subscription.topics)!r})"

    def __reduce__(self):
        member_id, topics, owned, generation_id, rack_id, instance_id, user_data = self._values()
        return _member, (member_id, topics, owned, generation_id, rack_id, instance_id, user_data)


def _member(member_id, topics, owned, generation_id, rack_id, instance_id, user_data):
    return Member(member_id, topics, owned=owned, generation_id=generation_id, rack_id=rack_id,
                  instance_id=instance_id, user_data=user_data)


Mapping.register(Topics)
