"""What an audit says: findings, and the facts that only other partitions can judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kcore.spark.audit.kinds import KINDS
from kcore.spark.state.table_schemas import Columns


class Evidence(NamedTuple):
    """A record that a finding stands on; its timestamp is in ms since the epoch, -1 for none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Finding(NamedTuple):
    """Something that must not be in a log, or that somebody should know of. The columns are described in `FINDINGS`."""

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
    ("kind", "string", "what is wrong, as a word for programs"),
    ("severity", "string", "error, warning or info"),
    ("topic", "string", "the log in which it shows"),
    ("partition", "int", "its partition"),
    ("offset", "bigint", "where it shows: the last piece of the evidence"),
    ("timestamp_ms", "bigint", "when that was written, in ms since the epoch; -1 if unknown"),
    ("group_id", "string", "the group that it is about; null for none"),
    ("transactional_id", "string", "the transactional id that it is about; null for none, or one that is not known"),
    ("member_id", "string", "the member that it is about; null for none"),
    ("producer_id", "bigint", "the producer that it is about; null for none"),
    ("about_topic", "string", "the topic whose owner, offset or data is in question (of KIP-848 groups its id)"),
    ("about_partition", "int", "its partition; the first, where it is about several"),
    ("evidence", EVIDENCE_DDL, "the records that it stands on, in order"),
    ("sentence", "string", "for people"),
)
"""The columns of the table of findings."""


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
    """A finding of one of `KINDS`; the last piece of its evidence is where it shows."""
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


class Fact(NamedTuple):
    """Something that is right in itself, and that must agree with what other partitions say.

    Attributes:
        fact: `id` (how a transactional id ended), `decision` (how a transaction was decided, for one of its
            partitions), `marker`, `open` (a transaction that has no end in its partition) or `log` (how far a
            partition's log can be trusted).
        producer_id: the producer; -1 for `log`.
        place_topic: the topic that a decision, a marker or an open transaction is for; None if that is not known.
        place_partition: its partition.
        timestamp_ms: when it was written; for `log`: since when nothing is missing.
        producer_epoch: the producer's epoch.
        topic: the log that says so.
        partition: its partition.
        offset: where it says so.
        end_offset: `decision`: where it was completed, -1 if it was not.
        end_ms: `decision`: when; -1 likewise. `id`: when its transaction began. `log`: when its newest record was
            written.
        transactional_id: `id`, `decision`: the id.
        group_id: `open`: a group whose offsets it holds.
        state: `id`: the state, as Kafka calls it. `log`: `whole` (all of it, from offset 0 on), `partial` (its
            front is cut off, or compaction was there) or `damaged`.
        commit: `decision`, `marker`: whether it commits.
        timeout_ms: `id`: how long a transaction may take.
        places: `id`: the partitions of its transaction, as `TOPIC-PARTITION`. `log`: some of its transactional ids.
    """

    fact: str
    producer_id: int
    place_topic: str | None
    place_partition: int
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
    places: tuple[str, ...] = ()

    @property
    def evidence(self) -> Evidence:
        """Where it stands."""
        return Evidence(self.topic, self.partition, self.offset, self.timestamp_ms)


FACT_DDL: Final = (
    "fact string, producer_id bigint, place_topic string, place_partition int, timestamp_ms bigint, "
    "producer_epoch int, topic string, partition int, offset bigint, end_offset bigint, end_ms bigint, "
    "transactional_id string, group_id string, state string, commit boolean, timeout_ms int, places array<string>"
)
"""Facts as columns."""


def findings_ddl() -> str:
    """The schema of the table of findings in Spark's DDL."""
    return ", ".join(f"`{name}` {kind}" for name, kind, _ in FINDINGS)
