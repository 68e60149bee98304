"""The header of a record batch: parses, checks and stamps it in place; splits a run of bytes into batches."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t

from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    DELETE_HORIZON_BIT,
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
    SMALLEST_LENGTH,
    TRANSACTIONAL_BIT,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64, write_int16, write_int32, write_int64

from kcore_ext.batch.crc32c cimport crc32c_of

from typing import NamedTuple

cdef enum:
    SMALLEST_LEGACY_ENTRY = 14  # the minimum of the length field of a message of magic 0


class CorruptBatchError(ValueError):
    """Bytes that are not a well-formed record batch.

    Attributes:
        position: the position of the fault in bytes, in the buffer or, for a compressed record, in the decompressed
            records.
        reason: a description of the fault.
        fault: the failed check: "size", "magic", "crc", "count", "compression", "record" or "control".
    """

    def __init__(self, position, reason, fault="record"):
        super().__init__(position, reason, fault)
        self.position = position
        self.reason = reason
        self.fault = fault

    def __str__(self):
        return f"corrupt record batch at byte {self.position}: {self.reason}"


class SplitBatches(NamedTuple):
    """The result of `split_batches`.

    Attributes:
        batches: (position, size_bytes) of each whole batch, in order; of any magic from 0 to 2.
        end: the end of the last whole batch; the bytes after it are not a whole batch.
        error: the reason why the remaining bytes are not a batch; None if they are only truncated, or if none remain.
    """

    batches: list
    end: int
    error: object


cdef uint32_t checksum(const unsigned char* start, Py_ssize_t size) noexcept:
    return crc32c_of(start, size, 0)


@cython.final
cdef class BatchHeader:
    """The fields of a batch's header, under Kafka's names, and derived values. Created by `parse_header`.

    Attributes:
        position: the start of the batch in the buffer. The other attributes are the fields of the format.
    """

    def __init__(self):
        raise TypeError("a BatchHeader is made by parse_header")

    @property
    def size_bytes(self):
        """The size of the whole batch."""
        return LENGTH_OVERHEAD + <Py_ssize_t>self.batch_length

    @property
    def last_offset(self):
        """The offset of the last record that the batch had when it was written; compaction does not change it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self):
        """The sequence number of the last record, which wraps from 2147483647 to 0; -1 without sequence numbers."""
        if self.base_sequence < 0:
            return -1
        return (<int64_t>self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self):
        """The codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not in use."""
        return self.attributes & CODEC_BITS

    @property
    def is_log_append_time(self):
        """True if `max_timestamp_ms` is the append time, which then applies to every record."""
        return (self.attributes & LOG_APPEND_TIME_BIT) != 0

    @property
    def is_transactional(self):
        """True if the batch belongs to a transaction."""
        return (self.attributes & TRANSACTIONAL_BIT) != 0

    @property
    def is_control(self):
        """True if the batch contains a control record, which consumers never see."""
        return (self.attributes & CONTROL_BIT) != 0

    @property
    def delete_horizon_ms(self):
        """The time in ms since the epoch from which compaction may remove the batch's tombstones; -1 if not set."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_BIT else -1

    def __repr__(self):
        return (
            f"<BatchHeader base_offset={self.base_offset} last_offset_delta={self.last_offset_delta}"
            f" record_count={self.record_count} size_bytes={self.size_bytes}"
            f" leader_epoch={self.partition_leader_epoch} attributes={self.attributes:#04x}"
            f" producer={self.producer_id}/{self.producer_epoch}/{self.base_sequence}>"
        )


cdef BatchHeader read_header(const unsigned char* start, Py_ssize_t size, Py_ssize_t position):
    """Parses the header of the batch at `position` of a buffer; the rest of the batch may be missing."""
    cdef const unsigned char* at = start + position
    cdef BatchHeader header
    if position < 0 or position > size:
        raise ValueError(f"position {position} is outside of the buffer of {size} bytes")
    if size - position > MAGIC_AT and <int8_t>at[MAGIC_AT] != 2:
        raise CorruptBatchError(position + MAGIC_AT, f"magic {<int8_t>at[MAGIC_AT]} instead of 2", "magic")
    if size - position < HEADER_BYTES:
        raise CorruptBatchError(position, f"{size - position} bytes are too few for a header of {HEADER_BYTES}", "size")
    header = BatchHeader.__new__(BatchHeader)
    header.position = position
    header.base_offset = read_int64(at)
    header.batch_length = read_int32(at + LENGTH_AT)
    header.partition_leader_epoch = read_int32(at + LEADER_EPOCH_AT)
    header.magic = 2
    header.crc = <uint32_t>read_int32(at + CRC_AT)
    header.attributes = read_int16(at + ATTRIBUTES_AT)
    header.last_offset_delta = read_int32(at + LAST_DELTA_AT)
    header.base_timestamp_ms = read_int64(at + BASE_TIMESTAMP_AT)
    header.max_timestamp_ms = read_int64(at + MAX_TIMESTAMP_AT)
    header.producer_id = read_int64(at + PRODUCER_ID_AT)
    header.producer_epoch = read_int16(at + PRODUCER_EPOCH_AT)
    header.base_sequence = read_int32(at + BASE_SEQUENCE_AT)
    header.record_count = read_int32(at + COUNT_AT)
    if header.batch_length < SMALLEST_LENGTH:
        raise CorruptBatchError(position + 8, f"length {header.batch_length} is below {SMALLEST_LENGTH}", "size")
    return header


cdef BatchHeader read_whole(const unsigned char* start, Py_ssize_t size, Py_ssize_t position):
    """Parses the header of a batch that must be complete."""
    cdef BatchHeader header = read_header(start, size, position)
    if header.batch_length > size - position - LENGTH_OVERHEAD:
        raise CorruptBatchError(
            position + 8, f"length {header.batch_length}, but {size - position - LENGTH_OVERHEAD} bytes follow", "size"
        )
    return header


cdef int check_crc(const unsigned char* start, BatchHeader header) except -1:
    cdef const unsigned char* at = start + header.position
    cdef uint32_t found = checksum(at + CHECKED_FROM, LENGTH_OVERHEAD + <Py_ssize_t>header.batch_length - CHECKED_FROM)
    if found != header.crc:
        raise CorruptBatchError(header.position + CRC_AT, f"crc {header.crc:#010x}, computed {found:#010x}", "crc")
    return 0


def parse_header(buffer, Py_ssize_t position=0):
    """Parses the header of the batch at `position`. Ignores its records, which may be truncated.

    Raises:
        CorruptBatchError: fewer than 61 bytes, a magic other than 2, or a length below that of an empty batch.
        ValueError: position lies outside the buffer.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return read_header(<const unsigned char*>view.buf, view.len, position)
    finally:
        PyBuffer_Release(&view)


