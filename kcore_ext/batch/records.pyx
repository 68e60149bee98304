"""The records of a batch: iterates over them lazily, checks a whole batch, reads control batches."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from kcore_ext.batch.header cimport BatchHeader, check_crc, read_whole
from kcore_ext.batch.layout cimport (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    get_varint,
    get_varlong,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32

from kcore_ext.batch.header import CorruptBatchError

cdef enum:
    SMALLEST_RECORD = 7          # seven one-byte fields
    HIGHEST_CODEC = 4

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""The maximum size of one compressed batch's records: well above any broker's message.max.bytes, and far below the
memory of a server.
"""


# ---------------------------------------------------------------- one record

cdef inline const unsigned char* get_field(
    const unsigned char* at, const unsigned char* end, int32_t* size, const unsigned char** start
) noexcept nogil:
    """Reads a varint length (-1: null), and then this number of bytes.

    Returns the end of these bytes; NULL if they exceed the buffer.
    """
    at = get_varint(at, end, size)
    if at is NULL or size[0] < -1 or size[0] > end - at:
        return NULL
    start[0] = at
    return at if size[0] < 0 else at + size[0]


cdef const char* parse_record(
    const unsigned char** at, const unsigned char* limit, RecordView* record
) noexcept nogil:
    """Reads the record at `at` and moves `at` to the end of the record.

    Returns NULL, or a text that describes the fault of the record.
    """
    cdef const unsigned char* here
    cdef const unsigned char* end
    cdef const unsigned char* ignored
    cdef const unsigned char* value
    cdef int32_t size = 0, index
    here = get_varint(at[0], limit, &size)
    if here is NULL:
        return "the length of a record is cut short or too long"
    if size < 0 or size > limit - here:
        return "a record is longer than what is left of the batch"
    end = here + size
    if size == 0:
        return "a record without attributes"
    here = get_varlong(here + 1, end, &record.timestamp_delta)
    if here is NULL:
        return "a timestamp delta is cut short or too long"
    here = get_varint(here, end, &record.offset_delta)
    if here is NULL:
        return "an offset delta is cut short or too long"
    here = get_field(here, end, &record.key_size, &record.key)
    if here is NULL:
        return "a key does not fit in its record"
    here = get_field(here, end, &record.value_size, &record.value)
    if here is NULL:
        return "a value does not fit in its record"
    here = get_varint(here, end, &record.header_count)
    if here is NULL or record.header_count < 0 or record.header_count > end - here:
        return "a header count is negative or does not fit in its record"
    record.headers = here
    record.end = end
    for index in range(record.header_count):
        # A record may have millions of headers, and nearly all of their lengths have one byte. This byte is odd only
        # for a negative length, such as -1 (null).
        if end - here > 1 and here[0] < 0x80 and not here[0] & 1 and (here[0] >> 1) < end - here - 1:
            value = here + 1 + (here[0] >> 1)
            if value[0] < 0x80 and (value[0] == 1 or not value[0] & 1) and (value[0] >> 1) <= end - value - 1:
                here = value + 1 + (value[0] >> 1)
                continue
        here = get_field(here, end, &size, &ignored)
        if here is NULL or size < 0:
            return "the key of a header is null or does not fit in its record"
        here = get_field(here, end, &size, &ignored)
        if here is NULL:
            return "the value of a header does not fit in its record"
    if here is not end:
        return "a record has bytes after its headers"
    at[0] = end
    return NULL


cdef inline bytes take_bytes(const unsigned char* start, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>start, size)


cdef tuple take_headers(RecordView* record):
    """Returns the headers of a record that `parse_record` has checked. Keys that are not UTF-8 are decoded as in
    Java.
    """
    cdef const unsigned char* at = record.headers
    cdef const unsigned char* field = NULL
    cdef int32_t size = 0
    cdef list headers = []
    cdef str key
    for _ in range(record.header_count):
        at = get_field(at, record.end, &size, &field)
        key = PyUnicode_DecodeUTF8(<const char*>field, size, "replace")
        at = get_field(at, record.end, &size, &field)
        headers.append((key, take_bytes(field, size)))
    return tuple(headers)


@cython.final
cdef class Record:
    """One record.

    Attributes:
        offset: the offset in the partition.
        timestamp_ms: the create time of the record, or the append time of the batch.
        key, value: bytes or None.
        headers: tuples (key: str, value: bytes or None).
    """

    def __init__(self, int64_t offset, int64_t timestamp_ms, bytes key, bytes value, headers=()):
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = tuple(headers)

    def _fields(self):
        return (self.offset, self.timestamp_ms, self.key, self.value, self.headers)

    def __eq__(self, other):
        return self._fields() == (<Record>other)._fields() if isinstance(other, Record) else NotImplemented

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return "Record(offset={}, timestamp_ms={}, key={!r}, value={!r}, headers={!r})".format(*self._fields())


# ---------------------------------------------------------------- the records of a batch

