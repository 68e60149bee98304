"""The available logs of an audit, their completeness, and the time at their ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kcore.protocol.records.base import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.protocol.topic_partition import PartitionTuple
from kcore.spark.audit.finding import AuditObservation
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.sources import Part
from kcore_ext.util.java_hash import partition_for

GRACE_MS: Final = 15_000
"""Time in ms that the audit adds to a transaction's timeout. The coordinator checks for timeouts every ten seconds."""


class LogSpan(NamedTuple):
    """The completeness of one log.

    Attributes:
        since_ms: the time from which no record is missing. The audit does not compare older rows of other logs with
            this log, because they may refer to a deleted topic of the same name.
        newest_ms: the newest timestamp in the log.
        damaged: True if damage caused a loss.
    """

    since_ms: int
    newest_ms: int
    damaged: bool


class Logs(NamedTuple):
    """The logs of an audit.

    Attributes:
        spans: completeness by topic and partition.
        now_ms: the time at the ends of the logs. A transaction that exceeds its timeout at this time counts as hanging.
        grace_ms: the time in ms by which an expected record may be late without a finding.
        decisions_since_ms: the time from which the logs contain every transaction decision; None if partitions of
            `__transaction_state` are missing.
        decisions_until_ms: the newest timestamp of `__transaction_state`; -1 without it.
        group_partitions: the number of partitions of `__consumer_offsets`; 0 if the logs may not show every group,
            because partitions are missing, compacted or damaged.
        knows_ids: True if the logs show every transactional id that exists at their end.
    """

    spans: Mapping[PartitionTuple, LogSpan]
    now_ms: int
    grace_ms: int = GRACE_MS
    decisions_since_ms: int | None = None
    knows_ids: bool = False
    decisions_until_ms: int = -1
    group_partitions: int = 0

    @classmethod
    def of(
        cls,
        observations: Iterable[AuditObservation],
        parts: Iterable[Part] = (),
        *,
        now_ms: int | None = None,
        grace_ms: int = GRACE_MS,
    ) -> Logs:
        """Builds the description of the logs from observations of the kind `log`.

        Args:
            observations: an observation for each partition that has rows.
            parts: all partitions, including partitions without rows.
            now_ms: the time of the audit, in ms since the epoch; None: the timestamp of the newest record of an
                internal topic.
            grace_ms: the time in ms by which an expected record may be late without a finding.
        """
        logs = [observation for observation in observations if observation.kind == "log"]
        spans = {
            (observation.topic, observation.partition): LogSpan(
                observation.timestamp_ms, observation.end_ms, observation.state == "damaged"
            )
            for observation in logs
        }
        if now_ms is None:
            internal = [span.newest_ms for (topic, _), span in spans.items() if topic in TOPICS]
            now_ms = max(internal or [span.newest_ms for span in spans.values()], default=-1)
        since_ms, knows_ids = None, False
        own = [observation for observation in logs if observation.topic == TRANSACTION_STATE]
        empty = {part.partition for part in parts if part.topic == TRANSACTION_STATE}
        if own and _has_every_partition(own, empty):
            since_ms = max(-1 if observation.state == "whole" else observation.timestamp_ms for observation in own)
            knows_ids = all(observation.state != "damaged" for observation in own)
        until_ms = max((observation.end_ms for observation in own), default=-1)
        groups = [observation for observation in logs if observation.topic == CONSUMER_OFFSETS]
        without = {part.partition for part in parts if part.topic == CONSUMER_OFFSETS}
        is_known = (
            bool(groups) and _has_every_partition(groups, without) and all(log.state == "whole" for log in groups)
        )
        count = max(without | {log.partition for log in groups}) + 1 if is_known else 0
        return cls(spans, now_ms, grace_ms, since_ms, knows_ids, until_ms, count)


def _has_every_partition(own: list[AuditObservation], empty: set[int]) -> bool:
    """Returns True if no partition of a topic is missing.

    The partition numbers must be consecutive from 0 on. The hashes of the ids in the logs must match the partition
    count.

    Args:
        own: the observations of the topic's partitions with rows.
        empty: the numbers of the topic's partitions without rows.
    """
    present = empty | {observation.partition for observation in own}
    count = max(present) + 1
    if len(present) != count:
        return False
    ids = (
        (observation.partition, transactional_id) for observation in own for transactional_id in observation.partitions
    )
    return all(partition_for(transactional_id, count) == partition for partition, transactional_id in ids)
