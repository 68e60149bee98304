"""The records of a batch for other compiled modules: an iteration without a Python object per record."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.batch.header cimport BatchHeader

cdef struct RecordView:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size            # -1: null
    int32_t value_size          # -1: null
    int32_t header_count
    const unsigned char* key
    const unsigned char* value
    const unsigned char* headers
    const unsigned char* end


@cython.final
cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers


@cython.final
cdef class RecordReader:
    cdef Py_buffer view
    cdef bint holds_view
    cdef BatchHeader header
    cdef object decompressed        # the records of a compressed batch
    cdef bint as_entries
    cdef const unsigned char* start  # of the records, for the positions of errors
    cdef Py_ssize_t start_position
    cdef const unsigned char* at
    cdef const unsigned char* end
    cdef int32_t left
    cdef RecordView record

    cdef int open(self, object buffer, Py_ssize_t position, object decompress, Py_ssize_t max_size_bytes) except -1
    cdef int unpack(self, object decompress, Py_ssize_t max_size_bytes) except -1
    cdef bint move(self) except -1
    cdef void release(self) noexcept


@cython.final
cdef class ControlMarker:
    cdef readonly int16_t type
    cdef readonly int32_t coordinator_epoch


cdef RecordReader open_reader(object buffer, Py_ssize_t position, object decompress, Py_ssize_t max_size_bytes)
cdef const char* parse_record(
    const unsigned char** at, const unsigned char* limit, RecordView* record
) noexcept nogil
cdef tuple take_headers(RecordView* record)
