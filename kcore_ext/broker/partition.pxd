"""Declarations of a partition for other compiled modules."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.broker.producers cimport ProducersCore
from kcore_ext.broker.topic_traffic cimport TopicTraffic
from kcore_ext.runtime.shard cimport PipelineCore, ShardLogCore


cdef class PartitionCore(ShardLogCore):
    cdef public object log
    cdef public object config
    cdef public PipelineCore pipeline
    cdef public ProducersCore producers
    cdef public TopicTraffic traffic
    cdef public int64_t high_watermark
    cdef public int64_t last_stable_offset
    cdef public int32_t leader_epoch
    cdef public Py_ssize_t watched
    cdef public bint recovering
    cdef public bint closed

    cdef int64_t take(
        self,
        batch,
        int64_t producer_id,
        int16_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t timestamp_ms,
        bint transactional,
    ) except -1
    cdef int64_t append_of_producer(self, BatchBuilder batch, int32_t leader_epoch) except -1
    cdef int64_t stage_built(self, BatchBuilder batch, int32_t leader_epoch) except -1
