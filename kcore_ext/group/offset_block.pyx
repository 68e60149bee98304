"""All offsets of one commit as one object, which is checked, written and stored in three loops.

A block is a sequence of records, each with a CommitKey and an OffsetAndMetadata. The loops make none of these records.
A test compares the bytes and the effects of a block with those of its records.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_GetItemWithError, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.layout cimport put_varint
from kcore_ext.codec.plan cimport Schema, schema_of
from kcore_ext.codec.fields cimport FieldLayout, read, type_of
from kcore_ext.codec.read cimport text_of
from kcore_ext.group.encoded_commit cimport EncodedOffset, read_offset
from kcore_ext.group.offsets cimport (
    EXPIRING_VERSION,
    VALUE_VERSION,
    CommitKey,
    OffsetAndMetadata,
    key_size,
    put_key,
    put_value,
    value_size,
)
from kcore_ext.runtime.encoded cimport request_of
from kcore_ext.util.byte_order cimport write_int32
from kcore_ext.util.named_tuples cimport named_tuple_of_three
from kcore_ext.util.record_limits cimport RECORD_OVERHEAD
from kcore_ext.util.shared_text cimport shared_text

from kcore_ext.codec.frames import StructBase

cdef extern from "Python.h":
    int PyUnicode_KIND(object text)
    uint32_t PyUnicode_READ_CHAR(object text, Py_ssize_t index)

cdef bytes ZERO_UUID = bytes(16)
cdef dict PARTITION_FIELDS = {
    PARTITION_INDEX: "partition_index",
    COMMITTED_OFFSET: "committed_offset",
    COMMITTED_LEADER_EPOCH: "committed_leader_epoch",
    COMMITTED_METADATA: "committed_metadata",
}

cdef enum:
    OFFSET_METADATA_TOO_LARGE = 12
    SHARED_RESPONSES = 4096   # maximum number of shared responses
    MAX_ENTRIES = 0x7FFFFFFF    # of a block; requests are far smaller, even if a length field is larger


cdef FieldLayout unknown_layout = FieldLayout(None, PARTITION_FIELDS)
cdef FieldLayout last_layout = unknown_layout  # partitions of one request have one class
cdef dict layouts = {}                   # by class: one layout for each kind of request


cdef FieldLayout layout_of(object requested):
    """Returns the field layout of a request's partition, which may be of an undeclared class."""
    global last_layout
    cdef Schema schema
    cdef int i
    if type_of(<PyObject*>requested) is last_layout.type:
        return last_layout
    cls = type(requested)
    found = layouts.get(cls)
    if found is None:
        found = unknown_layout
        if isinstance(requested, StructBase):
            schema = schema_of(<PyTypeObject*>cls)
            if {<str>schema.names[i] for i in range(schema.n)}.issuperset(PARTITION_FIELDS.values()):
                found = layouts[cls] = FieldLayout(cls, PARTITION_FIELDS)
    last_layout = <FieldLayout>found
    return last_layout


cdef inline str metadata_of(object requested, FieldLayout layout):
    found = read(requested, layout, COMMITTED_METADATA)
    return <str?>found if found else ""


cdef bint is_too_long(str metadata, Py_ssize_t limit):
    """Returns True if metadata has more than `limit` UTF-16 code units: Kafka counts these, although the name of the
    setting ends with bytes.
    """
    cdef Py_ssize_t length = len(metadata), i
    if length > limit:
        return True
    if PyUnicode_KIND(metadata) < 4 or 2 * length <= limit:
        return False
    cdef Py_ssize_t units = length
    for i in range(length):
        units += PyUnicode_READ_CHAR(metadata, i) > 0xFFFF
    return units > limit


def unknown_partitions(partitions, int64_t count, code):
    """Documented in offset_block.pyi."""
    cdef FieldLayout layout
    cdef list codes = None
    cdef Py_ssize_t place = 0
    for requested in partitions:
        layout = layout_of(requested)
        if not 0 <= <int64_t>read(requested, layout, PARTITION_INDEX) < count:
            if codes is None:
                codes = [0] * place
            codes.append(code)
        elif codes is not None:
            codes.append(0)
        place += 1
    return codes


@cython.final
cdef class CommitTemplate:
    pass


