"""A partition: its log, its producers, its transactions, and what readers may see of it.

With one replica the high watermark is the committed end of the log: it moves when a commit returns, not before.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.producer_snapshot import decode, encode
from kcore.broker.data.producer_state import BatchMetadata, ProducerStates, increment_sequence
from kcore.errors import KafkaError
from kcore.log.errors import CorruptLogError, LogError
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import parse_control, parse_header
from kcore_ext.batch.run import replay_producers
from kcore_ext.broker.partition import PartitionCore

if TYPE_CHECKING:
    from kcore.log.interface import EpochEntry, PartitionLog
    from kcore.runtime.commit import CommitPipeline

logger = logging.getLogger(__name__)

SNAPSHOT_MAX_PRODUCERS = 20_000
"""Partitions with more producers and aborted transactions are not snapshotted: that would hold up requests."""

# Of a batch header: attributes, last offset delta, largest timestamp, producer id, producer epoch, base sequence.
_PRODUCER_FIELDS = struct.Struct(">hi8xqqhi")
_PRODUCER_FIELDS_AT = 21
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


class Partition(PartitionCore):
    """One partition that this node leads. What is done for every append and every commit is compiled: `PartitionCore`.

    It is the `Participant` that moves the high watermark when a commit returns, and the `ShardLog` of a coordinator's
    shard if it belongs to an internal topic.

    Args:
        topic: the topic's name.
        topic_id: its id, 16 bytes.
        index: the partition's number.
        log: its log.
        leader_epoch: the epoch in which this node leads it; appends carry it.
        config: the topic's settings.
        pipeline: where appends enlist.
        internal: a coordinator's topic: clients cannot write to it.

    Attributes:
        high_watermark: the committed end; readers see what lies below.
        last_stable_offset: where the earliest open transaction begins, at most the high watermark; read_committed
            readers see what lies below.
        producers: sequences, transactions and aborted transactions.
        unacknowledged_end: the end of the last append with acks=0. While it is not durable, its producer may expect
            to read it all the same: nobody tells when that is.
        watched: how many parked requests wait for this partition.
        recovering: its producers are still being read from the log; it serves nobody before.
        closed: it was deleted.
        loading: how many loads of a coordinator's shard are reading it.
        pipeline: commits what is staged here.
    """

    __slots__ = (
        "_on_progress",
        "_recovery",
        "_staged_start",
        "index",
        "internal",
        "loading",
        "topic",
        "topic_id",
        "unacknowledged_end",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        *,
        leader_epoch: int,
        pipeline: CommitPipeline,
        config: LogConfig | None = None,
        internal: bool = False,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = max(leader_epoch, log.leader_epoch)
        self.config = config or LogConfig()
        self.internal = internal
        self.producers = ProducerStates()
        self.unacknowledged_end = 0
        self.watched = 0
        self.closed = False
        self.loading = 0
        self.pipeline = pipeline
        self._on_progress: Callable[[Partition], None] | None = None
        self.high_watermark = log.high_watermark
        self.last_stable_offset = self.high_watermark
        self._staged_start = log.log_start_offset
        self._recovery: Iterator[None] | None = None
        self.recovering = log.log_start_offset < log.high_watermark
        if self.recovering:
            self._recovery = self._recover()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def when_progress(self, callback: Callable[[Partition], None]) -> None:
        """Tells one observer, only while `watched`, that readers may find something new: data, a start, an end."""
        self._on_progress = callback

    # ---- offsets

    @property
    def end_offset(self) -> int:
        """The offset of the next record, counting what is staged."""
        return self.log.end_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for."""
        return self.log.log_start_offset

    @property
    def unacknowledged(self) -> bool:
        """Whether something appended with acks=0 is not durable yet."""
        return self.unacknowledged_end > self.high_watermark

    @property
    def dirty(self) -> bool:
        """Whether something is appended that no commit has made durable yet."""
        return self.log.end_offset != self.high_watermark

    # ---- recovery

    def recovery(self) -> Iterator[None]:
        """Recovers in slices; ends at once if there is nothing (more) to recover.

        A damaged log ends it too: the partition then goes on `recovering`, and serves nobody.
        """
        while self._recovery is not None:
            try:
                next(self._recovery)
            except StopIteration:
                return
            except LogError:
                logger.exception("%r cannot be recovered and stays out of service", self)
                return
            yield

    def finish_recovery(self) -> None:
        """Recovers to the end now.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the log is damaged.
        """
        for _ in self.recovery():
            pass
        if self._recovery is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _recover(self) -> Iterator[None]:
        """Rebuilds producers and transactions from the snapshot, if there is one, and every batch behind it."""
        producers, start = self._restore_snapshot()
        replay = partial(self._replay, producers)
        for run in self.log.runs(start, check_crc=False):
            replay_producers(run, replay)
            producers.committed(self.high_watermark)
            yield
        self._recovered(producers, self.high_watermark)

    def _recovered(self, producers: ProducerStates, high_watermark: int) -> None:
        """The log was read up to `high_watermark`: this is what it says of its producers."""
        self._recovery = None
        self.recovering = False
        self.producers = producers
        producers.committed(high_watermark)
        self._update_last_stable_offset()

    def _restore_snapshot(self) -> tuple[ProducerStates, int]:
        """The producers of the snapshot, none without one, and from where on the log has to be replayed."""
        log = self.log
        snapshot = None if self.internal else log.snapshot
        first = max(log.log_start_offset, log.cleaned_to)
        if snapshot is None or not first <= snapshot.offset <= log.high_watermark:
            # Deleted or compacted beyond the snapshot: what ended its transactions may be gone, so it says nothing any
            # more. A compacted log still has the last batch of each producer.
            return ProducerStates(), log.log_start_offset
        try:
            producers = decode(log.read_snapshot())
        except (ValueError, CorruptLogError):
            logger.exception("%r: the snapshot of its producers is damaged; the whole log is replayed", self)
            return ProducerStates(), log.log_start_offset
        self._forget_compacted_transactions(producers)
        return producers, snapshot.offset

    def _forget_compacted_transactions(self, producers: ProducerStates) -> None:
        """Aborted transactions that the snapshot tells of, and whose markers compaction has removed since."""
        gone = set()
        for transaction in producers.aborted.entries:
            offset = transaction.last_offset
            if self.log.log_start_offset <= offset < self.log.cleaned_to:
                found = self.log.summaries(offset, 1)
                if not found or found[0].base_offset != offset:
                    gone.add(offset)
        producers.aborted.forget(gone)

    def snapshot_producers(self, min_records: int) -> bool:
        """Stages a snapshot of the producers if a restart would have to replay `min_records` offsets or more.

        None is made while anything is staged, of a coordinator's partition (its snapshots are the shard's), or of
        more producers than can be written without a pause.
        """
        log = self.log
        last = log.snapshot
        from_offset = log.log_start_offset
        if last is not None and last.offset >= log.cleaned_to:
            from_offset = max(from_offset, last.offset)
        replayed = self.high_watermark - from_offset
        producers = self.producers
        if (
            replayed < min_records
            or self.internal
            or self.dirty
            or self.recovering
            or self.closed
            or len(producers.entries) + len(producers.aborted) > SNAPSHOT_MAX_PRODUCERS
        ):
            return False
        self.pipeline.enlist(self)
        self.pipeline.changing += 1
        for index, chunk in enumerate(encode(producers)):
            log.put_snapshot_chunk(self.high_watermark, index, chunk)
        log.commit_snapshot(self.high_watermark)
        log.drop_old_snapshots()
        self.pipeline.changing -= 1
        return True

    @staticmethod
    def _replay(producers: ProducerStates, batch: bytes) -> None:
        """Tells `producers` of a batch of one of them."""
        attributes, last_delta, timestamp_ms, producer_id, epoch, sequence = _PRODUCER_FIELDS.unpack_from(
            batch, _PRODUCER_FIELDS_AT
        )
        header = parse_header(batch)
        base_offset = header.base_offset
        if attributes & _CONTROL:
            if not header.record_count:
                return  # a marker that Kafka's compaction emptied
            marker = parse_control(batch)
            if marker.is_end_marker:
                producers.add_marker(
                    producer_id, epoch, base_offset, timestamp_ms, marker.coordinator_epoch, marker.is_commit
                )
            return
        last_sequence = increment_sequence(sequence, last_delta) if sequence >= 0 else sequence
        metadata = BatchMetadata(sequence, last_sequence, base_offset, base_offset + last_delta, timestamp_ms)
        producers.add_data(producer_id, epoch, metadata, bool(attributes & _TRANSACTIONAL))

    # ---- appends

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Stages a coordinator's batch (`ShardLog`). A transactional one opens its producer's transaction here, a
        control batch ends it.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE or TRANSACTION_COORDINATOR_FENCED, which the
                coordinator can rule out beforehand with `producers.check_coordinator_data` and `check_marker`.
            LogError: nothing was appended.
        """
        if self._recovery is not None:
            self.finish_recovery()
        attributes, last_delta, timestamp_ms, producer_id, epoch, sequence = _PRODUCER_FIELDS.unpack_from(
            batch, _PRODUCER_FIELDS_AT
        )
        transactional = bool(attributes & _TRANSACTIONAL)
        marker = parse_control(batch) if attributes & _CONTROL else None
        if marker is not None:
            self.producers.check_marker(producer_id, epoch, marker.coordinator_epoch, 0)
        elif producer_id >= 0:
            self.producers.check_coordinator_data(producer_id, epoch, transactional)
        self.pipeline.enlist(self)
        self.leader_epoch = max(self.leader_epoch, leader_epoch)
        self.pipeline.changing += 1
        try:
            base_offset = self.log.append(batch, leader_epoch)
        except LogError:
            self.pipeline.changing -= 1  # nothing was staged
            raise
        if marker is not None:
            self.producers.add_marker(
                producer_id, epoch, base_offset, timestamp_ms, marker.coordinator_epoch, marker.is_commit
            )
        elif producer_id >= 0:
            metadata = BatchMetadata(sequence, sequence, base_offset, base_offset + last_delta, timestamp_ms)
            self.producers.add_data(producer_id, epoch, metadata, transactional)
        self.pipeline.changing -= 1
        return base_offset

    def delete_before(self, offset: int) -> int:
        """Stages the move of the log's start up to `offset` (at most the high watermark); never back.

        Returns:
            Where the log begins with that, and with what was staged before.

        Raises:
            LogError: nothing was staged.
        """
        self.pipeline.enlist(self)
        self.log.delete_before(offset)
        self._staged_start = max(self._staged_start, offset, self.log.log_start_offset)
        return self._staged_start

    def rewrite(self, changes: Mapping[int, bytes | None], cleaned_to: int) -> None:
        """Stages a piece of compaction: see `PartitionLog.rewrite`.

        Raises:
            LogError: nothing was staged.
        """
        self.pipeline.enlist(self)
        self.log.rewrite(changes, cleaned_to)

    # ---- reads

    def read(self, offset: int, max_bytes: int, upto_offset: int, at_least_one: bool = True) -> list[bytes]:
        """Whole committed batches from the one that holds `offset` on, all ending below `upto_offset`."""
        return self.log.read(offset, max_bytes, upto_offset, at_least_one)

    def runs(self) -> Iterator[list[tuple[int, bytes]]]:
        """Every committed batch with its base offset, for the load of a shard (`ShardLog`).

        A partition that is still `recovering` is not when all of it was read: a load reads the log for both.
        """
        self.loading += 1
        try:
            if self._recovery is None:
                yield from self.log.runs()
                return
            producers = ProducerStates()
            high_watermark = self.high_watermark
            replay = partial(self._replay, producers)
            for run in self.log.runs():
                replay_producers(run, replay)
                yield run
            if self._recovery is not None:
                self._recovered(producers, high_watermark)
        finally:
            self.loading -= 1

    def epoch_check(self, requested_epoch: int) -> ErrorCode | None:
        """What a client learns whose idea of the leader epoch is not ours (KIP-320); None if it is, or is -1."""
        if requested_epoch == self.leader_epoch or requested_epoch < 0:
            return None
        return ErrorCode.FENCED_LEADER_EPOCH if requested_epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Where a leader epoch ends: (the largest epoch at most `epoch`, the offset behind its last record).

        (-1, -1) for an epoch ahead of all; (epoch, the first known epoch's start) for one before all.
        """
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        if epoch < 0 or epoch > self.leader_epoch:
            return -1, -1
        entries: list[EpochEntry] = self.log.committed_epochs
        end_offset = self.high_watermark
        for entry in reversed(entries):
            if entry.epoch <= epoch:
                return entry.epoch, end_offset
            end_offset = entry.start_offset
        return epoch, end_offset

    # ---- commit (Participant)

    def _settle_producers(self) -> None:
        """A commit is durable, and there are transactions."""
        producers = self.producers
        producers.committed(self.high_watermark)
        if producers.aborted:
            producers.aborted.delete_before(self.log.log_start_offset)
        self._update_last_stable_offset()

    def failed(self, error: LogError) -> None:
        """Takes back what was staged, and what producers did in it. It may be called again if it raised.

        Everything below the log's high watermark is durable, also where an error came behind the write.
        """
        self._staged_start = self.log.log_start_offset
        self.high_watermark = self.log.high_watermark
        self.producers.rollback(self.high_watermark)
        self.producers.committed(self.high_watermark)
        self._update_last_stable_offset()
        self.unacknowledged_end = 0
        if self.watched:
            self._progress()

    def close(self) -> None:
        """The partition was deleted: whoever waits for it learns."""
        self.closed = True
        if self.watched:
            self._progress()

    def _progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self)

    def _update_last_stable_offset(self) -> None:
        first_unstable = self.producers.first_unstable_offset()
        stable = self.high_watermark
        if first_unstable is not None and first_unstable < stable:
            stable = max(first_unstable, self.log.log_start_offset)
        self.last_stable_offset = stable
