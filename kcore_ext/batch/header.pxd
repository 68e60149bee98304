"""The header of a record batch as other compiled modules see it."""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t


@cython.final
cdef class BatchHeader:
    cdef readonly Py_ssize_t position
    cdef readonly int64_t base_offset
    cdef readonly int32_t batch_length
    cdef readonly int32_t partition_leader_epoch
    cdef readonly int8_t magic
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count


cdef uint32_t checksum(const unsigned char* start, Py_ssize_t size) noexcept
cdef BatchHeader read_header(const unsigned char* start, Py_ssize_t size, Py_ssize_t position)
cdef BatchHeader read_whole(const unsigned char* start, Py_ssize_t size, Py_ssize_t position)
cdef int check_crc(const unsigned char* start, BatchHeader header) except -1
cdef bytes copy_stamped(object buffer, int64_t base_offset, int32_t leader_epoch, int32_t* last_delta)