@cython.final
@cython.freelist(16)
cdef class CommitPlan:
    """Documented in offset_block.pyi."""

    def __init__(self, request, list topics not None, bint empty):
        self._request = request
        self.listed = topics
        self.empty = empty

    @property
    def request(self):
        self._request = request_of(self._request)
        return self._request

    @property
    def topics(self):
        if self.listed is None:
            known = ()
            if self.template is not None:
                known = zip(self.request.topics, self.template.topics, strict=True)
            self.listed = [(requested, topic, None) for requested, topic in known]
        return self.listed

    def __iter__(self):
        return iter(self.topics)


cdef CommitPlan plan_of(object request, CommitTemplate template):
    cdef CommitPlan plan = CommitPlan.__new__(CommitPlan)
    plan._request = request
    plan.template = template
    return plan


def plan_topics(request, find, bint by_id, refusal, int unknown, int no_partition, no_topic) -> CommitPlan:
    cdef list planned = []
    cdef bint empty = True
    cdef int code
    for requested in request.topics:
        topic = find(requested.topic_id if by_id else requested.name)
        code = 0
        if topic is None and by_id:
            code = unknown
        elif refusal is not None:
            code = refusal(requested.name if topic is None else topic.name)
        if code == 0 and topic is None:
            code = unknown
        partitions = requested.partitions
        if code:
            planned.append((requested, no_topic, [code] * len(partitions)))
        elif len(partitions):  # the response omits an existing topic without requested partitions
            codes = unknown_partitions(partitions, topic.partitions, no_partition)
            if codes is None or 0 in codes:
                empty = False
            planned.append((requested, topic, codes))
    return CommitPlan(request, planned, empty)


