"""Checks of a partition's records and transactions, compacted or not, for `kcore log verify`.

The log itself checks bytes, offsets and epochs (`LogEngine.verify`). This module reads the records and checks that

* every record can be read;
* the compacted part of the log (below `cleaned_to`) has no record that compaction should have removed;
* a further compaction pass would not change the state that a replay of the log gives. The check runs this pass without
  writing its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kcore.broker.compaction.cleaner import CompactionPass, CompactionRules
from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.partition import Partition
from kcore.log.interface import Finding
from kcore.protocol.compression import decompress
from kcore.runtime.commit import CommitPipeline
from kcore_ext.batch import BatchHeader, CorruptBatchError, iter_entries, parse_control, parse_header, validate

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine, PartitionLog

Batches = Iterable[tuple[int, bytes]]


class _StoredValue(NamedTuple):
    """A record's value and its offset."""

    offset: int
    value: bytes | None


class ReplayedState:
    """The last record of each key in a log. Records of a transaction become part of the state when the replay reaches
    the transaction's marker.

    Attributes:
        values: key -> its last record.
        pending: producer id -> key -> the last record in the producer's open transaction.
    """

    __slots__ = ("pending", "values")

    def __init__(self, batches: Batches) -> None:
        self.values: dict[bytes, _StoredValue] = {}
        self.pending: dict[int, dict[bytes, _StoredValue]] = {}
        for _, batch in batches:
            header = parse_header(batch)
            if header.is_control:
                self._end(header, batch)
                continue
            target = self.pending.setdefault(header.producer_id, {}) if header.is_transactional else self.values
            for offset, _, key, value in iter_entries(batch, decompress=decompress):
                if key is not None:
                    target[key] = _StoredValue(offset, value)
        self.values = {key: stored for key, stored in self.values.items() if stored.value is not None}
        self.pending = {producer_id: stored for producer_id, stored in self.pending.items() if stored}

    def _end(self, header: BatchHeader, batch: bytes) -> None:
        marker = parse_control(batch) if header.record_count else None
        if marker is None or not marker.is_end_marker:
            return
        for key, stored in self.pending.pop(header.producer_id, {}).items():
            present = self.values.get(key)
            if marker.is_commit and (present is None or present.offset < stored.offset):
                self.values[key] = stored

    def difference(self, other: ReplayedState) -> int | None:
        """Returns the first offset at which this state and `other` differ; None if the states are equal."""
        mine, theirs = self._all(), other._all()
        return min((stored[-1].offset for stored in mine ^ theirs), default=None)

    def _all(self) -> set[tuple[int, bytes, _StoredValue]]:
        entries = {(-1, key, stored) for key, stored in self.values.items()}
        for producer_id, pending in self.pending.items():
            entries.update((producer_id, key, stored) for key, stored in pending.items())
        return entries


class _Rehearsal(CompactionPass):
    """A compaction pass that collects its changes in `rehearsed` and writes nothing."""

    __slots__ = ("rehearsed",)

    def __init__(self, partition: Partition, rules: CompactionRules) -> None:
        super().__init__(partition, rules)
        self.rehearsed: dict[int, bytes | None] = {}

    def _stage(self, position: int) -> None:
        self._sweep.flush()
        self.rehearsed.update(self._changes)
        self._changes.clear()

    def _settle(self) -> bool:
        return True


def check_records(log: PartitionLog) -> Iterator[Finding]:
    """Yields a finding (`record`) for each batch whose records cannot be read, in order of offset.

    Raises:
        CorruptLogError: the log itself cannot read a batch. `LogEngine.verify` reports this damage.
    """
    for base, batch in log.batches(check_crc=False):
        try:
            validate(batch, decompress=decompress)
        except CorruptBatchError as error:
            yield Finding(log.key, base, "record", error.reason)


def check_compacted(log: PartitionLog) -> Iterator[Finding]:
    """Yields findings (`compaction`) about the compacted part of the log, below `cleaned_to`.

    Findings are records without a key, duplicate keys, and transactions without a marker.

    Raises:
        CorruptLogError, CorruptBatchError: a batch is damaged.
    """
    start, mark = log.log_start_offset, log.cleaned_to
    seen: dict[bytes, int] = {}
    open_: dict[int, int] = {}
    if mark <= start:
        return
    for base, batch in log.batches():
        header = parse_header(batch)
        if header.is_control:
            if header.record_count and parse_control(batch).is_end_marker:
                open_.pop(header.producer_id, None)
        elif header.is_transactional:
            open_.setdefault(header.producer_id, base)
        # Compaction does not touch a batch that the log's start cuts.
        if header.is_control or base < start or base >= mark:
            continue
        for offset, _, key, _ in iter_entries(batch, decompress=decompress):
            if key is None:
                yield Finding(log.key, offset, "compaction", "a record without a key")
            elif key in seen:
                yield Finding(log.key, seen[key], "compaction", f"a record at {offset} has the same key")
            if key is not None:
                seen[key] = offset
    for producer_id, first in open_.items():
        if first < mark:
            yield Finding(log.key, first, "compaction", f"the transaction of producer {producer_id} has no marker")


def check_rehearsed(engine: LogEngine, log: PartitionLog, wall_ms: int) -> Iterator[Finding]:
    """Yields a finding (`state`) if compaction of this log would change the state that a replay of it gives.

    Args:
        engine: the engine of the log; the check commits nothing.
        log: the log of a compacted topic.
        wall_ms: the wall-clock time of the rehearsed pass, ms since the epoch.

    Raises:
        LogError, CorruptBatchError: a batch is damaged.
        KafkaError: the partition cannot be recovered.
    """
    partition = Partition(
        "",
        log.key.topic_id,
        log.key.partition,
        log,
        leader_epoch=log.leader_epoch,
        pipeline=CommitPipeline(engine),
        config=LogConfig({"cleanup.policy": "compact"}),
        internal=True,
    )
    partition.finish_recovery()
    rehearsal = _Rehearsal(partition, CompactionRules(wall_ms))
    for _ in rehearsal.run():
        pass
    changes = rehearsal.rehearsed
    before = ReplayedState(log.batches())
    compacted = ((base, changes.get(base, batch)) for base, batch in log.batches())
    after = ReplayedState((base, batch) for base, batch in compacted if batch is not None)
    offset = before.difference(after)
    if offset is not None:
        yield Finding(log.key, offset, "state", "compaction would change the state that a replay gives")
