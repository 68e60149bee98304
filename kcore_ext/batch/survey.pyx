"""Compiled loops over the records of a client's batch: the checks before an append, and the search for a timestamp."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX

from kcore_ext.batch.header cimport BatchHeader, check_crc, read_whole
from kcore_ext.batch.layout cimport CODEC_BITS, LOG_APPEND_TIME_BIT
from kcore_ext.batch.records cimport RecordReader, open_reader

from kcore_ext.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef enum:
    NO_TIMESTAMP = -1

cdef Py_ssize_t NO_LIMIT = PY_SSIZE_T_MAX
cdef int64_t LATEST = 0x7FFFFFFFFFFFFFFF


@cython.final
cdef class BatchSurvey:
    """Documented in survey.pyi."""

    cdef readonly int64_t earliest_ms
    cdef readonly int64_t latest_ms
    cdef readonly int32_t keyless
    cdef readonly bint consecutive
    cdef readonly int codec
    cdef object buffer
    cdef RecordReader reader
    cdef int32_t expected

    def __cinit__(self, buffer not None):
        cdef Py_buffer view
        cdef BatchHeader header
        self.earliest_ms, self.latest_ms, self.consecutive = LATEST, NO_TIMESTAMP, True
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            header = read_whole(<const unsigned char*>view.buf, view.len, 0)
            check_crc(<const unsigned char*>view.buf, header)
        finally:
            PyBuffer_Release(&view)
        self.buffer = buffer
        self.codec = header.attributes & CODEC_BITS

    cpdef open(self, decompress=None, Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
        self.reader = open_reader(self.buffer, 0, decompress, max_decompressed_bytes)

    cpdef bint advance(self, Py_ssize_t records=NO_LIMIT, Py_ssize_t size_bytes=NO_LIMIT) except -1:
        cdef RecordReader reader = self.reader
        cdef const unsigned char* stop
        cdef int64_t timestamp
        cdef bint appended
        if reader is None:
            raise ValueError("the survey is not open")
        stop = reader.end if size_bytes >= reader.end - reader.at else reader.at + max(size_bytes, 0)
        appended = reader.header.attributes & LOG_APPEND_TIME_BIT
        while records > 0:
            if not reader.move():
                return True
            timestamp = (
                reader.header.max_timestamp_ms if appended
                else reader.header.base_timestamp_ms + reader.record.timestamp_delta
            )
            if timestamp > self.latest_ms:
                self.latest_ms = timestamp
            if timestamp < self.earliest_ms and timestamp != NO_TIMESTAMP:
                self.earliest_ms = timestamp
            if reader.record.key_size < 0:
                self.keyless += 1
            if reader.record.offset_delta != self.expected:
                self.consecutive = False
            self.expected += 1
            records -= 1
            if reader.at >= stop and reader.left > 0:
                return False
        return False


def survey(buffer, *, decompress=None, Py_ssize_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES):
    """Checks size, magic, CRC, record count and every record of the batch at the beginning of `buffer`.

    Args:
        buffer: bytes, bytearray or memoryview; bytes after the batch are ignored.
        decompress: `decompress(codec, data, max_size_bytes) -> bytes`; needed for compressed batches.
        max_decompressed_bytes: the maximum size of the decompressed records.

    Returns:
        (earliest_ms, latest_ms, keyless, consecutive): the attributes of a `BatchSurvey` at its end.

    Raises:
        CorruptBatchError: the first fault; `fault` names the check.
        ValueError: the batch is compressed and there is no decompress.
    """
    cdef BatchSurvey found = BatchSurvey.__new__(BatchSurvey, buffer)
    found.open(decompress, max_decompressed_bytes)
    found.advance(NO_LIMIT, NO_LIMIT)
    return found.earliest_ms, found.latest_ms, found.keyless, found.consecutive


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
        # The sum wraps around, as in `iter_entries`, because a client chooses the numbers.
        timestamp = <int64_t>(<uint64_t>reader.header.base_timestamp_ms + <uint64_t>reader.record.timestamp_delta)
        offset = <int64_t>(<uint64_t>reader.header.base_offset + <uint64_t><int64_t>reader.record.offset_delta)
        if timestamp >= timestamp_ms and offset >= min_offset:
            return offset, timestamp
    return None
