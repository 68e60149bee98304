"""The audit of one partition's log without Spark: runs all checks in one pass in offset order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kcore.group.shard import REPLAY, GroupShard
from kcore.protocol import DecodeError
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
)
from kcore.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.classic import ClassicOwners, Generations
from kcore.spark.audit.epochs import GroupEpochs
from kcore.spark.audit.finding import AuditObservation, Finding
from kcore.spark.audit.history import History
from kcore.spark.audit.log_order import LogOrder
from kcore.spark.audit.offsets import OffsetsDecreased
from kcore.spark.audit.owners import Owners
from kcore.spark.audit.producers import ProducerEpochs
from kcore.spark.audit.share_delivery import ShareDelivery
from kcore.spark.audit.share_groups import ShareLists
from kcore.spark.audit.share_states import ShareEpochs
from kcore.spark.audit.streams import StreamsTasks
from kcore.spark.audit.transactions import Transitions
from kcore.spark.decode.record_types import NO_KEY
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.state.machines import group_machine
from kcore.spark.state.producers import marker_of
from kcore.transaction.transaction import of_value
from kcore_ext.group.offsets import OffsetDecoder

Row = EventRow | LogFault

NOTHING: Final[list[Finding | AuditObservation]] = []
NEVER_MS: Final = 2**62
"""The value of `LogSpan.since_ms` for a log that may lack records up to its end. It is later than any timestamp."""

CHECKS: Final[dict[str, tuple[type[Check], ...]]] = {
    CONSUMER_OFFSETS: (Generations, ClassicOwners, GroupEpochs, Owners, ShareLists, StreamsTasks),
    TRANSACTION_STATE: (Transitions,),
    SHARE_GROUP_STATE: (ShareEpochs, ShareDelivery),
}
"""Topic -> the checks of its records.

