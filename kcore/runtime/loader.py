"""Recovery: a shard's log, replayed into a fresh state machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from kcore_ext.batch import iter_records, parse_control, parse_header

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

    Records of types that the machine does not know are counted and skipped, as in Kafka; anything that cannot be
    decoded or replayed raises, and fails the load.
    """
    until_pause = SLICE_RECORDS
    for _, batch in log.batches():
        header = parse_header(batch)
        report.batches += 1
        report.size_bytes += len(batch)
        if header.is_control:
            marker = parse_control(batch)
            if marker.is_end_marker:
                machine.replay_marker(header.base_offset, header.producer_id, header.producer_epoch, marker.is_commit)
        else:
            _replay_batch(batch, header.producer_id if header.is_transactional else -1, machine, report)
        until_pause -= header.record_count
        if until_pause <= 0:
            until_pause = SLICE_RECORDS
            yield
    if report.unknown:
        logger.warning("skipped %d records of unknown types", report.unknown)


def _replay_batch(batch: Any, producer_id: int, machine: Any, report: LoadReport) -> None:
    decode, replay = machine.decode, machine.replay
    for record in iter_records(batch):
        typed = decode(record.key, record.value)
        if typed is None:
            report.unknown += 1
            continue
        key, value = typed
        replay(record.offset, producer_id, key, value)
        report.records += 1
