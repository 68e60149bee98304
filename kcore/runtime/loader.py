"""Recovery: a shard's log, replayed into a fresh state machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kcore.protocol.compression import decompress
from kcore_ext.batch import iter_entries, parse_control, parse_header

logger = logging.getLogger(__name__)

SLICE_RECORDS = 5_000  # how many records are replayed between two looks at the requests that wait


class ShardLog(Protocol):
    """The log of one shard, as the runtime uses it: a partition log, or a partition that wraps one."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get, counting what is staged."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node owns the partition; an append with an older one is refused."""
        ...

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Stages a batch for the next commit; returns its base offset."""
        ...

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Every committed batch with its base offset, in order."""
        ...


@dataclass(slots=True)
class LoadReport:
    """What a load did.

    Attributes:
        records: how many records were replayed.
        batches: how many batches they stood in.
        size_bytes: how many bytes these had.
        unknown: how many records of unknown types were skipped.
        elapsed_ms: how long it took, from the first slice to the last.
    """

    records: int = 0
    batches: int = 0
    size_bytes: int = 0
    unknown: int = 0
    elapsed_ms: int = 0


def replay_log(log: ShardLog, machine: Any, report: LoadReport) -> Iterator[None]:
    """Replays a whole log, pausing after each slice of `SLICE_RECORDS` records.

    The log is the snapshot too: it is compacted in place, so that its length follows what lives in it, not its history.

    Records of types that the machine does not know are counted and skipped, as in Kafka; anything that cannot be
    decoded or replayed raises, and fails the load.
    """
    until_pause = SLICE_RECORDS
    next_offset = 0
    replay_batch = getattr(machine, "replay_batch", None) or _one_by_one(machine)
    for _, batch in log.batches():
        header = parse_header(batch)
        count = header.record_count
        report.batches += 1
        report.size_bytes += len(batch)
        if header.is_control:
            # One without a record: Kafka's compaction leaves such a marker when nothing of its transaction is left.
            marker = parse_control(batch) if count else None
            if marker is not None and marker.is_end_marker:
                machine.replay_marker(header.base_offset, header.producer_id, header.producer_epoch, marker.is_commit)
        elif count:
            # Compaction that ran meanwhile may have merged what comes now with what came before.
            from_offset = next_offset if header.base_offset < next_offset else header.base_offset
            if header.is_transactional or header.compression:
                producer_id = header.producer_id if header.is_transactional else -1
                unknown = _replay_records(batch, from_offset, producer_id, machine)
            else:
                unknown = replay_batch(batch, from_offset)
            report.records += count - unknown
            report.unknown += unknown
        next_offset = header.next_offset
        until_pause -= max(count, 1)
        if until_pause <= 0:
            until_pause = SLICE_RECORDS
            yield
    if report.unknown:
        logger.warning("skipped %d records of unknown types", report.unknown)


def _one_by_one(machine: Any) -> Callable[[Any, int], int]:
    """`replay_batch` for a machine that has none."""
    return lambda batch, from_offset: _replay_records(batch, from_offset, -1, machine)


def _replay_records(batch: Any, from_offset: int, producer_id: int, machine: Any) -> int:
    """Replays the records of a batch from an offset on; returns how many were of unknown types."""
    decode, replay = machine.decode, machine.replay
    unknown = 0
    for offset, _, key, value in iter_entries(batch, decompress=decompress):
        if offset < from_offset:
            continue
        typed = decode(key, value)
        if typed is None:
            unknown += 1
        else:
            replay(offset, producer_id, *typed)
    return unknown