def validate_crc(buffer, Py_ssize_t position=0):
    """Checks size, magic and CRC-32C of the batch at `position`.

    Returns:
        True; a fault raises an exception.

    Raises:
        CorruptBatchError: the batch is truncated, has another magic, or does not match its CRC.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        check_crc(<const unsigned char*>view.buf, read_whole(<const unsigned char*>view.buf, view.len, position))
    finally:
        PyBuffer_Release(&view)
    return True


def stamp(buffer, int64_t base_offset, int32_t leader_epoch, Py_ssize_t position=0):
    """Sets base offset and leader epoch of the batch at `position` in place; its CRC does not cover them.

    Raises:
        CorruptBatchError: see parse_header. BufferError: the buffer cannot be written.
    """
    cdef Py_buffer view
    cdef unsigned char* at
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        read_header(<const unsigned char*>view.buf, view.len, position)
        at = <unsigned char*>view.buf + position
        write_int64(at, base_offset)
        write_int32(at + LEADER_EPOCH_AT, leader_epoch)
    finally:
        PyBuffer_Release(&view)


def stamped(buffer, int64_t base_offset, int32_t leader_epoch):
    """Returns a copy of the only batch v2 in `buffer`, with another base offset and leader epoch. Also sets both in
    `buffer` if that is a bytearray.

    Returns:
        The tuple (copy, last offset delta); None if the buffer does not consist of exactly one batch v2.
    """
    cdef int32_t last_delta = 0
    cdef bytes made = copy_stamped(buffer, base_offset, leader_epoch, &last_delta)
    return None if made is None else (made, last_delta)


cdef bytes copy_stamped(object buffer, int64_t base_offset, int32_t leader_epoch, int32_t* last_delta):
    """Copies and stamps a batch like `stamped`, at C level."""
    cdef Py_buffer view
    cdef unsigned char* at
    cdef bytes made
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        at = <unsigned char*>view.buf
        if view.len < HEADER_BYTES or read_int32(at + LENGTH_AT) != view.len - LENGTH_OVERHEAD or at[MAGIC_AT] != 2:
            return None
        last_delta[0] = read_int32(at + LAST_DELTA_AT)
        if last_delta[0] < 0:
            return None
        if type(buffer) is bytearray:
            write_int64(at, base_offset)
            write_int32(at + LEADER_EPOCH_AT, leader_epoch)
        made = PyBytes_FromStringAndSize(<char*>at, view.len)
    finally:
        PyBuffer_Release(&view)
    at = <unsigned char*>PyBytes_AS_STRING(made)
    write_int64(at, base_offset)
    write_int32(at + LEADER_EPOCH_AT, leader_epoch)
    return made


def stamp_append_time(buffer, int64_t timestamp_ms, Py_ssize_t position=0):
    """Sets the append time (LogAppendTime) of the batch at `position` in place, with a new CRC.

    Base timestamp and deltas stay unchanged; readers take the time from the batch for every record.

    Raises:
        CorruptBatchError: see validate_crc (the old CRC is not checked). BufferError: the buffer cannot be written.
    """
    cdef Py_buffer view
    cdef unsigned char* at
    cdef BatchHeader header
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        header = read_whole(<const unsigned char*>view.buf, view.len, position)
        at = <unsigned char*>view.buf + position
        write_int16(at + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
        write_int64(at + MAX_TIMESTAMP_AT, timestamp_ms)
        write_int32(at + CRC_AT, <int32_t>checksum(at + CHECKED_FROM, header.size_bytes - CHECKED_FROM))
    finally:
        PyBuffer_Release(&view)


def split_batches(buffer):
    """Finds the whole batches in a run of bytes, such as the records of a produce request, by their lengths only.

    Returns:
        The batches, as `SplitBatches`. Batches of magic 0 and 1 (one message each) are included, so that a broker can
        refuse them with the error for old formats.
    """
    cdef Py_buffer view
    cdef const unsigned char* start
    cdef Py_ssize_t at = 0
    cdef int32_t length
    cdef int8_t magic
    cdef list batches = []
    error = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = <const unsigned char*>view.buf
        while view.len - at > MAGIC_AT:
            length = read_int32(start + at + LENGTH_AT)
            magic = <int8_t>start[at + MAGIC_AT]
            if magic < 0 or magic > 2:
                error = CorruptBatchError(at + MAGIC_AT, f"magic {magic} is not 0, 1 or 2", "magic")
                break
            if length < (SMALLEST_LENGTH if magic == 2 else SMALLEST_LEGACY_ENTRY):
                error = CorruptBatchError(at + LENGTH_AT, f"length {length} is too small for magic {magic}", "size")
                break
            if length > view.len - at - LENGTH_OVERHEAD:
                break
            batches.append((at, LENGTH_OVERHEAD + <Py_ssize_t>length))
            at += LENGTH_OVERHEAD + <Py_ssize_t>length
    finally:
        PyBuffer_Release(&view)
    return SplitBatches(batches, at, error)