@cython.final
cdef class RecordReader:
    """The iterator over the records of one batch, for `iter_records` and `iter_entries`.

    Yields the records before a corrupt record, and raises when it reaches that record. A bytearray cannot be resized
    until its iterator is exhausted or freed.
    """

    def __init__(self):
        raise TypeError("a RecordReader is made by iter_records or iter_entries")

    def __dealloc__(self):
        self.release()

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef int64_t offset, timestamp_ms
        if not self.move():
            raise StopIteration
        offset = <int64_t>(<uint64_t>self.header.base_offset + <uint64_t><int64_t>self.record.offset_delta)
        if self.header.attributes & LOG_APPEND_TIME_BIT:
            timestamp_ms = self.header.max_timestamp_ms
        else:
            timestamp_ms = <int64_t>(<uint64_t>self.header.base_timestamp_ms + <uint64_t>self.record.timestamp_delta)
        key = take_bytes(self.record.key, self.record.key_size)
        value = take_bytes(self.record.value, self.record.value_size)
        if self.as_entries:
            return (offset, timestamp_ms, key, value)
        record = Record.__new__(Record)
        record.offset = offset
        record.timestamp_ms = timestamp_ms
        record.key = key
        record.value = value
        record.headers = take_headers(&self.record) if self.record.header_count else ()
        return record

    cdef void release(self) noexcept:
        self.left = 0
        self.at = self.end
        if self.holds_view:
            self.holds_view = False
            PyBuffer_Release(&self.view)

    cdef bint move(self) except -1:
        """Reads the next record into `self.record`.

        Returns False after the last record. Raises CorruptBatchError if bytes follow that record.
        """
        cdef const char* reason
        cdef Py_ssize_t position
        if self.left > 0:
            reason = parse_record(&self.at, self.end, &self.record)
            if reason is NULL:
                self.left -= 1
                return True
            position = self.start_position + (self.at - self.start)
            self.release()
            raise CorruptBatchError(position, reason.decode())
        if self.at is not self.end:
            position = self.start_position + (self.at - self.start)
            self.release()
            raise CorruptBatchError(position, "bytes after the last record", "count")
        self.release()
        return False

    cdef int open(self, object buffer, Py_ssize_t position, object decompress, Py_ssize_t max_size_bytes) except -1:
        """Acquires the buffer, checks header and count, and decompresses the records."""
        cdef const unsigned char* bytes_of_batch
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.holds_view = True
        bytes_of_batch = <const unsigned char*>self.view.buf
        self.header = read_whole(bytes_of_batch, self.view.len, position)
        self.start_position = position + HEADER_BYTES
        self.start = bytes_of_batch + self.start_position
        self.end = bytes_of_batch + position + LENGTH_OVERHEAD + self.header.batch_length
        if self.header.attributes & CODEC_BITS:
            self.unpack(decompress, max_size_bytes)
        self.at = self.start
        self.left = self.header.record_count
        if self.left < 0 or self.left > (self.end - self.start) // SMALLEST_RECORD:
            raise CorruptBatchError(
                position + 57, f"{self.left} records do not fit in {self.end - self.start} bytes", "count"
            )
        return 0

    cdef int unpack(self, object decompress, Py_ssize_t max_size_bytes) except -1:
        """Replaces the compressed records with the decompressed ones."""
        cdef int codec = self.header.attributes & CODEC_BITS
        cdef bytes records
        if codec > HIGHEST_CODEC:
            raise CorruptBatchError(self.header.position + 21, f"compression codec {codec} is unknown: only 0 to 4 exist", "compression")
        if decompress is None:
            raise ValueError(f"the batch is compressed with codec {codec}: pass decompress")
        packed = PyMemoryView_FromMemory(<char*>self.start, self.end - self.start, PyBUF_READ)
        try:
            records = <bytes?>decompress(codec, packed, max_size_bytes)
        except ValueError as error:
            raise CorruptBatchError(self.start_position, f"codec {codec}: {error}", "compression") from error
        finally:
            packed.release()
        self.decompressed = records
        self.start_position = 0
        self.start = <const unsigned char*>PyBytes_AS_STRING(records)
        self.end = self.start + PyBytes_GET_SIZE(records)
        return 0


cdef RecordReader open_reader(object buffer, Py_ssize_t position, object decompress, Py_ssize_t max_size_bytes):
    cdef RecordReader reader = RecordReader.__new__(RecordReader)
    reader.open(buffer, position, decompress, max_size_bytes)
    return reader


