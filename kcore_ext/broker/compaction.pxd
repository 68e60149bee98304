"""The second half of a compaction pass: removes records from each batch and merges small adjacent batches."""

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
    cdef list run                       # adjacent batches to merge
    cdef Py_ssize_t run_bytes
    cdef int64_t run_base_offset
    cdef int32_t run_leader_epoch
    cdef bint run_changed               # the first batch of the run differs from the stored one
    cdef unsigned char* stays           # result of `examine`: a flag for each record, 0 for a removed one
    cdef Py_ssize_t stays_room
    cdef bytes examined_batch           # the batch that `examine` has read, in full or in part
    cdef RecordReader reader            # of this batch, if some of its records are not read yet; else None
    cdef int32_t at                     # number of records read
    cdef int32_t records                # number of records of the batch
    cdef int32_t kept                   # number of remaining records, among the records read
    cdef int32_t tombstones             # number of tombstones among the remaining records
    cdef readonly int64_t size_bytes
    cdef readonly int64_t next_horizon_ms

    cdef Py_ssize_t examine(self, bytes batch, object decompress, Py_ssize_t work) except? -1
    cdef int begin(self, int32_t records) except -1
    cdef int64_t horizon_of(self, int64_t horizon_ms) noexcept
    cdef int put(self, bytes batch, bint changed, bint may_merge) except -1
    cdef int end_run(self) except -1
