"""The second half of a pass of compaction: what is left of each batch, and neighbours that become one."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.records cimport RecordReader
from kcore_ext.broker.compaction_map cimport OffsetMap


@cython.final
cdef class Sweep:
    cdef OffsetMap map
    cdef dict changes
    cdef int64_t now_ms
    cdef int64_t delete_retention_ms
    cdef Py_ssize_t max_merged_bytes
    cdef list run                       # neighbours that may become one batch
    cdef Py_ssize_t run_bytes
    cdef int64_t run_base_offset
    cdef int32_t run_leader_epoch
    cdef bint run_changed               # whether the first of them is another than is stored
    cdef unsigned char* stays           # what `look` found of each record: whether it stays
    cdef Py_ssize_t stays_room
    cdef int32_t records                # and in sum: how many there are, how many stay, tombstones among these
    cdef int32_t kept
    cdef int32_t tombstones
    cdef readonly int64_t size_bytes
    cdef readonly int64_t next_horizon_ms

    cdef int look(self, bytes batch, object decompress) except -1
    cdef int64_t horizon_of(self, int64_t horizon_ms) noexcept
    cdef int put(self, bytes batch, bint changed, bint may_merge) except -1
    cdef int end_run(self) except -1
