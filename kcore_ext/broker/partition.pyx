"""The code of a partition for every append and every commit; `kcore.broker.data.partition` has the rest.

Each append first enlists the partition in the round. Until the append ends, `PipelineCore.changing` counts it.
`kcore_ext.runtime.shard` documents the purpose of both steps.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kcore.errors import LogError
from kcore_ext.batch.builder cimport BatchBuilder, end_marker
from kcore_ext.log.partition cimport LogCore
from kcore_ext.broker.producers cimport ProducersCore, any_aborted
from kcore_ext.broker.topic_traffic cimport TopicTraffic
from kcore_ext.runtime.shard cimport PipelineCore

cdef enum:
    NO_SEQUENCE = -1


cdef class PartitionCore:
    """Documented in partition.pyi."""

    def __cinit__(self, *arguments, **named):
        self.allows_background_commit = True
        self.traffic = TopicTraffic.__new__(TopicTraffic)

    @property
    def end_offset(self) -> int:
        return self.next_offset()

    cdef int64_t next_offset(self) except -1:
        if isinstance(self.log, LogCore):
            return (<LogCore>self.log).end_offset
        return self.log.end_offset

    def append_data(
        self,
        batch,
        int64_t producer_id,
        int16_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t timestamp_ms,
        bint transactional,
    ):
        return self.take(batch, producer_id, epoch, sequence, last_delta, timestamp_ms, transactional)

    cdef int64_t take(
        self,
        batch,
        int64_t producer_id,
        int16_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t timestamp_ms,
        bint transactional,
    ) except -1:
        cdef int64_t base_offset
        PipelineCore.enlist(self.pipeline, self)
        self.pipeline.changing += 1
        try:
            if isinstance(self.log, LogCore):
                base_offset = (<LogCore>self.log).put(batch, self.leader_epoch)
            else:
                base_offset = self.log.append(batch, self.leader_epoch)
        except LogError:
            self.pipeline.changing -= 1     # nothing was staged
            raise
        if producer_id >= 0:
            self.producers.appended(
                producer_id, epoch, sequence, last_delta, base_offset, timestamp_ms, transactional
            )
        self.traffic.received_records += last_delta + 1
        self.traffic.received_bytes += len(batch)
        self.pipeline.changing -= 1
        return base_offset

    def append_built(self, BatchBuilder batch not None, int32_t leader_epoch):
        return self.append_batch(batch, leader_epoch)

    cdef int64_t append_batch(self, BatchBuilder batch, int32_t leader_epoch) except -1:
        cdef int64_t base_offset
        if self.recovering:
            self.finish_recovery()
        if batch.producer_id >= 0 or batch.marker is not None:
            return self.append_of_producer(batch, leader_epoch)
        PipelineCore.enlist(self.pipeline, self)
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
        self.pipeline.changing += 1
        try:
            base_offset = self.stage_built(batch, leader_epoch)
        except LogError:
            self.pipeline.changing -= 1     # nothing was staged
            raise
        self.pipeline.changing -= 1
        return base_offset

    cdef int64_t stage_built(self, BatchBuilder batch, int32_t leader_epoch) except -1:
        """Stages the batch of a builder in the log."""
        if isinstance(self.log, LogCore):
            return (<LogCore>self.log).put_built(batch, leader_epoch)
        return self.log.append_built(batch, leader_epoch)

    def append_marker(
        self,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t coordinator_epoch,
        bint commit,
        int64_t timestamp_ms,
        int transaction_version=0,
    ):
        if self.recovering:
            self.finish_recovery()
        return self.append_of_producer(
            end_marker(commit, coordinator_epoch, producer_id, producer_epoch, timestamp_ms, transaction_version),
            self.leader_epoch,
        )

    cdef int64_t append_of_producer(self, BatchBuilder batch, int32_t leader_epoch) except -1:
        """Stages a coordinator's batch for a producer: records open or continue its transaction, a marker ends it."""
        cdef int64_t base_offset
        cdef tuple marker = batch.marker
        cdef ProducersCore producers = self.producers
        if marker is None:
            producers.check_coordinator_data(batch.producer_id, batch.producer_epoch, batch.transactional)
        else:
            producers.check_marker(batch.producer_id, batch.producer_epoch, marker[0], marker[2])
        PipelineCore.enlist(self.pipeline, self)
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
        self.pipeline.changing += 1
        try:
            base_offset = self.stage_built(batch, leader_epoch)
        except LogError:
            self.pipeline.changing -= 1     # nothing was staged
            raise
        if marker is None:
            producers.appended(
                batch.producer_id, batch.producer_epoch, NO_SEQUENCE, batch.last_offset_delta, base_offset,
                batch.max_timestamp_ms, batch.transactional,
            )
        else:
            producers.add_marker(
                batch.producer_id, batch.producer_epoch, base_offset, batch.max_timestamp_ms, marker[0], marker[1]
            )
        self.pipeline.changing -= 1
        return base_offset

    def seal(self):
        pass

    cdef int stage(self) except -1:
        return 0

    def committed(self):
        self.end_commit()

    cdef int end_commit(self) except -1:
        cdef ProducersCore producers = self.producers
        if isinstance(self.log, LogCore):
            self.high_watermark = (<LogCore>self.log).high_watermark
        else:
            self.high_watermark = self.log.high_watermark
        if producers.open_transactions or producers._completing or any_aborted(producers):
            try:
                self._settle_producers()
            except MemoryError:     # without a second attempt, read_committed readers would wait for the next append
                self._settle_producers()
        else:
            producers.settle(self.high_watermark)
            self.last_stable_offset = self.high_watermark
        if self.watched:
            self._progress()
        return 0
