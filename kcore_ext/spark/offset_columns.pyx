"""Converts committed offsets to Arrow's layout, as table rows or records, and table rows back to the engine's state."""


cimport cython
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

from kcore_ext.codec.plan cimport BOOL, BYTES, INT32, INT64, STRING
from kcore_ext.spark.column_store cimport (
    Bytes, Column, ColumnNode, Input, finish_all, make_room, pad, scalar_column, put_bytes, put_flag, put_int32, put_int64, reserve,
    truncate,
)
from kcore_ext.group.offsets cimport (
    EXPIRING_VERSION, VALUE_VERSION, OffsetAndMetadata, key_size, put_key, put_value, value_size,
)
from kcore_ext.util.shared_text cimport shared_text

cdef enum:
    UUID_BYTES = 16

cdef const char* DIGITS = b"0123456789abcdef"
cdef const char* ZERO_BYTES = b"\0" * 16


@cython.final
cdef class OffsetColumns:
    cdef list nodes
    cdef Column* columns[13]
    cdef int32_t coordinator_partition

    def __cinit__(self, int32_t coordinator_partition):
        cdef int i
        kinds = [
            INT32, STRING, STRING, INT32, BOOL, INT64, INT64, INT32, STRING, INT64, INT64, STRING, INT64,
        ]
        self.nodes = [scalar_column(kind) for kind in kinds]
        for i in range(len(kinds)):
            self.columns[i] = &(<ColumnNode>self.nodes[i]).column
        self.coordinator_partition = coordinator_partition

    def __len__(self):
        return self.columns[0].length

    def add(self, str group not None, str topic not None, int32_t partition, OffsetAndMetadata offset not None,
            int64_t producer_id=-1):
        cdef Py_ssize_t row = self.columns[0].length
        self._reserve(1)
        try:
            self._put(group, topic, partition, offset, producer_id)
        except:
            self._truncate(row)
            raise

    cdef int _reserve(self, Py_ssize_t rows) except -1:
        cdef int i
        for i in range(13):
            if reserve(self.columns[i], rows) < 0:
                raise MemoryError
        return 0

    cdef int _truncate(self, Py_ssize_t rows) except -1:
        cdef int i
        for i in range(13):
            truncate(self.columns[i], rows)
        return 0

    cdef int _put(self, str group, str topic, int32_t partition, OffsetAndMetadata offset, int64_t producer_id) except -1:
        put_int32(self.columns[0], self.coordinator_partition)
        put_str(self.columns[1], group)
        put_str(self.columns[2], topic)
        put_int32(self.columns[3], partition)
        put_flag(self.columns[4], producer_id >= 0)
        put_known(self.columns[5], producer_id)
        put_int64(self.columns[6], offset.committed_offset)
        put_int32(self.columns[7], offset.leader_epoch)
        put_str(self.columns[8], offset.metadata)
        put_int64(self.columns[9], offset.commit_timestamp_ms)
        put_int64(self.columns[10], offset.expire_timestamp_ms)
        put_uuid(self.columns[11], <const unsigned char*>offset.topic_uuid)
        put_int64(self.columns[12], offset.record_offset)
        return 0

    def add_all(self, str group not None, str topic not None, partitions not None):
        cdef Py_ssize_t row = self.columns[0].length
        cdef list offsets = list(partitions.items())
        self._reserve(len(offsets))
        try:
            for partition, offset in offsets:
                self._put(group, topic, partition, <OffsetAndMetadata?>offset, -1)
        except:
            self._truncate(row)
            raise

    def take(self):
        return finish_all(self.nodes)


@cython.final
cdef class OffsetRecords:
    cdef list nodes
    cdef Column* columns[4]     # key, value, offset, timestamp in ms

    def __cinit__(self):
        cdef int i
        self.nodes = [scalar_column(kind) for kind in (BYTES, BYTES, INT64, INT64)]
        for i in range(4):
            self.columns[i] = &(<ColumnNode>self.nodes[i]).column

    def __len__(self):
        return self.columns[0].length

    def add_all(self, str group not None, str topic not None, partitions not None):
        cdef Py_ssize_t row = self.columns[0].length
        cdef int i
        try:
            for partition, offset in partitions.items():
                self._add(group, topic, partition, offset)
        except:
            for i in range(4):
                truncate(self.columns[i], row)
            raise

    cdef int _add(self, str group, str topic, int32_t partition, OffsetAndMetadata entry) except -1:
        cdef int i
        # Only records of version 1 have an expiration time, and such records have no fields that version 1 lacks.
        cdef int version = VALUE_VERSION if entry.expire_timestamp_ms == -1 else EXPIRING_VERSION
        cdef Py_ssize_t key_bytes = key_size(group, topic)
        cdef Py_ssize_t value_bytes = value_size(entry, version)
        for i in range(4):
            if reserve(self.columns[i], 1) < 0:
                raise MemoryError
        put_key(grown(self.columns[0], key_bytes), group, topic, partition)
        put_value(grown(self.columns[1], value_bytes), entry, version)
        put_int64(self.columns[2], entry.record_offset)
        put_int64(self.columns[3], entry.commit_timestamp_ms)
        return 0

    def take(self):
        return finish_all(self.nodes)


