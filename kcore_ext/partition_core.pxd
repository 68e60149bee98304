"""A partition as what is compiled around it sees it."""

from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.shard_core cimport PipelineCore


cdef class PartitionCore:
    cdef public object log
    cdef public PipelineCore pipeline
    cdef public object producers
    cdef public int64_t high_watermark
    cdef public int64_t last_stable_offset
    cdef public int32_t leader_epoch
    cdef public Py_ssize_t watched
    cdef public bint recovering

    cdef int64_t append_of_producer(self, BatchBuilder batch, int32_t leader_epoch) except -1
