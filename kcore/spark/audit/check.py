"""The interface of a check, which reads one log in offset order and reports violated invariants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kcore.spark.audit.finding import AuditObservation, Evidence, Finding, finding
from kcore.spark.audit.history import History
from kcore.spark.events.event import EventRow


class Log:
    """One partition's log under audit: the state that all of its checks share.

    Args:
        topic: the name of the log's topic.
        partition: the number of the log's partition.
        history: tracks which parts of the log are missing.
        emit: receives findings, and observations to compare with other logs (`AuditObservation`).
    """

    __slots__ = ("count", "emit", "history", "partition", "topic")

    def __init__(
        self, topic: str, partition: int, history: History, emit: Callable[[Finding | AuditObservation], None]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.history = history
        self.emit = emit
        self.count = 0

    def at(self, offset: int, timestamp_ms: int = -1) -> Evidence:
        """Returns a position in this log as the evidence of a finding."""
        return Evidence(self.topic, self.partition, offset, timestamp_ms)

    def evidence_of(self, row: EventRow) -> Evidence:
        """Returns a row's position as the evidence of a finding."""
        return Evidence(self.topic, self.partition, row.offset, row.timestamp_ms)

    def report(self, kind: str, evidence: list[Evidence], sentence: str, **about: Any) -> None:
        """Reports a finding. `finding.finding` documents the arguments."""
        self.count += 1
        self.emit(finding(kind, evidence, sentence, **about))


Handler = Callable[[EventRow, Any, Any], None]
"""A function that checks one record before the record is replayed.

Called with the row, the typed key, and the typed value (None for a tombstone).
"""


class Check:
    """A check of related invariants in one log. Its memory depends on the live state, not on the log's length."""

    __slots__ = ("log",)

    def __init__(self, log: Log) -> None:
        self.log = log

    def handlers(self) -> Mapping[type, Handler]:
        """Returns the functions that check records, by the class of the record key."""
        return {}

    def producer_row(self, row: EventRow, group_id: str | None) -> None:
        """Checks a row with a producer id: data or a marker.

        `group_id` is the group whose offset the row commits, if any.
        """

    def marker(self, row: EventRow, commit: bool) -> None:
        """Checks a marker before it is replayed."""

    def forget(self) -> None:
        """Drops all state.

        The audit calls this method after damage, and compares no later record with earlier records.
        """

    def end(self) -> None:
        """Finishes the check at the end of the log."""

    @property
    def sample(self) -> Iterable[str]:
        """Some of the transactional ids or group ids in the log.

        The audit hashes them to verify the partition count of the topic.
        """
        return ()


class Last(NamedTuple):
    """The newest value of a key, and its position."""

    value: int
    evidence: Evidence
