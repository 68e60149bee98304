"""What a check is: it sees one log from its beginning to its end, and says what must not be in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kcore.spark.audit.finding import Evidence, Fact, Finding, finding
from kcore.spark.audit.history import History
from kcore.spark.events.event import EventRow


class Log:
    """One partition's log under audit: what all of its checks share.

    Args:
        topic: its topic.
        partition: its number.
        history: what it has forgotten.
        say: takes what is found, findings and facts.
    """

    __slots__ = ("history", "partition", "said", "say", "topic")

    def __init__(self, topic: str, partition: int, history: History, say: Callable[[Finding | Fact], None]) -> None:
        self.topic = topic
        self.partition = partition
        self.history = history
        self.say = say
        self.said = 0

    def at(self, offset: int, timestamp_ms: int = -1) -> Evidence:
        """A place in this log as evidence."""
        return Evidence(self.topic, self.partition, offset, timestamp_ms)

    def here(self, row: EventRow) -> Evidence:
        """A row as evidence."""
        return Evidence(self.topic, self.partition, row.offset, row.timestamp_ms)

    def found(self, kind: str, evidence: list[Evidence], sentence: str, **about: Any) -> None:
        """Says a finding; see `finding`."""
        self.said += 1
        self.say(finding(kind, evidence, sentence, **about))


Handler = Callable[[EventRow, Any, Any], None]
"""Looks at one record: row, typed key, typed value or None for a tombstone. It comes before the record is replayed."""


class Check:
    """A family of invariants over one log. What it keeps is bounded by the live state, never by the history."""

    __slots__ = ("log",)

    def __init__(self, log: Log) -> None:
        self.log = log

    def handlers(self) -> Mapping[type, Handler]:
        """What it looks at, by the class of the record's key."""
        return {}

    def producer_row(self, row: EventRow, group_id: str | None) -> None:
        """A row that names a producer, data or a marker; with the group whose offset it commits, if it does."""

    def marker(self, row: EventRow, commit: bool) -> None:
        """The end of a transaction, before it is replayed."""

    def forget(self) -> None:
        """Something was lost: nothing that comes is compared to anything that was."""

    def end(self) -> None:
        """The log is at its end."""


class Last(NamedTuple):
    """The newest value under a key, and where it stands."""

    value: int
    evidence: Evidence
