"""Results of an audit: findings, and observations (`AuditObservation`) that are compared across partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kcore.spark.audit.kinds import KINDS
from kcore.spark.state.table_schemas import Columns


class Evidence(NamedTuple):
    """A record that supports a finding. Its timestamp is in ms since the epoch, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Finding(NamedTuple):
    """A violated invariant or a noteworthy event. `FINDINGS` describes the columns."""

    kind: str
    severity: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group_id: str | None
    transactional_id: str | None
    member_id: str | None
    producer_id: int | None
    about_topic: str | None
    about_partition: int | None
    evidence: tuple[Evidence, ...]
    sentence: str


EVIDENCE_DDL: Final = "array<struct<topic:string,partition:int,offset:bigint,timestamp_ms:bigint>>"

FINDINGS: Final[Columns] = (
    ("kind", "string", "the kind of finding, an identifier for programs"),
    ("severity", "string", "error, warning or info"),
    ("topic", "string", "the topic of the last record in `evidence`"),
    ("partition", "int", "the partition of that record"),
    ("offset", "bigint", "the offset of that record"),
    ("timestamp_ms", "bigint", "the timestamp of that record, in ms since the epoch; -1 if unknown"),
    ("group_id", "string", "the group concerned; null if the finding concerns no group"),
    ("transactional_id", "string", "the transactional id concerned; null if it is unknown, or if there is none"),
    ("member_id", "string", "the member concerned; null if the finding concerns no member"),
    ("producer_id", "bigint", "the id of the producer concerned; null if the finding concerns no producer"),
    (
        "about_topic",
        "string",
        "the topic whose owner, offset or data is concerned; the topic's id for owners in consumer groups and for "
        "share partitions, the subtopology in streams groups",
    ),
    ("about_partition", "int", "the partition of `about_topic`; the lowest number if several partitions are concerned"),
    ("evidence", EVIDENCE_DDL, "the records that support the finding, in order"),
    ("sentence", "string", "a description of the finding, for people"),
)
"""The columns of the findings table."""


def finding(
    kind: str,
    evidence: Iterable[Evidence],
    sentence: str,
    *,
    group_id: str | None = None,
    transactional_id: str | None = None,
    member_id: str | None = None,
    producer_id: int | None = None,
    about: tuple[str, int] | None = None,
) -> Finding:
    """Returns a finding of one of `KINDS`. The finding has the position of the last piece of evidence."""
    pieces = tuple(evidence)
    last = pieces[-1]
    return Finding(
        kind=kind,
        severity=KINDS[kind].severity,
        topic=last.topic,
        partition=last.partition,
        offset=last.offset,
        timestamp_ms=last.timestamp_ms,
        group_id=group_id,
        transactional_id=transactional_id,
        member_id=member_id,
        producer_id=producer_id,
        about_topic=None if about is None else about[0],
        about_partition=None if about is None else about[1],
        evidence=pieces,
        sentence=sentence,
    )


class AuditObservation(NamedTuple):
    """An observation in one log that the audit compares with observations in the logs of other partitions.

    Attributes:
        kind: `id` (the final state of a transactional id), `decision` (the decision of a transaction for one of its
            partitions), `marker`, `open` (a transaction without an end in its partition), `share-topic` (a topic that a
            share group lists), `share-state` (a live state of a share partition) or `log` (the completeness of a
            partition's log).
        producer_id: -1 for `log`. For share groups, the number that `share_groups.group_number` returns.
        target_topic: the topic that a decision, a marker or an open transaction is for; None if unknown.
        target_partition: the number of this topic's partition.
        timestamp_ms: the timestamp of the record; for `log`: the time from which the log is complete.
        producer_epoch: the producer's epoch.
        topic: the topic of the log that was observed.
        partition: the number of the log's partition.
        offset: the offset of the record.
        end_offset: `decision`: the offset of its completion, -1 if it was not completed.
        end_ms: `decision`: the time of its completion, -1 if it was not completed. `id`: the start of its transaction.
            `log`: the timestamp of its newest record.
        transactional_id: `id`, `decision`: the id.
        group_id: `open`: a group whose offsets the transaction commits. `share-topic`, `share-state`: the group.
        state: `id`: the state, under Kafka's name. `log`: `whole` (complete from offset 0 on), `partial` (compacted, or
            without its front) or `damaged`. `share-topic`: the group's list that contains the topic, for example
            `initializing`.
        commit: `decision`, `marker`: True for commit, False for abort.
        timeout_ms: `id`: the transaction timeout.
        partitions: `id`: the partitions of its transaction, as `TOPIC-PARTITION`. `log`: not
            partitions, but some transactional ids or group ids in the log (`Check.sample`).
    """

    kind: str
    producer_id: int
    target_topic: str | None
    target_partition: int
    timestamp_ms: int
    producer_epoch: int
    topic: str
    partition: int
    offset: int
    end_offset: int = -1
    end_ms: int = -1
    transactional_id: str | None = None
    group_id: str | None = None
    state: str | None = None
    commit: bool = False
    timeout_ms: int = -1
    partitions: tuple[str, ...] = ()

    @property
    def evidence(self) -> Evidence:
        """The position of the record."""
        return Evidence(self.topic, self.partition, self.offset, self.timestamp_ms)


OBSERVATION_DDL: Final = (
    "kind string, producer_id bigint, target_topic string, target_partition int, timestamp_ms bigint, "
    "producer_epoch int, topic string, partition int, offset bigint, end_offset bigint, end_ms bigint, "
    "transactional_id string, group_id string, state string, commit boolean, timeout_ms int, partitions array<string>"
)
"""The columns of `AuditObservation` in Spark's DDL."""


def findings_ddl() -> str:
    """Returns the schema of the findings table in Spark's DDL."""
    return ", ".join(f"`{name}` {kind}" for name, kind, _ in FINDINGS)
