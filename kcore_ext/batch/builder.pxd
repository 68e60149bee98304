"""The batch builder as other compiled modules see it."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t


@cython.final
cdef class BatchBuilder:
    cdef unsigned char* records
    cdef Py_ssize_t records_size
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t max_size_bytes
    cdef readonly int32_t count
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef int32_t base_sequence
    cdef int16_t attributes
    cdef object compress
    cdef bint keeps_codec               # True: writes compressed records even if they are larger, within the limit
    cdef readonly tuple marker

    cdef bint add(self, int64_t timestamp_ms, bytes key, bytes value, bytes headers, int32_t offset_delta) except -1
    # Adds a record without headers, whose writer stores key and value in place: the key at the returned address, then
    # the value's length as a varint, the value, and a zero for the headers. NULL without an exception: the batch is
    # full.
    cdef unsigned char* begin_record(self, int64_t timestamp_ms, Py_ssize_t key_size, Py_ssize_t value_size) except? NULL
    cdef bytes built(self, int64_t base_offset, int32_t leader_epoch, int32_t last_offset_delta)  # documented at `build`
    cdef int reserve(self, Py_ssize_t size) except -1
    cdef int32_t checked_last(self, int32_t last_offset_delta) except -1
    cdef bytes pack(self)
    cdef Py_ssize_t built_size(self, bytes packed) noexcept
    cdef int write(
        self, unsigned char* out, bytes packed, int64_t base_offset, int32_t leader_epoch, int32_t last_offset_delta
    ) except -1


# Creates a builder like the constructor, without its checks.
cdef BatchBuilder non_transactional_builder(Py_ssize_t max_size_bytes, int64_t base_timestamp_ms)
cdef BatchBuilder transactional_builder(
    Py_ssize_t max_size_bytes, int64_t base_timestamp_ms, int64_t producer_id, int16_t producer_epoch
)

# Documented at `marker_builder`.
cdef BatchBuilder end_marker(
    bint commit, int32_t coordinator_epoch, int64_t producer_id, int16_t producer_epoch, int64_t timestamp_ms,
    int transaction_version,
)
