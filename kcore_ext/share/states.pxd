"""The states of share partitions, for other compiled modules."""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
@cython.no_gc
cdef class ShareState:
    cdef str _group_id                  # the identity; None until the state is in a table
    cdef bytes _topic_id
    cdef readonly tuple batches
    cdef readonly int64_t start_offset
    cdef readonly int64_t create_timestamp
    cdef readonly int64_t write_timestamp
    cdef readonly int64_t snapshot_offset
    cdef int32_t _partition
    cdef readonly int32_t snapshot_epoch
    cdef readonly int32_t state_epoch
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t delivery_complete_count
    cdef readonly int32_t highest_state_epoch
    cdef readonly int32_t highest_leader_epoch
    cdef readonly int32_t updates

    cdef void updated(self, tuple batches, int64_t start_offset, int32_t complete_count) noexcept


@cython.final
@cython.no_gc
cdef class ShareStates:
    cdef void** _slots                  # ShareState or NULL; the table owns a reference to each
    cdef Py_ssize_t _capacity           # the number of slots, a power of two or 0
    cdef Py_ssize_t _used

    cdef Py_ssize_t slot_of(self, str group_id, bytes topic_id, int32_t partition) except -1
    cdef ShareState find(self, str group_id, bytes topic_id, int32_t partition)
    cdef int grow(self) except -1