`PartitionAudit` adds the checks of producers and of log order for every topic. For `__consumer_offsets`, it also adds
`OffsetsDecreased`, which needs the replayed groups.
"""


class PartitionAudit:
    """The audit of one partition.

    Args:
        topic: the name of an internal topic or of a user's topic.
        partition: the number of the partition.
        cleaned_to: the offset up to which compaction has run, if known.
    """

    def __init__(self, topic: str, partition: int, cleaned_to: int | None = None) -> None:
        self._results: list[Finding | AuditObservation] = []
        self._history = History(topic, cleaned_to)
        self._log = Log(topic, partition, self._history, self._results.append)
        self._order = LogOrder(self._log)
        self._producers = ProducerEpochs(self._log)
        self._checks: list[Check] = [self._order, self._producers, *(cls(self._log) for cls in CHECKS.get(topic, ()))]
        self._groups: GroupShard | None = None  # groups and offsets, replayed alongside
        self._offsets: OffsetsDecreased | None = None
        if topic == CONSUMER_OFFSETS:
            self._groups = group_machine()
            self._offsets = OffsetsDecreased(self._log, self._groups)
            self._checks.append(self._offsets)
        self._handlers = self._handlers_of_checks()
        self._decode_offset = OffsetDecoder().decode
        self._last_offset = -1
        self._newest_ms = -1

    def _handlers_of_checks(self) -> dict[type, list[Handler]]:
        handlers: dict[type, list[Handler]] = {}
        for check in self._checks:
            for cls, handler in check.handlers().items():
                handlers.setdefault(cls, []).append(handler)
        return handlers

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes for a pickle, without the handlers, which `__setstate__` gets from the checks."""
        return {name: value for name, value in vars(self).items() if name != "_handlers"}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        """Restores the attributes of a pickle."""
        vars(self).update(attributes)
        self._handlers = self._handlers_of_checks()

    def take(self) -> list[Finding | AuditObservation]:
        """Returns the findings and the observations (`AuditObservation`) since the last call."""
        if not self._results:
            return NOTHING
        results = list(self._results)
        self._results.clear()
        return results

    def process(self, row: Row) -> None:
        """Audits the next row of the log, or reports a part of the log that the reader could not read (`LogFault`)."""
        if isinstance(row, LogFault):
            self._order.fault(row)
            if row.kind != "duplicate":
                self._history.lost()
                self._forget()
            return
        if row.offset <= self._last_offset:
            self._order.duplicate(row)
            return
        self._last_offset = row.offset
        self._newest_ms = max(self._newest_ms, row.timestamp_ms)
        missing = self._history.add(row)
        if missing is not None:
            self._order.missing(*missing, row)
            self._forget()
        self._order.add(row)
        if row.batch_only or row.control:
            self._batch(row)
        else:
            self._record(row)

    def end(self) -> None:
        """Finishes all checks at the end of the log."""
        for check in self._checks:
            check.end()
        log, history = self._log, self._history
        state = "damaged" if history.damaged else "whole" if history.is_whole else "partial"
        if self._last_offset >= 0:
            since_ms = history.solid_ms if history.solid_from is not None else NEVER_MS
            sample = tuple(observation for check in self._checks for observation in check.sample)
            log.emit(
                AuditObservation(
                    "log",
                    -1,
                    log.topic,
                    log.partition,
                    since_ms,
                    -1,
                    log.topic,
                    log.partition,
                    self._last_offset,
                    end_ms=self._newest_ms,
                    state=state,
                    partitions=sample,
                )
            )

    def _forget(self) -> None:
        for check in self._checks:
            check.forget()
        if self._offsets is not None:
            self._groups = group_machine()
            self._offsets.replaced(self._groups)

    def _batch(self, row: EventRow) -> None:
        if row.producer_id >= 0:
            self._producers.producer_row(row, None)
        marker = None if row.batch_only else marker_of(row)
        if marker is None:
            return
        for check in self._checks:
            check.marker(row, marker[0])
        if self._groups is not None:
            self._groups.replay_marker(row.offset, row.producer_id, row.producer_epoch, marker[0])

    def _record(self, row: EventRow) -> None:
        topic = self._log.topic
        typed = None
        if topic in CHECKS:
            try:
                typed = self._decode(topic, row.key, row.value)
            except (DecodeError, ValueError) as error:
                self._order.undecodable(row, error)
        findings_before = self._log.count
        if row.producer_id >= 0:
            self._producers.producer_row(row, None if typed is None else getattr(typed[0], "group", None))
        if typed is None:
            return
        key, value = typed
        for handler in self._handlers.get(type(key), ()):
            handler(row, key, value)
        if self._groups is not None and type(key) in REPLAY:
            self._replay(self._groups, row, key, value, findings_before)

    def _decode(self, topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
        """Decodes a record to typed key and value; returns None for an unknown type, which Kafka skips too."""
        if key is None:
            raise ValueError(NO_KEY)
        if topic == CONSUMER_OFFSETS:
            decoded: tuple[Any, Any] | None = self._decode_offset(key, value)
            if decoded is not None:
                return decoded
        typed = decode_key(topic, key)
        if isinstance(typed, UnknownRecord):
            return None
        if isinstance(typed, TransactionLogKey):
            return typed, None if value is None else of_value(TransactionLogValue.decode_value(value))
        return typed, decode_value(typed, value)

    def _replay(self, groups: GroupShard, row: EventRow, key: Any, value: Any, findings_before: int) -> None:
        """Replays a record in the group shard.

        If the shard refuses the record, reports a finding, unless a check has reported a finding on this record.
        """
        try:
            groups.replay(row.offset, row.producer_id if row.transactional else -1, key, value)
        except (ValueError, AssertionError) as error:
            if self._log.count == findings_before:
                self._log.report(
                    "unreplayable-record",
                    [self._log.evidence_of(row)],
                    f"The record at offset {row.offset} of {row.topic}-{row.partition} contradicts earlier records: "
                    f"{error}.",
                    group_id=getattr(key, "group_id", None) or getattr(key, "group", None),
                    member_id=getattr(key, "member_id", None),
                )


def examine(
    topic: str, partition: int, rows: Iterable[Row], *, cleaned_to: int | None = None
) -> Iterator[Finding | AuditObservation]:
    """Yields the findings of one partition, and the observations to compare with other partitions.

    Args:
        topic: the name of an internal topic or of a user's topic.
        partition: the number of the partition.
        rows: the rows of the partition's log in offset order. Duplicates, and unreadable parts that the reader
            found (`LogFault`), stand at their positions.
        cleaned_to: the offset up to which compaction has run, if known.
    """
    partition_audit = PartitionAudit(topic, partition, cleaned_to)
    for row in rows:
        partition_audit.process(row)
        yield from partition_audit.take()
    partition_audit.end()
    yield from partition_audit.take()


def audit(topic: str, partition: int, rows: Iterable[Row], *, cleaned_to: int | None = None) -> list[Finding]:
    """Returns only the findings of one partition, without the observations that `examine` also yields."""
    return [result for result in examine(topic, partition, rows, cleaned_to=cleaned_to) if isinstance(result, Finding)]