cdef OffsetBlock block_of(str group_id, int64_t now_ms, int64_t expire_ms, Py_ssize_t limit, type record_type):
    cdef OffsetBlock block = OffsetBlock.__new__(OffsetBlock)
    block.group_id = group_id
    block.now_ms = now_ms
    block.expire_ms = expire_ms
    block.version = VALUE_VERSION if expire_ms == -1 else EXPIRING_VERSION
    block.limit = limit
    block.record_type = record_type
    return block


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class OffsetBlock:
    """Documented in offset_block.pyi."""

    def __init__(
        self, str group_id not None, int64_t now_ms, int64_t expire_ms, Py_ssize_t limit, type record_type not None
    ):
        if not issubclass(record_type, tuple):
            raise TypeError(f"a record is a named tuple: {record_type}")
        if self.group_id is not None:
            raise TypeError("the block was initialized before")
        self.group_id = group_id
        self.now_ms = now_ms
        self.expire_ms = expire_ms
        self.version = VALUE_VERSION if expire_ms == -1 else EXPIRING_VERSION
        self.limit = limit
        self.record_type = record_type

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            Py_DECREF(<object>self.entries[i].offset)
            Py_DECREF(<object>self.entries[i].index)
            Py_DECREF(<object>self.entries[i].topic)
        if self.entries is not &self.first:
            PyMem_Free(self.entries)

    # ---- sequence of records

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        if isinstance(place, slice):
            return [self.record(i) for i in range(*place.indices(self.count))]
        cdef Py_ssize_t at = place
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError(f"the block has {self.count} records, and no record {place}")
        return self.record(at)

    def __iter__(self):
        cdef Py_ssize_t i
        return iter([self.record(i) for i in range(self.count)])

    def __repr__(self):
        return f"<OffsetBlock of {self.group_id!r}, {self.count} offsets>"

    cdef object record(self, Py_ssize_t place):
        cdef Entry* entry = &self.entries[place]
        key = CommitKey(self.group_id, <str>entry.topic, entry.partition)
        return named_tuple_of_three(self.record_type, key, <object>entry.offset, self.version)

    # ---- building from a request

    def add(self, str topic not None, bytes topic_id not None, partitions, list codes, response_type, dict accepted):
        cdef list responses = []
        cdef FieldLayout layout
        cdef PyObject* shared
        cdef Py_ssize_t place = 0, size
        cdef str metadata
        cdef int code
        if PyBytes_GET_SIZE(topic_id) != 16:
            raise ValueError(f"topic {topic!r}: the topic id {topic_id!r} has {PyBytes_GET_SIZE(topic_id)} bytes, not 16")
        size = RECORD_OVERHEAD + key_size(self.group_id, topic)
        self.reserve(len(partitions))
        for requested in partitions:
            layout = layout_of(requested)
            index = read(requested, layout, PARTITION_INDEX)
            code = 0
            if codes is not None:
                if place >= PyList_GET_SIZE(codes):
                    raise ValueError(
                        f"topic {topic!r}: the request has more than the {PyList_GET_SIZE(codes)} partitions that were "
                        "checked"
                    )
                code = codes[place]
            place += 1
            if code == 0:
                metadata = metadata_of(requested, layout)
                if is_too_long(metadata, self.limit):
                    code = OFFSET_METADATA_TOO_LARGE
                else:
                    self.take(topic, topic_id, size, requested, index, layout, metadata)
                    shared = PyDict_GetItem(accepted, index)
                    if shared is not NULL:
                        responses.append(<object>shared)
                        continue
            response = response_type(partition_index=index, error_code=code)
            if code == 0 and type(index) is int and PyDict_Size(accepted) < SHARED_RESPONSES:
                accepted[index] = response
            responses.append(response)
        return responses

    def topic_responses(self, list planned, bint with_topic_ids, topic_type, bint by_id, response_type, dict accepted):
        cdef list topics = []
        cdef tuple entry
        for entry in planned:
            requested, topic, codes = entry
            name = topic.name
            topic_id = topic.topic_id if with_topic_ids else ZERO_UUID
            partitions = self.add(name, topic_id, requested.partitions, codes, response_type, accepted)
            if by_id:
                topics.append(topic_type(name=requested.name, topic_id=requested.topic_id, partitions=partitions))
            else:
                topics.append(topic_type(name=requested.name, partitions=partitions))
        return topics

    cdef bint take_all(self, str topic, bytes topic_id, object partitions) except -1:
        cdef Py_ssize_t size = RECORD_OVERHEAD + key_size(self.group_id, topic)
        cdef FieldLayout layout
        cdef str metadata
        self.reserve(len(partitions))
        for requested in partitions:
            layout = layout_of(requested)
            metadata = metadata_of(requested, layout)
            if is_too_long(metadata, self.limit):
                return False
            self.take(topic, topic_id, size, requested, read(requested, layout, PARTITION_INDEX), layout, metadata)
        return True

    cdef bint take_encoded(
        self, str topic, bytes topic_id, const unsigned char** partitions, Py_ssize_t count
    ) except -1:
        cdef Py_ssize_t size = RECORD_OVERHEAD + key_size(self.group_id, topic), i
        cdef EncodedOffset offset
        cdef str metadata
        self.reserve(count)
        for i in range(count):
            offset = read_offset(partitions[i])
            metadata = text_of(offset.metadata.at, offset.metadata.size)
            if is_too_long(metadata, self.limit):
                return False
            self.add_offset(
                topic, topic_id, size, offset.partition, offset.partition, offset.offset, offset.leader_epoch, metadata
            )
        return True

    cdef int take(self, str topic, bytes topic_id, Py_ssize_t size, object requested, object index, FieldLayout layout,
                  str metadata) except -1:
        """Adds the offset of one partition of a request. `size` is the size of its record without the value."""
        cdef int32_t partition = index, leader_epoch = -1
        if type(index) is not int:
            index = partition
        if self.version == VALUE_VERSION:
            leader_epoch = read(requested, layout, COMMITTED_LEADER_EPOCH)
        return self.add_offset(
            topic, topic_id, size, index, partition, read(requested, layout, COMMITTED_OFFSET), leader_epoch, metadata
        )

    cdef int add_offset(self, str topic, bytes topic_id, Py_ssize_t size, object index, int32_t partition,
                        int64_t committed_offset, int32_t leader_epoch, str metadata) except -1:
        cdef OffsetAndMetadata offset = OffsetAndMetadata.__new__(OffsetAndMetadata)
        if self.count == self.capacity:
            self.reserve(1)     # a sequence of another class may yield more than its length
        cdef Entry* entry = &self.entries[self.count]
        entry.partition = partition
        offset.committed_offset = committed_offset
        offset.leader_epoch = leader_epoch
        if self.version == VALUE_VERSION:
            memcpy(offset.topic_uuid, PyBytes_AS_STRING(topic_id), 16)
        offset.metadata = metadata
        offset.commit_timestamp_ms = self.now_ms
        offset.expire_timestamp_ms = self.expire_ms
        entry.value_bytes = value_size(offset, self.version)
        self.size_bytes += size + entry.value_bytes
        Py_INCREF(offset)
        Py_INCREF(index)
        Py_INCREF(topic)
        entry.offset = <PyObject*>offset
        entry.index = <PyObject*>index
        entry.topic = <PyObject*>topic
        self.count += 1
        return 0

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Reserves room for `more` further entries."""
        cdef Py_ssize_t wanted = self.count + more
        cdef Entry* entries
        if wanted <= self.capacity:
            return 0
        if wanted == 1:
            self.entries = &self.first
            self.capacity = 1
            return 0
        wanted = max(wanted, 2 * self.capacity)
        if wanted > MAX_ENTRIES:
            raise OverflowError(f"a commit of {wanted} offsets is too large")
        if self.entries is &self.first:
            entries = <Entry*>PyMem_Malloc(wanted * sizeof(Entry))
            if entries is not NULL:
                entries[0] = self.first
        else:
            entries = <Entry*>PyMem_Realloc(self.entries, wanted * sizeof(Entry))
        if entries is NULL:
            raise MemoryError
        self.entries = entries
        self.capacity = wanted
        return 0

    # ---- writing and replay

    def append_to(self, BatchBuilder batch not None, int64_t timestamp_ms) -> bool:
        return self.write(batch, timestamp_ms)

    cdef bint write(self, BatchBuilder batch, int64_t timestamp_ms) except -1:
        cdef Entry* entry
        cdef Py_ssize_t i, names_size = 0, names_at = 0
        cdef PyObject* topic = NULL
        cdef unsigned char* at
        for i in range(self.count):
            entry = &self.entries[i]
            if entry.topic != topic:
                names_size = key_size(self.group_id, <str>entry.topic)
            at = batch.begin_record(timestamp_ms, names_size, entry.value_bytes)
            if at is NULL:
                return False
            if entry.topic != topic:
                topic = entry.topic
                names_at = at - batch.records
                at = put_key(at, self.group_id, <str>topic, entry.partition)
            else:   # the names of the previous record: its key ends with the partition
                memcpy(at, batch.records + names_at, names_size - 4)
                at += names_size
                write_int32(at - 4, entry.partition)
            at = put_varint(at, entry.value_bytes)
            put_value(at, <OffsetAndMetadata>entry.offset, self.version)[0] = 0  # no headers
        return True

    def put_into(self, dict groups not None, str group_id not None, int64_t first_offset) -> int:
        cdef PyObject* found
        cdef dict topics
        if not self.count:
            return 0
        found = PyDict_GetItemWithError(groups, group_id)
        if found is NULL:
            topics = groups[group_id] = {}
        else:
            topics = <dict?>found
        return self.put(topics, first_offset)

    cdef Py_ssize_t put(self, dict topics, int64_t first_offset) except -1:
        cdef Entry* entry
        cdef OffsetAndMetadata offset
        cdef Py_ssize_t i, before, added = 0
        cdef PyObject* topic = NULL
        cdef PyObject* found
        cdef dict partitions = None
        for i in range(self.count):
            entry = &self.entries[i]
            if entry.topic != topic:
                topic = entry.topic
                found = PyDict_GetItemWithError(topics, <object>topic)
                if found is NULL:
                    partitions = {}
                    topics[shared_text(<object>topic)] = partitions
                else:
                    partitions = <dict?>found
            offset = <OffsetAndMetadata>entry.offset
            if offset.record_offset != -1:
                raise ValueError(
                    f"the offset has a record at {offset.record_offset} already, not at {first_offset + i}"
                )
            offset.record_offset = first_offset + i
            before = PyDict_Size(partitions)
            PyDict_SetItem(partitions, <object>entry.index, offset)
            added += PyDict_Size(partitions) - before
        return added
