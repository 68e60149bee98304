"""What an audit has at hand: which logs, since when nothing is missing in each, and what time it is at their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kcore.protocol.records.base import TRANSACTION_STATE
from kcore.spark.audit.finding import Fact
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.sources import Part
from kcore_ext.util.java_hash import partition_for

GRACE_MS: Final = 15_000
"""How much longer than its timeout a transaction may be open: the coordinator looks every ten seconds."""

Place = tuple[str, int]


class LogSpan(NamedTuple):
    """How far one log can be trusted.

    Attributes:
        since_ms: from this time on nothing is missing in it; what is older may be about a log of the same name that
            was there before.
        newest_ms: its newest timestamp.
        damaged: whether anything was lost by damage.
    """

    since_ms: int
    newest_ms: int
    damaged: bool


class Logs(NamedTuple):
    """The logs of an audit.

    Attributes:
        spans: by topic and partition.
        now_ms: the time at their ends; what is open since longer than it may be hangs.
        grace_ms: how much later than due something may be.
        decisions_since_ms: from this time on every decision of every transaction is known; None: of none.
        decisions_until_ms: the newest timestamp of the transactions' log; -1 without one.
        knows_ids: whether every transactional id that there is at the end is known.
    """

    spans: Mapping[Place, LogSpan]
    now_ms: int
    grace_ms: int = GRACE_MS
    decisions_since_ms: int | None = None
    knows_ids: bool = False
    decisions_until_ms: int = -1

    @classmethod
    def of(
        cls,
        facts: Iterable[Fact],
        parts: Iterable[Part] = (),
        *,
        now_ms: int | None = None,
        grace_ms: int = GRACE_MS,
    ) -> Logs:
        """What facts of the kind `log` say.

        Args:
            facts: one of each partition that has rows.
            parts: the partitions that there are; those without rows say something too.
            now_ms: the time; None: that of the newest record of an internal topic.
            grace_ms: how much later than due something may be.
        """
        logs = [fact for fact in facts if fact.fact == "log"]
        spans = {
            (fact.topic, fact.partition): LogSpan(fact.timestamp_ms, fact.end_ms, fact.state == "damaged")
            for fact in logs
        }
        if now_ms is None:
            internal = [span.newest_ms for (topic, _), span in spans.items() if topic in TOPICS]
            now_ms = max(internal or [span.newest_ms for span in spans.values()], default=-1)
        since_ms, knows_ids = None, False
        own = [fact for fact in logs if fact.topic == TRANSACTION_STATE]
        empty = {part.partition for part in parts if part.topic == TRANSACTION_STATE}
        if own and _is_whole(own, empty):
            since_ms = max(-1 if fact.state == "whole" else fact.timestamp_ms for fact in own)
            knows_ids = all(fact.state != "damaged" for fact in own)
        until_ms = max((fact.end_ms for fact in own), default=-1)
        return cls(spans, now_ms, grace_ms, since_ms, knows_ids, until_ms)


def _is_whole(own: list[Fact], empty: set[int]) -> bool:
    """Whether these are all partitions of the transactions' log: ids say how many there must be (by their hashes)."""
    present = empty | {fact.partition for fact in own}
    count = max(present) + 1
    if len(present) != count:
        return False
    ids = ((fact.partition, transactional_id) for fact in own for transactional_id in fact.places)
    return all(partition_for(transactional_id, count) == partition for partition, transactional_id in ids)
