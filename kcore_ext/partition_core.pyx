"""What a partition does for every append and every commit; `kcore.broker.partition` is the rest of it."""

from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder


cdef class PartitionCore:
    """See partition_core.pyi."""

    def append_data(
        self,
        batch,
        int64_t producer_id,
        int32_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t timestamp_ms,
        bint transactional,
    ):
        base_offset = self.log.append(batch, self.leader_epoch)
        if producer_id >= 0:
            self._add_data(producer_id, epoch, sequence, base_offset, last_delta, timestamp_ms, transactional)
        self.pipeline.enlist(self)
        return base_offset

    def append_built(self, BatchBuilder batch not None, int32_t leader_epoch):
        if batch.producer_id >= 0:
            return self.append(batch.build_bytearray(), leader_epoch)
        if self.recovering:
            self.finish_recovery()
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
        base_offset = self.log.append_built(batch, leader_epoch)
        self.pipeline.enlist(self)
        return base_offset

    def seal(self):
        pass

    def committed(self):
        self.high_watermark = self.log.high_watermark
        if self.producers.entries:
            self._settle_producers()
        else:
            self.last_stable_offset = self.high_watermark
        if self.watched:
            self._progress()
