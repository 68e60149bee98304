"""Committed offsets, small and fast: their objects, their records, and the loops over the partitions of a request.

An offset takes 80 bytes here; a Python object with its integers would take 230. `kcore.protocol.records` defines the
bytes of a record. Tests compare this module with `kcore.protocol.records`, which also decodes the unusual records that
this module refuses.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kcore_ext.batch.records cimport RecordReader, open_reader
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64, write_int16, write_int32, write_int64
from kcore_ext.codec.plan cimport Schema, schema_of
from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.util.record_limits cimport MAX_STRING
from kcore_ext.util.text cimport utf8_of

from kcore_ext.codec.frames import StructBase

cdef bytes ZERO_UUID = bytes(16)
cdef char* ZERO_BYTES = PyBytes_AS_STRING(ZERO_UUID)

cdef enum:
    OFFSET_KEY = 1  # type 0 is the oldest keys' type, with the same layout
    UNSTABLE_OFFSET_COMMIT = 88


# ---- big-endian numbers

cdef inline uint8_t* put16(uint8_t* at, uint16_t number) noexcept:
    """Writes a number; returns the position after it."""
    write_int16(at, <int16_t>number)
    return at + 2


cdef inline uint8_t* put32(uint8_t* at, uint32_t number) noexcept:
    write_int32(at, <int32_t>number)
    return at + 4


cdef inline uint8_t* put64(uint8_t* at, uint64_t number) noexcept:
    write_int64(at, <int64_t>number)
    return at + 8


cdef tuple _fields(OffsetAndMetadata entry):
    # A function, not a method: a class with C methods carries a table pointer in every instance.
    return (
        entry.record_offset,
        entry.committed_offset,
        entry.leader_epoch,
        entry.metadata,
        entry.commit_timestamp_ms,
        entry.expire_timestamp_ms,
        entry.topic_id,
    )


@cython.final
@cython.freelist(64)
cdef class OffsetAndMetadata:
    """The offset that a commit stores for one partition: committed, or pending in a transaction.

    It is immutable after the replay of its record.

    It corresponds to Kafka's class of the same name, but includes the topic id. Topics are keyed by name; the id only
    distinguishes a recreated topic from the topic for which the offset was committed.
    """

    def __cinit__(self):
        self.record_offset = -1
        self.metadata = ""

    def __init__(
        self,
        int64_t record_offset,
        int64_t committed_offset,
        int32_t leader_epoch,
        str metadata not None,
        int64_t commit_timestamp_ms,
        int64_t expire_timestamp_ms,
        bytes topic_id not None,
    ):
        if PyBytes_GET_SIZE(topic_id) != 16:
            raise ValueError(
                f"committed offset: the topic id {topic_id!r} has {PyBytes_GET_SIZE(topic_id)} bytes, not 16"
            )
        self.record_offset = record_offset
        self.committed_offset = committed_offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        memcpy(self.topic_uuid, PyBytes_AS_STRING(topic_id), 16)

    def place(self, int64_t record_offset):
        if self.record_offset != -1:
            raise ValueError(
                f"committed offset {self.committed_offset}: it has a record at {self.record_offset} already, not at {record_offset}"
            )
        self.record_offset = record_offset
        return self

    def encode_value(self, int version) -> bytes:
        cdef bytes data = PyBytes_FromStringAndSize(NULL, value_size(self, version))
        put_value(<uint8_t*>PyBytes_AS_STRING(data), self, version)
        return data

    @property
    def topic_id(self) -> bytes:
        return PyBytes_FromStringAndSize(self.topic_uuid, 16)

    def belongs_to(self, bytes topic_id not None) -> bool:
        if PyBytes_GET_SIZE(topic_id) != 16:
            raise ValueError(
                f"committed offset: the topic id {topic_id!r} has {PyBytes_GET_SIZE(topic_id)} bytes, not 16"
            )
        cdef char* other = PyBytes_AS_STRING(topic_id)
        return (
            memcmp(self.topic_uuid, other, 16) == 0
            or memcmp(self.topic_uuid, ZERO_BYTES, 16) == 0
            or memcmp(other, ZERO_BYTES, 16) == 0
        )

    def __eq__(self, other):
        if not isinstance(other, OffsetAndMetadata):
            return NotImplemented
        return _fields(self) == _fields(<OffsetAndMetadata>other)

    def __hash__(self):
        return hash(_fields(self))

    def __repr__(self):
        return (
            f"OffsetAndMetadata(record_offset={self.record_offset}, committed_offset={self.committed_offset}, "
            f"leader_epoch={self.leader_epoch}, metadata={self.metadata!r}, "
            f"commit_timestamp_ms={self.commit_timestamp_ms}, expire_timestamp_ms={self.expire_timestamp_ms}, "
            f"topic_id={self.topic_id!r})"
        )


cdef Py_ssize_t value_size(OffsetAndMetadata entry, int version) except -1:
    cdef Py_ssize_t length, rest
    utf8_of(entry.metadata, &length)
    if version == EXPIRING_VERSION:
        if length > MAX_STRING:
            raise ValueError(
                f"committed offset {entry.committed_offset}: the metadata has {length} bytes; a record of version "
                f"{EXPIRING_VERSION} has at most {MAX_STRING}"
            )
        return 28 + length
    if version != VALUE_VERSION:
        raise ValueError(
            f"committed offset {entry.committed_offset}: version {version} of the record; valid: versions "
            f"{EXPIRING_VERSION} and {VALUE_VERSION}"
        )
    cdef Py_ssize_t size = 24 + length + (18 if memcmp(entry.topic_uuid, ZERO_BYTES, 16) else 0)
    rest = (length + 1) >> 7
    while rest:
        size += 1
        rest >>= 7
    return size


cdef uint8_t* put_value(uint8_t* at, OffsetAndMetadata entry, int version) except NULL:
    cdef Py_ssize_t length
    cdef const char* text = utf8_of(entry.metadata, &length)
    at = put64(put16(at, <uint16_t>version), <uint64_t>entry.committed_offset)
    if version == EXPIRING_VERSION:
        # Version 1 has an expiration time, and neither leader epoch nor topic id.
        at = put16(at, <uint16_t>length)
        memcpy(at, text, length)
        return put64(put64(at + length, <uint64_t>entry.commit_timestamp_ms), <uint64_t>entry.expire_timestamp_ms)
    # Version 4: compact string, and the topic's id as a tagged field if it is known.
    at = put32(at, <uint32_t>entry.leader_epoch)
    cdef uint64_t rest = <uint64_t>length + 1
    while rest > 0x7F:
        at[0] = <uint8_t>(rest & 0x7F | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    memcpy(at + 1, text, length)
    at = put64(at + 1 + length, <uint64_t>entry.commit_timestamp_ms)
    at[0] = memcmp(entry.topic_uuid, ZERO_BYTES, 16) != 0
    if not at[0]:
        return at + 1
    at[1] = 0   # the tag
    at[2] = 16  # bytes
    memcpy(at + 3, entry.topic_uuid, 16)
    return at + 19


@cython.final
@cython.freelist(64)
cdef class CommitKey:
    """The key of an offset record."""

    def __cinit__(self, str group not None, str topic not None, int32_t partition):
        self.group = group
        self.topic = topic
        self.partition = partition

    def encode_key(self) -> bytes:
        if self.encoded is None:
            self.encoded = _encode_key(self.group, self.topic, self.partition)
        return self.encoded

    def __eq__(self, other):
        if not isinstance(other, CommitKey):
            return NotImplemented
        cdef CommitKey key = <CommitKey>other
        return self.partition == key.partition and self.topic == key.topic and self.group == key.group

    def __hash__(self):
        return hash((self.group, self.topic, self.partition))

    def __repr__(self):
        return f"CommitKey({self.group!r}, {self.topic!r}, {self.partition})"


cdef bytes _encode_key(str group, str topic, int32_t partition):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, key_size(group, topic))
    put_key(<uint8_t*>PyBytes_AS_STRING(data), group, topic, partition)
    return data


cdef Py_ssize_t key_size(str group, str topic) except -1:
    cdef Py_ssize_t group_size, topic_size
    utf8_of(group, &group_size)
    utf8_of(topic, &topic_size)
    if group_size > MAX_STRING or topic_size > MAX_STRING:
        raise ValueError(
            f"committed offset: the group id has {group_size} bytes, and the topic's name {topic_size}; the key of a "
            f"record has at most {MAX_STRING} for each"
        )
    return 10 + group_size + topic_size


cdef uint8_t* put_key(uint8_t* at, str group, str topic, int32_t partition) except NULL:
    cdef Py_ssize_t group_size, topic_size
    cdef const char* group_text = utf8_of(group, &group_size)
    cdef const char* topic_text = utf8_of(topic, &topic_size)
    at = put16(put16(at, OFFSET_KEY), <uint16_t>group_size)
    memcpy(at, group_text, group_size)
    at = put16(at + group_size, <uint16_t>topic_size)
    memcpy(at, topic_text, topic_size)
    return put32(at + topic_size, <uint32_t>partition)


# ---- reading a log

@cython.final
cdef class OffsetDecoder:
    """A decoder of offset records.

    It keeps the names of the last record, because the next record usually has the same names.
    """

    def decode(self, bytes key not None, bytes value):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(key)
        if not self._read_names(at, size):
            return None
        cdef OffsetAndMetadata entry = None
        if value is not None:
            entry = read_value(<const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            if entry is None:
                return None
        return CommitKey(self.group, self.topic, read_int32(at + size - 4)), entry

    cdef bint _read_names(self, const uint8_t* at, Py_ssize_t size) except -1:
        """Reads group and topic from a key of type 0 or 1; returns False if only the codec can decode the key."""
        cdef const uint8_t* known
        cdef bint decoded = True
        if size < 10 or <uint16_t>read_int16(at) > OFFSET_KEY:
            return False
        if self.names is not None and PyBytes_GET_SIZE(self.names) == size - 4:
            known = <const uint8_t*>PyBytes_AS_STRING(self.names)
            if memcmp(known, at, size - 4) == 0:
                return True
        cdef Py_ssize_t group_size = <uint16_t>read_int16(at + 2)
        if 4 + group_size + 2 + 4 > size:
            return False
        cdef Py_ssize_t topic_size = <uint16_t>read_int16(at + 4 + group_size)
        if 4 + group_size + 2 + topic_size + 4 != size or group_size > MAX_STRING or topic_size > MAX_STRING:
            return False
        self.names = None
        try:
            self.group = PyUnicode_DecodeUTF8(<char*>at + 4, group_size, NULL)
            self.topic = PyUnicode_DecodeUTF8(<char*>at + 6 + group_size, topic_size, NULL)
        except UnicodeDecodeError:  # the codec replaces invalid bytes
            decoded = False
        if not decoded:
            return False
        self.names = PyBytes_FromStringAndSize(<char*>at, size - 4)
        return True

    def replay(self, list run not None, Py_ssize_t start, Py_ssize_t stop, int64_t from_offset, partitions_of,
               other) -> int:
        cdef RecordReader reader
        cdef OffsetAndMetadata entry
        cdef int64_t offset
        cdef const uint8_t* key
        cdef bytes names = None     # the names for which `partitions` is valid
        cdef dict partitions = None
        cdef object partition
        cdef Py_ssize_t index, size, added = 0
        if not 0 <= start <= stop <= len(run):
            raise IndexError(f"batches {start} to {stop} of {len(run)}")
        for index in range(start, stop):
            reader = open_reader((<tuple?>run[index])[1], 0, None, 0)
            while reader.move():
                offset = reader.header.base_offset + reader.record.offset_delta
                if offset < from_offset:
                    continue
                entry = None
                key = <const uint8_t*>reader.record.key
                if reader.record.value_size >= 0 and reader.record.key_size >= 0:
                    if self._read_names(key, reader.record.key_size):
                        entry = read_value(<const uint8_t*>reader.record.value, reader.record.value_size)
                if entry is None:
                    # Replaying this record may change the store in any way, so `partitions` may no longer be part of
                    # it.
                    names = None
                    other(offset, _bytes(reader.record.key, reader.record.key_size),
                          _bytes(reader.record.value, reader.record.value_size))
                    continue
                entry.record_offset = offset
                if names is not self.names:
                    partitions = partitions_of(self.group, self.topic)
                    names = self.names
                partition = read_int32(key + reader.record.key_size - 4)
                size = len(partitions)
                partitions[partition] = entry
                added += len(partitions) - size
            from_offset = reader.header.base_offset + reader.header.last_offset_delta + 1
        return added


cdef bytes _bytes(const unsigned char* start, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>start, size)


cdef OffsetAndMetadata read_value(const uint8_t* at, Py_ssize_t size):
    """Decodes a value of any version; returns None if its layout is not exactly Kafka's."""
    if size < 2:
        return None
    cdef int version = <uint16_t>read_int16(at)
    cdef Py_ssize_t head = 14 if version >= 3 else 10  # version, offset, and the leader epoch of the newer ones
    cdef Py_ssize_t tail = 16 if version == EXPIRING_VERSION else 8
    cdef Py_ssize_t length, prefix
    cdef bint decoded = True
    if version > VALUE_VERSION or size < head + 2 + tail:
        return None
    if version == VALUE_VERSION:
        # Handles lengths of one or two bytes, and at most one tagged field. The codec handles everything else.
        if at[head] < 0x80:
            length, prefix = at[head] - 1, 1
        elif at[head + 1] < 0x80:
            length, prefix = ((at[head] & 0x7F) | (<Py_ssize_t>at[head + 1] << 7)) - 1, 2
        else:
            return None
        tail = 9
        if length < 0 or head + prefix + length + tail > size:
            return None
        if at[head + prefix + length + 8] == 1:
            tail = 27
    else:
        length, prefix = <uint16_t>read_int16(at + head), 2
    cdef const uint8_t* text = at + head + prefix
    cdef const uint8_t* end = text + length
    if length > MAX_STRING or head + prefix + length + tail != size:
        return None
    if version == VALUE_VERSION and (end[8] > 1 or (end[8] == 1 and (end[9] != 0 or end[10] != 16))):
        return None
    cdef OffsetAndMetadata entry = OffsetAndMetadata.__new__(OffsetAndMetadata)
    entry.committed_offset = read_int64(at + 2)
    entry.leader_epoch = read_int32(at + 10) if version >= 3 else -1
    if length:
        try:
            entry.metadata = PyUnicode_DecodeUTF8(<char*>text, length, NULL)
        except UnicodeDecodeError:  # the codec replaces invalid bytes
            decoded = False
        if not decoded:
            return None
    entry.commit_timestamp_ms = read_int64(end)
    entry.expire_timestamp_ms = read_int64(end + 8) if version == EXPIRING_VERSION else -1
    if tail == 27:
        memcpy(entry.topic_uuid, end + 11, 16)
    return entry


