"""A partition log's work for every batch and commit, for other compiled modules."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.log.tail_cache cimport PartitionTail, TailCache


@cython.final
cdef class SealedPartition:
    cdef readonly LogCore log
    cdef readonly object key
    cdef readonly uint32_t number
    cdef readonly list batches
    cdef readonly int64_t end_offset
    cdef readonly object meta
    cdef readonly object chunks
    cdef readonly dict rewrites


cdef class EngineCore:
    cdef public list _dirty             # the partitions with staged changes
    cdef public int _interrupted_change  # STAGING, COMMITTING: set during such a change, and left set by an exception
    cdef public TailCache _tails


cdef class LogCore:
    cdef public object key
    cdef public int64_t log_start_offset
    cdef public int64_t end_offset
    cdef public int64_t high_watermark
    cdef public int32_t leader_epoch
    cdef public EngineCore _engine
    cdef public uint32_t _number
    cdef public int _state              # LIVE, ABSENT, DROPPED or CLOSED
    cdef public bint _staged            # whether this partition has staged changes
    cdef public object _meta
    cdef public object _durable_meta
    cdef public SealedPartition _sealed
    cdef public list _batches
    cdef public dict _rewrites
    cdef public object _snapshot_writer
    cdef public PartitionTail _tail
    cdef public int64_t appended_bytes

    cdef int request_round(self) except -1
    cdef int64_t put(self, batch, int32_t leader_epoch) except -1
    cdef int64_t put_built(self, BatchBuilder batch, int32_t leader_epoch) except -1
    cdef int64_t stage(self, bytes batch, int32_t last_delta) except -1
