"""The kinds of findings with their meaning and severity. The documentation is generated from this table."""

from __future__ import annotations

from typing import Final, NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"

SEVERITIES: Final = (ERROR, WARNING, INFO)
"""Severities, worst first.

An error must not occur in a log. A warning may have a harmless cause outside the log. An info is legal but worth
knowing.
"""


class Kind(NamedTuple):
    """A kind of finding: its severity, its meaning, and the conditions under which it is not reported."""

    severity: str
    meaning: str
    excuse: str = ""


KINDS: Final[dict[str, Kind]] = {
    # ---- the log itself
    "offset-gap": Kind(ERROR, "offsets are missing", "compaction removed them, or the front of the log was deleted"),
    "duplicate-offset": Kind(WARNING, "the log contains the same records twice", ""),
    "offset-conflict": Kind(ERROR, "two different records have the same offset"),
    "corrupt-batch": Kind(ERROR, "the CRC of a batch is wrong, or its records are damaged"),
    "truncated-log": Kind(WARNING, "a file ends in the middle of a batch"),
    "segment-missing": Kind(
        ERROR,
        "a segment file is missing although an index or a cleaner's copy of it exists",
        "a broker was deleting the segment",
    ),
    "leftover-files": Kind(
        INFO, "the audit did not read files that a broker was writing or deleting (.swap, .cleaned, .deleted)"
    ),
    "partition-missing": Kind(
        INFO, "a partition of an internal topic is missing although one with a higher number exists"
    ),
    "log-front-missing": Kind(
        WARNING,
        "the front of the log is missing or was not exported",
        "the topic is not compacted: retention deletes its front",
    ),
    "undecodable-record": Kind(
        ERROR, "a record of a known type cannot be decoded, or a record has no key", "the record type is unknown"
    ),
    "unreplayable-record": Kind(ERROR, "a record contradicts earlier records"),
    # ---- groups
    "generation-decreased": Kind(ERROR, "a classic group's generation is lower than before", "the group was removed"),
    "group-epoch-decreased": Kind(ERROR, "a group epoch is lower than before", "the group was removed"),
    "assignment-epoch-decreased": Kind(ERROR, "an assignment epoch is lower than before", "the group was removed"),
    "assignment-epoch-ahead": Kind(ERROR, "an assignment epoch is above the group's epoch"),
    "member-epoch-decreased": Kind(
        ERROR, "a member epoch is lower than before", "the member was removed, or a static member is away (-2)"
    ),
    "member-epoch-ahead": Kind(ERROR, "a member epoch is above the group's epoch"),
    "topology-epoch-decreased": Kind(ERROR, "a topology epoch is lower than before", "the group was removed"),
    "two-owners": Kind(ERROR, "two members of a group own the same partition or active task at the same time"),
    "task-twice-in-process": Kind(
        ERROR,
        "a process of a streams group has the same task twice, in the same role or in different roles; both tasks "
        "would use the same state",
    ),
    "topology-without-group": Kind(ERROR, "the topology of a streams group remains although the group was removed"),
    # ---- committed offsets
    "offset-decreased": Kind(
        INFO,
        "a committed offset is lower than the previous one, in a group with members: a consumer moved "
        "its position back, or a delayed commit arrived",
        "the group has no members (an offset reset); the offset was removed or expired; the topic was recreated",
    ),
    "fenced-commit": Kind(ERROR, "a fenced producer epoch committed an offset in a transaction"),
    # ---- transactions
    "illegal-transition": Kind(
        ERROR, "a transactional id entered a state that cannot follow the previous one", "the previous state is unknown"
    ),
    "producer-epoch-decreased": Kind(ERROR, "the producer epoch of a transactional id is lower than before"),
    "producer-id-changed": Kind(
        ERROR, "a transactional id got another producer id before the epochs of the previous one were used up (KIP-890)"
    ),
    "producer-id-shared": Kind(ERROR, "two transactional ids have the same producer id"),
    "transaction-partitions-lost": Kind(
        ERROR, "an open transaction lost partitions, or its decision lists other partitions than were added to it"
    ),
    "transaction-hangs": Kind(
        ERROR, "a transaction is open for longer than its timeout", "the grace period is not over"
    ),
    "transaction-not-completed": Kind(
        ERROR,
        "a decided transaction is not complete although all its markers are written or its timeout is over",
        "the grace period is not over",
    ),
    "transaction-waits": Kind(INFO, "a decided transaction waits for markers that are not in the available logs"),
    # ---- producers, markers, data
    "fenced-write": Kind(
        ERROR,
        "a producer wrote with an older epoch than in an earlier write",
        "at least a day lies between the two writes: the broker forgets idle producers",
    ),
    "fenced-marker": Kind(
        ERROR,
        "a marker has a lower epoch than an earlier write of its producer",
        "at least a day lies between the write and the marker: the broker forgets idle producers",
    ),
    "coordinator-epoch-decreased": Kind(
        ERROR, "a marker has a lower coordinator epoch than an earlier marker: a replaced coordinator wrote it"
    ),
    "marker-without-transaction": Kind(
        ERROR,
        "a marker ends a transaction that was never decided",
        "the marker was written again after a failover; `__transaction_state` is missing or begins later",
    ),
    "marker-contradicts-decision": Kind(ERROR, "a marker contradicts the decision of its transaction"),
    "marker-missing": Kind(
        ERROR, "a partition of a complete transaction has no marker", "the log of the partition ends earlier"
    ),
    "data-without-marker": Kind(
        ERROR, "a finished transaction is still open in a partition and blocks `read_committed` consumers"
    ),
    "data-outside-transaction": Kind(
        ERROR, "a partition has data of a transaction to which the partition was not added"
    ),
    "data-without-transaction": Kind(
        ERROR, "a partition has transactional data whose producer id belongs to no transactional id"
    ),
    "transaction-open-long": Kind(
        WARNING,
        "a transaction has been open in a partition for more than 15 minutes, and the log of `__transaction_state` is "
        "not available",
    ),
    # ---- share partitions
    "snapshot-epoch-decreased": Kind(ERROR, "a share partition's snapshot epoch is lower than before"),
    "state-epoch-decreased": Kind(ERROR, "a share partition's state epoch is lower than before"),
    "leader-epoch-decreased": Kind(
        ERROR, "a share partition's leader epoch is lower than before", "its state was initialized again"
    ),
    "share-start-offset-decreased": Kind(
        WARNING,
        "a share partition's start offset is lower than before: Kafka before 4.4 accepts a delayed write that moves it "
        "back",
        "its state was initialized again",
    ),
    "delivery-count-decreased": Kind(
        ERROR, "a snapshot has fewer deliveries of a record than the state before it", "its state was initialized again"
    ),
    "record-acknowledged-twice": Kind(
        ERROR,
        "a record of a share partition was delivered again after it was acknowledged or archived",
        "its state was initialized again",
    ),
    "share-batches-overlap": Kind(ERROR, "a record of a share partition's state lists an offset twice"),
    "share-state-without-group": Kind(
        WARNING,
        "a share partition has a state, and no group lists it",
        "partitions of `__consumer_offsets` are missing, compacted or damaged, or the state is newer than the ends of "
        "their logs",
    ),
    "share-initialization-not-completed": Kind(
        WARNING,
        "a share partition has been initializing for more than a minute; it cannot be assigned until it is initialized",
        "the grace period is not over",
    ),
}
"""Kind of finding -> its description."""


def rank(severity: str) -> int:
    """Returns the rank of a severity: 0 for the worst, higher for less severe ones."""
    return SEVERITIES.index(severity)