# ---- the partitions of a request

cdef enum:                      # fields of a response's partition
    INDEX = 0
    OFFSET = 1
    LEADER_EPOCH = 2
    METADATA = 3
    ERROR_CODE = 4

cdef dict FETCH_FIELDS = {
    INDEX: "partition_index",
    OFFSET: "committed_offset",
    LEADER_EPOCH: "committed_leader_epoch",
    METADATA: "metadata",
    ERROR_CODE: "error_code",
}
cdef dict fetch_layouts = {}     # by the declared classes of responses, of which there are two


cdef FieldLayout fetch_layout(object response_type):
    """Returns the layout of a response class; None for a class with other fields or its own constructor."""
    cdef Schema schema
    cdef int i
    cdef FieldLayout layout = None
    if response_type in fetch_layouts:
        return <FieldLayout>fetch_layouts[response_type]
    if isinstance(response_type, type) and issubclass(response_type, StructBase) and response_type.__init__ is StructBase.__init__:
        schema = schema_of(<PyTypeObject*>response_type)
        if sorted([<str>schema.names[i] for i in range(schema.n)]) == sorted(FETCH_FIELDS.values()):
            layout = fetch_layouts[response_type] = FieldLayout(response_type, FETCH_FIELDS)
    return layout


cdef object fetch_response(object response_type, FieldLayout layout, object index, object offset, object epoch,
                           object metadata, object code):
    """Returns the response of one partition; `layout` is None for an undeclared class."""
    cdef PyObject* values[5]
    if layout is None:
        return response_type(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            metadata=metadata,
            error_code=code,
        )
    values[INDEX] = <PyObject*>index
    values[OFFSET] = <PyObject*>offset
    values[LEADER_EPOCH] = <PyObject*>epoch
    values[METADATA] = <PyObject*>metadata
    values[ERROR_CODE] = <PyObject*>code
    return layout.make(values)


def fetch_responses(response_type, indexes, offsets, unstable, bytes topic_id):
    cdef list responses = []
    cdef OffsetAndMetadata entry
    cdef FieldLayout layout = fetch_layout(response_type)
    cdef bint any_unstable = bool(unstable)
    cdef dict plain = <dict>offsets if type(offsets) is dict else None
    cdef PyObject* found
    for index in indexes:
        code = 0
        entry = None
        if any_unstable and index in unstable:
            code = UNSTABLE_OFFSET_COMMIT
        elif plain is not None:
            found = PyDict_GetItemWithError(plain, index)
            if found is not NULL:
                entry = <OffsetAndMetadata?><object>found
        else:
            entry = offsets.get(index)
        if entry is None or (topic_id is not None and not entry.belongs_to(topic_id)):
            responses.append(fetch_response(response_type, layout, index, -1, -1, "", code))
        else:
            responses.append(
                fetch_response(
                    response_type, layout, index, entry.committed_offset, entry.leader_epoch, entry.metadata, 0
                )
            )
    return responses
