"""Builds record batches."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from kcore_ext.batch.header cimport checksum
from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
    put_varint,
    varint_size,
)
from kcore_ext.batch.records cimport RecordReader, RecordView
from kcore_ext.util.byte_order cimport write_int16, write_int32, write_int64

cdef enum:
    HIGHEST_CODEC = 4
    FIRST_CAPACITY = 512    # four coordinator records; Python's allocator is fast up to this size
    GROWTH = 4              # each growth copies the buffer
    MARKER_BYTES = 128  # more than an end marker needs
    INT32_MAX = 0x7FFFFFFF

cdef bytes NO_HEADERS = b"\0"     # a count of 0


cdef bytes encode_headers(object headers):
    """Encodes the header count and the headers of a record."""
    cdef unsigned char size[10]
    cdef bytearray out = bytearray()
    out += (<char*>size)[: put_varint(size, len(headers)) - size]
    for name, value in headers:
        name = (<str?>name).encode()
        out += (<char*>size)[: put_varint(size, len(name)) - size]
        out += name
        if value is None:
            out += b"\x01"  # -1 in zig-zag
        else:
            value = as_bytes(value)
            out += (<char*>size)[: put_varint(size, len(value)) - size]
            out += value
    return bytes(out)


cdef inline bytes as_bytes(object data):
    """Converts any buffer to bytes; None stays None. (`bytes(5)` would be five zeros.)"""
    if data is None or type(data) is bytes:
        return <bytes>data
    return bytes(memoryview(data))


@cython.final
cdef class BatchBuilder:
    """The builder of a batch: it collects records and encodes them.

    Args:
        max_size_bytes: the maximum size of the batch including its header, 61 to 2^31 - 1.
        base_timestamp_ms: the batch's base timestamp; with log_append_time the append time of every record.
        producer_id, producer_epoch, base_sequence: the fields of an idempotent or transactional producer; -1 for none.
        transactional, control: True to set these bits of the attributes.
        compression: codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        compress: `compress(codec, data) -> bytes`; needed for any codec but 0. If compression does not shrink the
            records, the batch stays uncompressed, so that the limit holds.
        keeps_codec: True to use the compressed records even if they are longer, as Kafka's brokers do, unless the batch
            then exceeds the limit.
        log_append_time: True if the timestamps are the time of the append, not that of the producer.

    Attributes:
        count: the number of records.
        size_bytes: the size of the result of `build` before compression.
        last_offset_delta: the delta of the last record; -1 before the first record.
        producer_id, producer_epoch, base_timestamp_ms, transactional: the arguments of the constructor.
        max_timestamp_ms: the largest timestamp.
        marker: the tuple (coordinator epoch, True for a commit, transaction.version) if the batch is an end marker,
            else None.

    Raises:
        ValueError: a number is out of its range, or there is a codec without `compress`.
    """

    def __cinit__(self):
        self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.last_offset_delta = -1

    def __init__(
        self, Py_ssize_t max_size_bytes, *, int64_t base_timestamp_ms, int64_t producer_id=-1,
        int16_t producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False, bint control=False,
        int compression=0, compress=None, bint keeps_codec=False, bint log_append_time=False,
    ):
        if not HEADER_BYTES <= max_size_bytes <= INT32_MAX:
            raise ValueError(f"max_size_bytes must be from {HEADER_BYTES} to {INT32_MAX}, not {max_size_bytes}")
        if not 0 <= compression <= HIGHEST_CODEC:
            raise ValueError(f"compression must be from 0 to {HIGHEST_CODEC}, not {compression}")
        if compression and compress is None:
            raise ValueError(f"codec {compression} needs the argument compress")
        self.max_size_bytes = max_size_bytes
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = base_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.attributes = compression
        if log_append_time:
            self.attributes |= LOG_APPEND_TIME_BIT
        if transactional:
            self.attributes |= TRANSACTIONAL_BIT
        if control:
            self.attributes |= CONTROL_BIT
        self.compress = compress
        self.keeps_codec = keeps_codec

    def __dealloc__(self):
        PyMem_Free(self.records)

    @property
    def transactional(self):
        """True if the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def size_bytes(self):
        """The size of the batch so far, its header included, before compression."""
        return HEADER_BYTES + self.records_size

    def append(self, int64_t timestamp_ms, key, value, headers=(), *, int32_t offset_delta=-1):
        """Adds a record.

        Args:
            timestamp_ms: the create time of the record.
            key, value: bytes, any buffer, or None.
            headers: sequence of (str, bytes or None).
            offset_delta: the offset of the record within the batch. It must be above the delta of the last record, and
                may leave a gap, as in a compacted log. -1: the next delta.

        Returns:
            False if the batch has no room for the record, and is unchanged.

        Raises:
            ValueError: offset_delta is not above the last record's.
        """
        return self.add(
            timestamp_ms, as_bytes(key), as_bytes(value), encode_headers(headers) if headers else NO_HEADERS, offset_delta
        )

    def build(self, int64_t base_offset=0, int32_t leader_epoch=-1, *, int32_t last_offset_delta=-1):
        """Returns the batch as bytes. The builder is unchanged, so that more records and another build may follow.

        Args:
            base_offset: the offset of the batch. The log sets it later.
            leader_epoch: the epoch of the partition. The log sets it later.
            last_offset_delta: for a compacted batch, the delta of the last record that it had before the compaction;
                -1: the delta of the last record in the builder.

        Raises:
            ValueError: the batch is empty and no last_offset_delta is given, or last_offset_delta is below the last
                record's.
        """
        return self.built(base_offset, leader_epoch, last_offset_delta)

    cdef bytes built(self, int64_t base_offset, int32_t leader_epoch, int32_t last_offset_delta):
        cdef int32_t last = self.checked_last(last_offset_delta)
        cdef bytes packed = self.pack()
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.built_size(packed))
        self.write(<unsigned char*>PyBytes_AS_STRING(out), packed, base_offset, leader_epoch, last)
        return out

    def build_bytearray(self, int64_t base_offset=0, int32_t leader_epoch=-1, *, int32_t last_offset_delta=-1):
        """Returns the batch as a bytearray, which a log can stamp in place without another copy."""
        cdef int32_t last = self.checked_last(last_offset_delta)
        cdef bytes packed = self.pack()
        cdef bytearray out = PyByteArray_FromStringAndSize(NULL, self.built_size(packed))
        self.write(<unsigned char*>PyByteArray_AS_STRING(out), packed, base_offset, leader_epoch, last)
        return out

    def record_bytes(self):
        """Returns the bytes of the records before compression."""
        return PyBytes_FromStringAndSize(<char*>self.records, self.records_size)

    def set_producer(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """Sets the producer fields for the next `build`, for example to send the same records with a new sequence."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def __repr__(self):
        return f"<BatchBuilder count={self.count} size_bytes={HEADER_BYTES + self.records_size}>"

    cdef bint add(self, int64_t timestamp_ms, bytes key, bytes value, bytes headers, int32_t offset_delta) except -1:
        """Adds a record; `headers` is the result of encode_headers."""
        # A difference beyond 64 bits wraps around, as in Java; the addition in the reader reverses this.
        cdef int64_t timestamp_delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self.base_timestamp_ms)
        cdef Py_ssize_t key_size = -1 if key is None else PyBytes_GET_SIZE(key)
        cdef Py_ssize_t value_size = -1 if value is None else PyBytes_GET_SIZE(value)
        cdef Py_ssize_t headers_size = PyBytes_GET_SIZE(headers)
        cdef Py_ssize_t size
        cdef unsigned char* at
        if offset_delta < 0:
            if self.last_offset_delta == INT32_MAX:
                return False
            offset_delta = self.last_offset_delta + 1
        elif offset_delta <= self.last_offset_delta:
            raise ValueError(f"offset delta {offset_delta} after {self.last_offset_delta}")
        size = 1 + headers_size + varint_size(timestamp_delta) + varint_size(offset_delta)
        size += varint_size(key_size) + varint_size(value_size)
        size += (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
        if HEADER_BYTES + self.records_size + varint_size(size) + size > self.max_size_bytes:
            return False
        self.reserve(varint_size(size) + size)
        at = put_varint(self.records + self.records_size, size)
        at[0] = 0  # attributes: none are in use
        at = put_varint(at + 1, timestamp_delta)
        at = put_varint(at, offset_delta)
        at = put_varint(at, key_size)
        if key_size > 0:
            memcpy(at, PyBytes_AS_STRING(key), key_size)
            at += key_size
        at = put_varint(at, value_size)
        if value_size > 0:
            memcpy(at, PyBytes_AS_STRING(value), value_size)
            at += value_size
        memcpy(at, PyBytes_AS_STRING(headers), headers_size)
        self.records_size += varint_size(size) + size
        self.last_offset_delta = offset_delta
        if not self.attributes & LOG_APPEND_TIME_BIT and (self.count == 0 or timestamp_ms > self.max_timestamp_ms):
            self.max_timestamp_ms = timestamp_ms
        self.count += 1
        return True

    cdef unsigned char* begin_record(self, int64_t timestamp_ms, Py_ssize_t key_size, Py_ssize_t value_size) except? NULL:
        """Adds a record without its key and value. The caller then writes both at the returned position.

        `builder.pxd` documents the layout. Returns NULL if the batch is full.
        """
        cdef int64_t timestamp_delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>self.base_timestamp_ms)
        cdef int32_t offset_delta = self.last_offset_delta + 1
        cdef Py_ssize_t size = 2 + varint_size(timestamp_delta) + varint_size(offset_delta)
        cdef unsigned char* at
        if self.last_offset_delta == INT32_MAX:
            return NULL
        size += varint_size(key_size) + varint_size(value_size) + key_size + value_size
        if HEADER_BYTES + self.records_size + varint_size(size) + size > self.max_size_bytes:
            return NULL
        self.reserve(varint_size(size) + size)
        at = put_varint(self.records + self.records_size, size)
        at[0] = 0  # attributes: none are in use
        at = put_varint(at + 1, timestamp_delta)
        at = put_varint(at, offset_delta)
        self.records_size += varint_size(size) + size
        self.last_offset_delta = offset_delta
        if not self.attributes & LOG_APPEND_TIME_BIT and (self.count == 0 or timestamp_ms > self.max_timestamp_ms):
            self.max_timestamp_ms = timestamp_ms
        self.count += 1
        return put_varint(at, key_size)

    cdef int reserve(self, Py_ssize_t size) except -1:
        """Reserves `size` more bytes for records."""
        cdef Py_ssize_t capacity = self.capacity
        cdef unsigned char* records
        if self.records_size + size <= capacity:
            return 0
        if not capacity:
            capacity = min(FIRST_CAPACITY, self.max_size_bytes)
        while capacity < self.records_size + size:
            capacity *= GROWTH
        records = <unsigned char*>PyMem_Realloc(self.records, capacity)
        if records is NULL:
            raise MemoryError
        self.records = records
        self.capacity = capacity
        return 0

    cdef int32_t checked_last(self, int32_t last_offset_delta) except -1:
        """Validates and returns the last offset delta that `build` writes."""
        if last_offset_delta < 0 and self.count:
            return self.last_offset_delta
        if last_offset_delta < 0:
            raise ValueError("an empty batch has no last offset")
        if last_offset_delta < self.last_offset_delta:
            raise ValueError(f"last offset delta {last_offset_delta} is below {self.last_offset_delta}, the last one")
        return last_offset_delta

    cdef bytes pack(self):
        """Returns the compressed records; None if they are written uncompressed."""
        cdef bytes packed
        if not self.attributes & CODEC_BITS:
            return None
        packed = <bytes?>self.compress(
            self.attributes & CODEC_BITS, PyBytes_FromStringAndSize(<char*>self.records, self.records_size)
        )
        if PyBytes_GET_SIZE(packed) < self.records_size:
            return packed
        return packed if self.keeps_codec and self.built_size(packed) <= self.max_size_bytes else None

    cdef Py_ssize_t built_size(self, bytes packed) noexcept:
        return HEADER_BYTES + (self.records_size if packed is None else PyBytes_GET_SIZE(packed))

    cdef int write(
        self, unsigned char* out, bytes packed, int64_t base_offset, int32_t leader_epoch, int32_t last_offset_delta
    ) except -1:
        """Writes the whole batch to `out`, which has `built_size(packed)` bytes."""
        cdef Py_ssize_t size = self.built_size(packed)
        write_int64(out, base_offset)
        write_int32(out + LENGTH_AT, <int32_t>(size - LENGTH_OVERHEAD))
        write_int32(out + LEADER_EPOCH_AT, leader_epoch)
        out[MAGIC_AT] = 2
        write_int16(out + ATTRIBUTES_AT, self.attributes if packed is not None else self.attributes & ~CODEC_BITS)
        write_int32(out + LAST_DELTA_AT, last_offset_delta)
        write_int64(out + BASE_TIMESTAMP_AT, self.base_timestamp_ms)
        write_int64(out + MAX_TIMESTAMP_AT, self.max_timestamp_ms)
        write_int64(out + PRODUCER_ID_AT, self.producer_id)
        write_int16(out + PRODUCER_EPOCH_AT, self.producer_epoch)
        write_int32(out + BASE_SEQUENCE_AT, self.base_sequence)
        write_int32(out + COUNT_AT, self.count)
        if packed is not None:
            memcpy(out + HEADER_BYTES, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        elif self.records_size:
            memcpy(out + HEADER_BYTES, self.records, self.records_size)
        write_int32(out + CRC_AT, <int32_t>checksum(out + CHECKED_FROM, size - CHECKED_FROM))
        return 0


cdef BatchBuilder non_transactional_builder(Py_ssize_t max_size_bytes, int64_t base_timestamp_ms):
    cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
    builder.max_size_bytes = max_size_bytes
    builder.base_timestamp_ms = base_timestamp_ms
    builder.max_timestamp_ms = base_timestamp_ms
    return builder


cdef BatchBuilder transactional_builder(
    Py_ssize_t max_size_bytes, int64_t base_timestamp_ms, int64_t producer_id, int16_t producer_epoch
):
    cdef BatchBuilder builder = non_transactional_builder(max_size_bytes, base_timestamp_ms)
    builder.producer_id = producer_id
    builder.producer_epoch = producer_epoch
    builder.attributes = TRANSACTIONAL_BIT
    return builder


cdef BatchBuilder end_marker(
    bint commit, int32_t coordinator_epoch, int64_t producer_id, int16_t producer_epoch, int64_t timestamp_ms,
    int transaction_version,
):
    cdef BatchBuilder builder = transactional_builder(MARKER_BYTES, timestamp_ms, producer_id, producer_epoch)
    cdef unsigned char* at
    builder.attributes |= CONTROL_BIT
    builder.marker = (coordinator_epoch, commit, transaction_version)
    at = builder.begin_record(timestamp_ms, 4, 6)
    write_int16(at, 0)                      # version of the key
    write_int16(at + 2, commit)
    at = put_varint(at + 4, 6)
    write_int16(at, 0)                      # version of the value
    write_int32(at + 2, coordinator_epoch)
    at[6] = 0                           # no headers
    return builder


cdef bytes raw_headers(RecordView* record):
    """Returns the bytes of the header count and the headers of a checked record."""
    cdef unsigned char count[10]
    cdef Py_ssize_t count_size
    cdef Py_ssize_t size = record.end - record.headers
    cdef bytes out
    if not record.header_count:
        return NO_HEADERS
    count_size = put_varint(count, record.header_count) - count
    out = PyBytes_FromStringAndSize(NULL, count_size + size)
    memcpy(PyBytes_AS_STRING(out), count, count_size)
    memcpy(PyBytes_AS_STRING(out) + count_size, record.headers, size)
    return out


def copy_records(
    RecordReader reader not None, BatchBuilder builder not None, Py_ssize_t max_records, Py_ssize_t max_bytes
):
    """Copies the next records of a batch with new offsets. Headers are copied as bytes, without decoding them.

    If the builder is empty, the first copied record sets the base timestamp, unless the builder has an append time.

    Args:
        reader: the result of `iter_records`.
        builder: receives the records.
        max_records: the largest number of records to copy.
        max_bytes: the number of copied bytes after which the function returns.

    Returns:
        True if the batch may have further records.

    Raises:
        CorruptBatchError: a record is malformed; the records before it were copied.
        ValueError: the builder is full.
    """
    cdef Py_ssize_t left = max_records
    cdef Py_ssize_t full = builder.records_size + max_bytes
    cdef int64_t timestamp_ms
    while left > 0 and builder.records_size < full:
        if not reader.move():
            return False
        left -= 1
        if reader.header.attributes & LOG_APPEND_TIME_BIT:
            timestamp_ms = reader.header.max_timestamp_ms
        else:
            timestamp_ms = <int64_t>(
                <uint64_t>reader.header.base_timestamp_ms + <uint64_t>reader.record.timestamp_delta
            )
        if not builder.count and not builder.attributes & LOG_APPEND_TIME_BIT:
            builder.base_timestamp_ms = timestamp_ms
        if not builder.add(
            timestamp_ms,
            None if reader.record.key_size < 0
            else PyBytes_FromStringAndSize(<const char*>reader.record.key, reader.record.key_size),
            None if reader.record.value_size < 0
            else PyBytes_FromStringAndSize(<const char*>reader.record.value, reader.record.value_size),
            raw_headers(&reader.record),
            -1,
        ):
            raise ValueError("the builder is full")
    return True


def marker_builder(
    int16_t control_type, int32_t coordinator_epoch, *, int64_t producer_id, int16_t producer_epoch,
    int64_t timestamp_ms, int transaction_version=0,
) -> BatchBuilder:
    """Returns the builder of a transactional control batch whose only record is the end marker of a transaction.

    Args:
        control_type: 0 ABORT, 1 COMMIT.
        coordinator_epoch: the epoch of the transaction coordinator that ended the transaction.
        transaction_version: the transaction.version with which the transaction ended. The batch does not contain it;
            only the property `marker` of the builder does.

    Raises:
        ValueError: control_type is neither 0 nor 1.
    """
    if not 0 <= control_type <= 1:
        raise ValueError(f"an end marker is 0 ABORT or 1 COMMIT, not {control_type}")
    return end_marker(
        control_type == 1, coordinator_epoch, producer_id, producer_epoch, timestamp_ms, transaction_version
    )


def build_control_batch(
    int16_t control_type, int32_t coordinator_epoch, *, int64_t producer_id, int16_t producer_epoch,
    int64_t timestamp_ms, int64_t base_offset=0, int32_t leader_epoch=-1,
):
    """Returns the batch of `marker_builder` as bytes."""
    return marker_builder(
        control_type,
        coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp_ms,
    ).build(base_offset, leader_epoch)
