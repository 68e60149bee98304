"""A partition: its log, its producers, its transactions, and the offsets up to which readers may read.

With one replica the high watermark is the committed end of the log: it advances when a commit returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.producer_snapshot import decode, encode
from kcore.broker.data.producer_state import BatchMetadata, ProducerStates, increment_sequence
from kcore.errors import KafkaError
from kcore.log.errors import CorruptLogError, LogClosedError, LogError, PartitionDroppedError
from kcore.process_logging import log_failure
from kcore.protocol.batch_layout import CONTROL_BIT, TRANSACTIONAL_BIT, header_struct
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.batch import parse_control, parse_header
from kcore_ext.batch.run import replay_producers
from kcore_ext.broker.partition import PartitionCore

if TYPE_CHECKING:
    from kcore.log.interface import EpochEntry, PartitionLog
    from kcore.runtime.commit import CommitPipeline
    from kcore_ext.broker.topic_traffic import TopicTraffic

logger = logging.getLogger(__name__)

SNAPSHOT_MAX_PRODUCERS = 20_000
"""Maximum number of producers and aborted transactions in a snapshot. A larger snapshot would delay requests."""

NO_EPOCH = -1
"""The leader epoch of a request that has none."""

MARKERS_A_SLICE = 500
"""Number of markers that one slice of a recovery looks up in the log. A look-up takes about 10 µs."""

_PRODUCER_FIELDS = header_struct(
    "attributes", "last_delta", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"
)


class Partition(PartitionCore):
    """One partition that this node leads. `PartitionCore` has the compiled code of every append and every commit.

    As a `Participant` it advances the high watermark when a commit returns. A partition of an internal topic is also
    the `ShardLog` of a coordinator's shard.

    Args:
        topic: the topic's name.
        topic_id: the topic's id, 16 bytes.
        index: the partition's number.
        log: the partition's log.
        leader_epoch: the epoch in which this node leads the partition. Appended batches contain it.
        config: the topic's settings.
        pipeline: commits the partition's appends.
        internal: True if the topic belongs to a coordinator, so that clients cannot write to it.
        traffic: the counters of the topic's traffic; None: the partition has its own.

    Attributes:
        high_watermark: the committed end; readers see the offsets below it.
        last_stable_offset: the start of the earliest open transaction, at most the high watermark; read_committed
            readers see the offsets below it.
        producers: sequences, transactions and aborted transactions.
        unacknowledged_end: the end of the last append with acks=0. Its producer receives no response when the append is
            durable, and can expect to read the records immediately.
        watched: number of parked requests that wait for this partition.
        recovering: True while the producers are read from the log. The partition serves no requests meanwhile.
        closed: True if the partition was deleted.
        loading: number of shard loads that are reading the partition, which is then a coordinator's partition.
        pipeline: commits the staged appends.
    """

    __slots__ = (
        "_on_progress",
        "_read_ahead",
        "_recovery",
        "_snapshot_offset",
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
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = max(leader_epoch, log.leader_epoch)
        self.config = config or LogConfig()
        self.internal = internal
        if traffic is not None:
            self.traffic = traffic
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
        self._snapshot_offset = -1  # of the last snapshot that was staged
        self._read_ahead: tuple[ProducerStates, int] | None = None
        self._recovery: Iterator[None] | None = None
        self.recovering = log.log_start_offset < log.high_watermark or self._snapshot_is_current()
        if self.recovering:
            self._recovery = self._recover()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def when_progress(self, callback: Callable[[Partition], None]) -> None:
        """Sets the callback for new data, an advanced log start, or the deletion of the partition.

        The partition calls the callback only while parked requests wait for the partition (`watched`).
        """
        self._on_progress = callback

    # ---- offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may fetch."""
        return self.log.log_start_offset

    @property
    def unacknowledged(self) -> bool:
        """True while an append with acks=0 is not durable."""
        return self.unacknowledged_end > self.high_watermark

    @property
    def dirty(self) -> bool:
        """True while an append is not durable."""
        return self.log.end_offset != self.high_watermark

    # ---- recovery

    def recovery(self) -> Iterator[None]:
        """Recovers in slices; ends immediately if the recovery is complete.

        The generator also ends if the log cannot be read. The partition then stays `recovering` and serves no requests.
        `RecoveryRetry` later calls `begin_recovery` and runs a new recovery.
        """
        while self._recovery is not None:
            try:
                next(self._recovery)
            except StopIteration:
                return
            except (LogClosedError, PartitionDroppedError):
                return  # the engine was closed, or the topic deleted, meanwhile
            except Exception as error:
                log_failure(
                    logger,
                    error,
                    "partition %r cannot be recovered and stays unavailable until a later attempt succeeds; to check "
                    "the partition's log for damage, run `kcore log verify`",
                    self,
                )
                return
            yield

    def begin_recovery(self) -> None:
        """Prepares another `recovery` after one that failed."""
        if self.recovering:
            self._recovery = self._recover()

    def finish_recovery(self) -> None:
        """Completes the recovery now, without pauses.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the log is damaged.
        """
        for _ in self.recovery():
            pass
        if self._recovery is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _recover(self) -> Iterator[None]:
        """Rebuilds producers and transactions from the snapshot, if there is one, and the batches after it.

        If the log is compacted beyond the snapshot's offset, markers of the snapshot's transactions may be missing. The
        recovery then replays the whole log. From the snapshot it takes only the producers whose batches the log has
        deleted.
        """
        producers, start, deleted = ProducerStates(), self.log.log_start_offset, None
        snapshot = self._read_snapshot()
        if snapshot is not None:
            states, offset = snapshot
            if offset >= self.log.cleaned_to:
                producers, start = states, offset
            else:
                deleted = states
        yield from self._forget_compacted_transactions(producers)
        replay = partial(replay_producer_batch, producers)
        for run in self.log.runs(start, check_crc=False):
            replay_producers(run, replay)
            producers.committed(self.high_watermark)
            yield
        if deleted is not None:
            producers.adopt_deleted(deleted, self.log.log_start_offset)
        self._recovered(producers, self.high_watermark)

    def _recovered(self, producers: ProducerStates, high_watermark: int) -> None:
        """Installs the producers that were read from the log up to `high_watermark`."""
        self._recovery = None
        self.recovering = False
        producers.adopt_refused(self.producers)
        self.producers = producers
        producers.committed(high_watermark)
        self._update_last_stable_offset()

    def _snapshot_is_current(self) -> bool:
        """Returns True if the log has a snapshot, and no batch after the snapshot was deleted."""
        snapshot = None if self.internal else self.log.snapshot
        return snapshot is not None and self.log.log_start_offset <= snapshot.offset <= self.log.high_watermark

    def _read_snapshot(self) -> tuple[ProducerStates, int] | None:
        """Returns the states of producers in the snapshot, and the snapshot's offset; None if no snapshot is usable."""
        snapshot = self.log.snapshot
        if snapshot is None or not self._snapshot_is_current():
            return None
        try:
            return decode(self.log.read_snapshot()), snapshot.offset
        except (ValueError, CorruptLogError):
            logger.exception(
                "partition %r: the producer snapshot is damaged; kcore ignores it and replays the whole log; check the "
                "disk",
                self,
            )
            return None

    def _forget_compacted_transactions(self, producers: ProducerStates) -> Iterator[None]:
        """Removes aborted transactions whose markers compaction has removed since the snapshot. Works in slices."""
        removed = set()
        until_pause = MARKERS_A_SLICE
        for transaction in producers.aborted.entries:
            offset = transaction.last_offset
            if self.log.log_start_offset <= offset < self.log.cleaned_to:
                found = self.log.summaries(offset, 1)
                if not found or found[0].base_offset != offset:
                    removed.add(offset)
                until_pause -= 1
                if not until_pause:
                    until_pause = MARKERS_A_SLICE
                    yield
        producers.aborted.forget(removed)

    def snapshot_producers(self, min_records: int) -> bool:
        """Stages a snapshot of the producers if a restart would replay `min_records` offsets or more.

        It makes no snapshot while the partition is dirty, or if it has more producers than can be written without a
        pause. A coordinator's partition needs none, because its log is compacted. Returns True if it staged one.
        """
        log = self.log
        last = log.snapshot
        from_offset = log.log_start_offset
        if last is not None and last.offset >= log.cleaned_to:
            from_offset = max(from_offset, last.offset)
        replayed = self.high_watermark - from_offset
        if (
            replayed < min_records
            or self._snapshot_offset == self.high_watermark
            or self.dirty
            or self.closed
            or not self._allows_snapshot()
        ):
            return False
        self._stage_snapshot()
        return True

    @property
    def snapshot_size(self) -> int:
        """The number of producers and aborted transactions in the snapshot that a deletion of records writes; 0 if the
        deletion writes no snapshot.

        A deletion writes no snapshot during a recovery, for a coordinator's partition, and above
        `SNAPSHOT_MAX_PRODUCERS`.
        """
        return self._producer_count() if self._allows_snapshot() else 0

    def _allows_snapshot(self) -> bool:
        return not (self.internal or self.recovering or self._producer_count() > SNAPSHOT_MAX_PRODUCERS)

    def _producer_count(self) -> int:
        """Returns the number of producers and aborted transactions."""
        return len(self.producers.entries) + len(self.producers.aborted)

    def _stage_snapshot(self) -> None:
        """Stages a snapshot of the producers' durable state."""
        log, offset = self.log, self.high_watermark
        self.pipeline.enlist(self)
        self.pipeline.changing += 1
        for index, chunk in enumerate(encode(self.producers, offset)):
            log.put_snapshot_chunk(offset, index, chunk)
        log.commit_snapshot(offset)
        log.drop_old_snapshots()
        self._snapshot_offset = offset
        self.pipeline.changing -= 1

    # ---- appends

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Stages a coordinator's batch (`ShardLog`). A transactional batch opens its producer's transaction in this
        partition; a control batch ends it.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE or TRANSACTION_COORDINATOR_FENCED; the coordinator
                can check for them first with `producers.check_coordinator_data` and `check_marker`.
            LogError: nothing was appended.
        """
        if self._recovery is not None:
            self.finish_recovery()
        attributes, last_delta, timestamp_ms, producer_id, epoch, sequence = _PRODUCER_FIELDS.unpack_from(batch)
        transactional = bool(attributes & TRANSACTIONAL_BIT)
        marker = parse_control(batch) if attributes & CONTROL_BIT else None
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
        """Stages the advance of the log's start to `offset` (at most the high watermark). The start never moves back.

        The method also stages a snapshot of the producers. Without the snapshot, a restart would lose the sequences of
        deleted batches. A client that repeats such a batch would then write it a second time.

        Returns:
            The log's start after this and earlier staged advances.

        Raises:
            LogError: nothing was staged.
        """
        self.pipeline.enlist(self)
        if offset > self.log.log_start_offset and self.snapshot_size and self._snapshot_offset != self.high_watermark:
            self._stage_snapshot()
        self.log.delete_before(offset)
        self._staged_start = max(self._staged_start, offset, self.log.log_start_offset)
        return self._staged_start

    def rewrite(self, changes: Mapping[int, bytes | None], cleaned_to: int) -> None:
        """Stages a slice of compaction with `PartitionLog.rewrite`, and adds this partition to the participants of the
        next commit.

        Raises:
            LogError: nothing was staged.
        """
        self.pipeline.enlist(self)
        self.log.rewrite(changes, cleaned_to)

    # ---- reads

    def read(self, offset: int, max_bytes: int, upto_offset: int, at_least_one: bool = True) -> list[bytes]:
        """Reads whole committed batches.

        The first batch contains `offset`, and the last batch ends below `upto_offset`.
        """
        return self.log.read(offset, max_bytes, upto_offset, at_least_one)

    def runs(self, start: int | None = None) -> Iterator[list[tuple[int, bytes]]]:
        """Yields committed batches with their base offsets, for the load of a shard (`ShardLog`).

        If the partition is still `recovering`, the same pass over the log also recovers its producers.

        Args:
            start: the first offset; if the partition is recovering, the offset given to `continue_recovery`. None: all
                batches.
        """
        self.loading += 1
        try:
            read_ahead, self._read_ahead = self._read_ahead, None
            if self._recovery is None:
                yield from self.log.runs(start)
                return
            producers = ProducerStates()
            if start is not None:
                assert read_ahead is not None, f"the producers of {self!r} are not known up to {start}"
                assert read_ahead[1] == start, f"the producers of {self!r} are known up to {read_ahead[1]}"
                producers = read_ahead[0]
            high_watermark = self.high_watermark
            replay = partial(replay_producer_batch, producers)
            for run in self.log.runs(start):
                replay_producers(run, replay)
                yield run
            if self._recovery is not None:
                self._recovered(producers, high_watermark)
        finally:
            self.loading -= 1

    def continue_recovery(self, producers: ProducerStates, offset: int) -> None:
        """Sets the start of the recovery of a coordinator's partition, whose log this node has read ahead.

        Args:
            producers: the states of producers from the batches below `offset`.
            offset: the offset at which the recovery continues.
        """
        self._read_ahead = producers, offset

    def epoch_check(self, requested_epoch: int) -> ErrorCode | None:
        """Returns the error for a client's leader epoch (KIP-320); None if the epoch is the current leader epoch
        or -1.
        """
        if requested_epoch in (self.leader_epoch, NO_EPOCH):
            return None
        return ErrorCode.FENCED_LEADER_EPOCH if requested_epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns the end of a leader epoch, as a pair.

        The pair contains the largest known epoch that is at most `epoch`, and the offset after the last record of this
        epoch.

        For -1 and for an epoch above the current leader epoch, the result is (-1, -1). For an epoch before all known
        epochs, it is (epoch, start of the first known epoch).
        """
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        if epoch == NO_EPOCH or epoch > self.leader_epoch:
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
        """Updates transactions and the last stable offset after a commit. Can be repeated after an exception."""
        producers = self.producers
        producers.committed(self.high_watermark)
        if producers.aborted:
            producers.aborted.delete_before(self.log.log_start_offset)
        self._update_last_stable_offset()

    def failed(self, error: LogError) -> None:
        """Rolls back staged appends and their changes of the states of producers. Can be repeated after an exception.

        Offsets below the log's high watermark are durable even if the error occurred after the write.
        """
        self._staged_start = self.log.log_start_offset
        self._snapshot_offset = -1
        self.high_watermark = self.log.high_watermark
        self.producers.rollback(self.high_watermark)
        self.producers.committed(self.high_watermark)
        self._update_last_stable_offset()
        self.unacknowledged_end = 0
        if self.watched:
            self._progress()

    def close(self) -> None:
        """Marks the partition as deleted and notifies parked requests."""
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


def replay_producer_batch(producers: ProducerStates, batch: bytes) -> None:
    """Applies a producer's batch to `producers`."""
    attributes, last_delta, timestamp_ms, producer_id, epoch, sequence = _PRODUCER_FIELDS.unpack_from(batch)
    header = parse_header(batch)
    base_offset = header.base_offset
    if attributes & CONTROL_BIT:
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
    producers.add_data(producer_id, epoch, metadata, bool(attributes & TRANSACTIONAL_BIT))