cdef unsigned char* grown(Column* column, Py_ssize_t size) except NULL:
    """Appends a value of `size` bytes, and returns the address at which the caller must write the bytes."""
    if make_room(column, size) < 0:
        raise MemoryError
    cdef unsigned char* at = column.values + column.size
    column.size += size
    column.length += 1
    column.offsets[column.length] = <int32_t>column.size
    return at


cdef int put_known(Column* column, int64_t number) except -1:
    """Appends a number, or null for a negative one."""
    if number >= 0:
        put_int64(column, number)
    elif pad(column, 1, True) < 0:
        raise MemoryError
    return 0


cdef int put_str(Column* column, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* encoded = PyUnicode_AsUTF8AndSize(text, &size)
    if put_bytes(column, <const unsigned char*>encoded, size) < 0:
        raise MemoryError
    return 0


cdef int put_uuid(Column* column, const unsigned char* uuid) except -1:
    """Appends a topic id as hexadecimal digits, or null for a zero id."""
    cdef unsigned char digits[2 * UUID_BYTES]
    cdef int i
    if memcmp(uuid, ZERO_BYTES, UUID_BYTES) == 0:
        if pad(column, 1, True) < 0:
            raise MemoryError
        return 0
    for i in range(UUID_BYTES):
        digits[2 * i] = DIGITS[uuid[i] >> 4]
        digits[2 * i + 1] = DIGITS[uuid[i] & 15]
    if put_bytes(column, digits, 2 * UUID_BYTES) < 0:
        raise MemoryError
    return 0


def load_offsets(Py_ssize_t size, list columns not None, topics_of):
    cdef Input group, topic, partition, committed, leader_epoch, metadata, commit_ms, expire_ms, topic_id, record_offset
    group, topic, partition, committed, leader_epoch, metadata, commit_ms, expire_ms, topic_id, record_offset = columns
    cdef OffsetAndMetadata entry
    cdef dict topics = None
    cdef dict partitions = None
    cdef str name
    cdef Bytes of_group, of_topic, text
    cdef Bytes last_group = Bytes(NULL, 0)
    cdef Bytes last_topic = Bytes(NULL, 0)
    cdef Py_ssize_t row, before, added = 0
    for row in range(size):
        group.get(row, &of_group)
        topic.get(row, &of_topic)
        if of_group.at == NULL or of_topic.at == NULL:
            raise ValueError("an offset has no group or no topic")
        if topics is None or not are_equal(&of_group, &last_group):
            topics = topics_of(decoded(&of_group))
            partitions = None
            last_group = of_group
        if partitions is None or not are_equal(&of_topic, &last_topic):
            name = shared_text(decoded(&of_topic))
            partitions = topics.get(name)
            if partitions is None:
                partitions = topics[name] = {}
            last_topic = of_topic
        entry = OffsetAndMetadata.__new__(OffsetAndMetadata)
        entry.record_offset = int64_of(record_offset, row)
        entry.committed_offset = int64_of(committed, row)
        entry.leader_epoch = int32_of(leader_epoch, row)
        entry.commit_timestamp_ms = int64_of(commit_ms, row)
        entry.expire_timestamp_ms = int64_of(expire_ms, row)
        metadata.get(row, &text)
        if text.size:
            entry.metadata = decoded(&text)
        topic_id.get(row, &text)
        if text.at != NULL:
            read_uuid(&text, <unsigned char*>entry.topic_uuid)
        before = len(partitions)
        partitions[int32_of(partition, row)] = entry
        added += len(partitions) - before
    return added


cdef inline bint are_equal(Bytes* one, Bytes* other) noexcept:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef inline str decoded(Bytes* text):
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef inline int64_t int64_of(Input column, Py_ssize_t row) noexcept:
    return (<const int64_t*>column.views[2].buf)[column.first + row]


cdef inline int32_t int32_of(Input column, Py_ssize_t row) noexcept:
    return (<const int32_t*>column.views[2].buf)[column.first + row]


cdef int read_uuid(Bytes* text, unsigned char* uuid) except -1:
    """Reads a topic id from hexadecimal digits."""
    cdef int i
    cdef unsigned char digit, number
    if text.size != 2 * UUID_BYTES:
        raise ValueError(f"a topic id has {2 * UUID_BYTES} digits, not {text.size}")
    for i in range(2 * UUID_BYTES):
        digit = text.at[i]
        if c"0" <= digit <= c"9":
            number = digit - c"0"
        elif c"a" <= digit <= c"f":
            number = digit - c"a" + 10
        else:
            raise ValueError("a topic id has hexadecimal digits only")
        uuid[i >> 1] = <unsigned char>(uuid[i >> 1] << 4 | number)
    return 0
