"""Checks of the producers of one partition from its batch headers: a fenced epoch writes no further batch (KIP-98).

Epochs only grow, so any two remaining batches can be compared, even if compaction removed batches between them.
"""

from __future__ import annotations

from typing import Final

from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.audit.check import Check, Log
from kcore.spark.audit.finding import AuditObservation, Evidence
from kcore.spark.events.event import EventRow
from kcore.spark.state.producers import marker_of

FORGOTTEN_MS: Final = 86_400_000
"""Idle time in ms after which Kafka forgets a producer and then accepts any epoch from it
(`producer.id.expiration.ms`).
"""
SWEEP_ROWS: Final = 100_000


class _Producer:
    __slots__ = ("coordinator", "coordinator_epoch", "epoch", "fenced", "first", "group_id", "last_ms", "newest")

    def __init__(self, epoch: int, current: Evidence) -> None:
        self.epoch = epoch
        self.newest = current  # the first row of its epoch
        self.coordinator_epoch = -1
        self.coordinator: Evidence | None = None
        self.last_ms = current.timestamp_ms
        self.first: Evidence | None = None  # the start of its open transaction
        self.group_id: str | None = None
        self.fenced = -1  # an older epoch whose write was reported already


class ProducerEpochs(Check):
    """The check of the producer epochs of data and markers, and of the coordinator epochs of markers.

    At the end of the log, it emits an observation of each open transaction.
    """

    __slots__ = ("_producers", "_until_sweep")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._producers: dict[int, _Producer] = {}
        self._until_sweep = SWEEP_ROWS

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._producers.clear()

    def producer_row(self, row: EventRow, group_id: str | None) -> None:
        """Implements `Check.producer_row`."""
        current = self.log.evidence_of(row)
        marker = marker_of(row) if row.control and not row.batch_only else None
        if row.control and marker is None and not row.batch_only:
            return  # a control record that is not a marker
        producer = self._producers.get(row.producer_id)
        if producer is None:
            producer = self._producers[row.producer_id] = _Producer(row.producer_epoch, current)
        elif row.producer_epoch < producer.epoch and current.timestamp_ms - producer.last_ms < FORGOTTEN_MS:
            self._fenced(row, producer, current, group_id)
            return
        if row.producer_epoch != producer.epoch:
            producer.epoch, producer.newest, producer.fenced = row.producer_epoch, current, -1
        producer.last_ms = max(producer.last_ms, current.timestamp_ms)
        if marker is not None:
            self._marker(row, producer, current, *marker)
        if row.control:
            producer.first = producer.group_id = None
        elif row.transactional and not row.batch_only and producer.first is None:
            producer.first, producer.group_id = current, group_id
        self._sweep(current.timestamp_ms)

    def _marker(
        self, row: EventRow, producer: _Producer, current: Evidence, commit: bool, coordinator_epoch: int
    ) -> None:
        if coordinator_epoch < producer.coordinator_epoch and producer.coordinator is not None:
            self.log.report(
                "coordinator-epoch-decreased",
                [producer.coordinator, current],
                f"A marker for producer {row.producer_id} has coordinator epoch {coordinator_epoch}, after a marker "
                f"of epoch {producer.coordinator_epoch}.",
                producer_id=row.producer_id,
            )
        producer.coordinator_epoch, producer.coordinator = coordinator_epoch, current
        topic, partition = self.log.topic, self.log.partition
        self.log.emit(
            AuditObservation(
                "marker",
                row.producer_id,
                topic,
                partition,
                current.timestamp_ms,
                row.producer_epoch,
                *current[:3],
                commit=commit,
            )
        )

    def _fenced(self, row: EventRow, producer: _Producer, current: Evidence, group_id: str | None) -> None:
        """Reports a write with a lower producer epoch than an earlier write of the producer.

        Reports only the first data batch of a fenced epoch, until a newer epoch writes.
        """
        kind, written = "fenced-write", "data"
        if row.control:
            kind, written = "fenced-marker", "a marker"
        elif self.log.topic == CONSUMER_OFFSETS:
            kind, written = "fenced-commit", f"an offset of group {group_id}"
        if not row.control and producer.fenced == row.producer_epoch:
            return
        producer.fenced = row.producer_epoch
        self.log.report(
            kind,
            [producer.newest, current],
            f"Producer {row.producer_id} wrote {written} in epoch {row.producer_epoch}, after epoch {producer.epoch}.",
            group_id=group_id,
            producer_id=row.producer_id,
        )

    def _sweep(self, now_ms: int) -> None:
        """Drops idle producers, as a broker does, so that memory depends on the live producers only."""
        self._until_sweep -= 1
        if self._until_sweep:
            return
        self._until_sweep = SWEEP_ROWS
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.first is None and now_ms - producer.last_ms >= FORGOTTEN_MS
        ]
        for producer_id in idle:
            del self._producers[producer_id]

    def end(self) -> None:
        """Implements `Check.end`."""
        topic, partition = self.log.topic, self.log.partition
        for producer_id, producer in self._producers.items():
            first = producer.first
            if first is not None:
                self.log.emit(
                    AuditObservation(
                        "open",
                        producer_id,
                        topic,
                        partition,
                        first.timestamp_ms,
                        producer.epoch,
                        *first[:3],
                        group_id=producer.group_id,
                    )
                )
