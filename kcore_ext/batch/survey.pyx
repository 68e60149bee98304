"""Walks over a client's batch: a check before an append, and a search for a timestamp."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from kcore_ext.batch.header cimport BatchHeader, check_crc, read_whole
from kcore_ext.batch.layout cimport LOG_APPEND_TIME_BIT
from kcore_ext.batch.records cimport RecordReader, open_reader

from kcore_ext.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef enum:
    NO_TIMESTAMP = -1

cdef int64_t LATEST = 0x7FFFFFFFFFFFFFFF


def survey(buffer, *, decompress=None, Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Checks size, magic, CRC, record count and every record of the batch at the beginning of `buffer`.

    Args:
        buffer: bytes, bytearray or memoryview; bytes after the batch are ignored.
        decompress: `decompress(codec, data, max_size_bytes) -> bytes`; needed for compressed batches.
        max_decompressed_bytes: the maximum size of the decompressed records.

    Returns:
        (earliest_ms, latest_ms, keyless, consecutive): the smallest timestamp of a record that has one (2^63 - 1 if
        none has), the largest of all (-1 if none has one), the number of records without a key, and True if the
        records are numbered 0, 1, 2, ... In a batch with an append time, every record has that time.

    Raises:
        CorruptBatchError: the first fault; `fault` names the check.
        ValueError: the batch is compressed and there is no decompress.
    """
    cdef Py_buffer view
    cdef BatchHeader header
    cdef RecordReader reader
    cdef int64_t earliest = LATEST, latest = NO_TIMESTAMP, timestamp
    cdef int32_t keyless = 0, expected = 0
    cdef bint consecutive = True, appended
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        header = read_whole(<const unsigned char*>view.buf, view.len, 0)
        check_crc(<const unsigned char*>view.buf, header)
    finally:
        PyBuffer_Release(&view)
    reader = open_reader(buffer, 0, decompress, max_decompressed_bytes)
    appended = header.attributes & LOG_APPEND_TIME_BIT
    while reader.move():
        timestamp = header.max_timestamp_ms if appended else header.base_timestamp_ms + reader.record.timestamp_delta
        if timestamp > latest:
            latest = timestamp
        if timestamp < earliest and timestamp != NO_TIMESTAMP:
            earliest = timestamp
        if reader.record.key_size < 0:
            keyless += 1
        if reader.record.offset_delta != expected:
            consecutive = False
        expected += 1
    return earliest, latest, keyless, consecutive


def find_by_timestamp(batch not None, int64_t timestamp_ms, int64_t min_offset, decompress):
    """Finds the first record with at least this timestamp, not below an offset, in a batch with create times.

    Args:
        batch: bytes, bytearray or memoryview; the CRC is not checked.
        timestamp_ms: the smallest timestamp.
        min_offset: the smallest offset.
        decompress: `decompress(codec, data, max_size_bytes) -> bytes`.

    Returns:
        (offset, timestamp) of the record; None if there is none.

    Raises:
        CorruptBatchError: the batch is damaged before such a record.
    """
    cdef RecordReader reader = open_reader(batch, 0, decompress, DEFAULT_MAX_DECOMPRESSED_BYTES)
    cdef int64_t timestamp, offset
    while reader.move():
        # The sums wrap like those of `iter_entries`: a client chooses the numbers.
        timestamp = <int64_t>(<uint64_t>reader.header.base_timestamp_ms + <uint64_t>reader.record.timestamp_delta)
        offset = <int64_t>(<uint64_t>reader.header.base_offset + <uint64_t><int64_t>reader.record.offset_delta)
        if timestamp >= timestamp_ms and offset >= min_offset:
            return offset, timestamp
    return None