def iter_records(
    buffer, Py_ssize_t position=0, *, decompress=None,
    Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES
):
    """Iterates over the records of the batch at `position`. Does not check the CRC.

    Args:
        buffer: bytes, bytearray or memoryview; bytes after the batch are ignored.
        decompress: `decompress(codec, data, max_size_bytes) -> bytes`, which raises ValueError if the result would be
            larger or the data are invalid. Only needed for compressed batches.
        max_decompressed_bytes: the maximum size of the decompressed records.

    Returns:
        An iterator of Record. Until it is exhausted or freed, a bytearray in `buffer` cannot be resized.

    Raises:
        CorruptBatchError: the header, size, count or compression is invalid; the iterator raises it at an invalid
            record.
        ValueError: the batch is compressed and there is no decompress.
    """
    return open_reader(buffer, position, decompress, max_decompressed_bytes)


def iter_entries(
    buffer, Py_ssize_t position=0, *, decompress=None,
    Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES
):
    """Iterates like `iter_records`, but yields tuples (offset, timestamp_ms, key, value), which take less time to
    create.
    """
    cdef RecordReader reader = open_reader(buffer, position, decompress, max_decompressed_bytes)
    reader.as_entries = True
    return reader


def validate(
    buffer, Py_ssize_t position=0, *, decompress=None,
    Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES
):
    """Checks the whole batch at `position`: size, magic, CRC, counts, every record, and ascending offsets.

    Args: as for iter_records. Without `decompress` the records of a compressed batch are not checked.

    Returns:
        The header.

    Raises:
        CorruptBatchError: the first fault; `fault` names the check.
    """
    cdef Py_buffer view
    cdef BatchHeader header
    cdef RecordReader reader
    cdef int32_t last = -1
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        header = read_whole(<const unsigned char*>view.buf, view.len, position)
        check_crc(<const unsigned char*>view.buf, header)
    finally:
        PyBuffer_Release(&view)
    if header.record_count < 0:
        raise CorruptBatchError(position + 57, f"{header.record_count} records", "count")
    if header.last_offset_delta < 0 or header.last_offset_delta < header.record_count - 1:
        raise CorruptBatchError(
            position + 23, f"last offset delta {header.last_offset_delta} of {header.record_count} records", "count"
        )
    if (header.attributes & CODEC_BITS) > HIGHEST_CODEC:
        codec = header.attributes & CODEC_BITS
        raise CorruptBatchError(position + 21, f"compression codec {codec} is unknown: only 0 to 4 exist", "compression")
    if header.attributes & CODEC_BITS and decompress is None:
        return header
    reader = open_reader(buffer, position, decompress, max_decompressed_bytes)
    while reader.move():
        if reader.record.offset_delta <= last or reader.record.offset_delta > header.last_offset_delta:
            raise CorruptBatchError(
                reader.start_position + (reader.at - reader.start),
                f"offset delta {reader.record.offset_delta} after {last}, the last is {header.last_offset_delta}",
            )
        last = reader.record.offset_delta
    return header


# ---------------------------------------------------------------- control batches

@cython.final
cdef class ControlMarker:
    """The content of a control batch.

    Attributes:
        type: 0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 SNAPSHOT_HEADER, 4 SNAPSHOT_FOOTER, 5 KRAFT_VERSION, 6 KRAFT_VOTERS;
            readers ignore other numbers, which belong to newer versions of Kafka.
        coordinator_epoch: the epoch of the coordinator that ended the transaction; -1 if this is not an end marker.
    """

    def __init__(self):
        raise TypeError("a ControlMarker is made by parse_control")

    @property
    def is_end_marker(self):
        """True if the marker ends a transaction."""
        return 0 <= self.type <= 1

    @property
    def is_commit(self):
        """True if the marker commits a transaction."""
        return self.type == 1

    def __repr__(self):
        return f"<ControlMarker type={self.type} coordinator_epoch={self.coordinator_epoch}>"


def refuse_codec(codec, data, max_size_bytes):
    """Replaces `decompress` for batches that must not be compressed."""
    raise ValueError("control batches are not compressed")


def parse_control(buffer, Py_ssize_t position=0):
    """Parses the control record of the control batch at `position`.

    Raises:
        CorruptBatchError: the batch is not a control batch, has no record, or has an end marker with a too short key or
            value.
    """
    cdef RecordReader reader = open_reader(buffer, position, refuse_codec, 0)
    cdef ControlMarker marker = ControlMarker.__new__(ControlMarker)
    cdef Py_ssize_t at = reader.start_position
    if not reader.header.attributes & CONTROL_BIT:
        raise CorruptBatchError(position + 21, "not a control batch", "control")
    if not reader.move():
        raise CorruptBatchError(at, "a control batch without a record", "control")
    if reader.record.key_size < 4 or read_int16(reader.record.key) < 0:
        raise CorruptBatchError(at, "the key of a control record is too short or of a negative version", "control")
    marker.type = read_int16(reader.record.key + 2)
    marker.coordinator_epoch = -1
    if 0 <= marker.type <= 1:
        if reader.record.value_size < 6 or read_int16(reader.record.value) < 0:
            raise CorruptBatchError(at, "the value of an end marker is too short or of a negative version", "control")
        marker.coordinator_epoch = read_int32(reader.record.value + 2)
    return marker
