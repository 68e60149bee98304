"""The kinds of findings: what each means and how grave it is. Plain data, so that documentation can be made of it."""

from __future__ import annotations

from typing import Final, NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"

SEVERITIES: Final = (ERROR, WARNING, INFO)
"""From the worst on. An error must not be in a log; a warning may have an innocent cause outside of it; an info is
legal, and worth knowing."""


class Kind(NamedTuple):
    """A kind of finding: its severity, what it says, and what excuses it (and is no finding then)."""

    severity: str
    meaning: str
    excuse: str = ""


KINDS: Final[dict[str, Kind]] = {
    # ---- the log itself
    "offset-gap": Kind(ERROR, "offsets are missing", "compaction came there; the front was cut off"),
    "duplicate-offset": Kind(WARNING, "records stand in the log twice", ""),
    "offset-conflict": Kind(ERROR, "two different records have one offset"),
    "corrupt-batch": Kind(ERROR, "a batch whose CRC is wrong, or whose records are damaged"),
    "truncated-log": Kind(WARNING, "a file ends in the middle of a batch"),
    "segment-missing": Kind(
        ERROR,
        "a segment file is not there, though another file of it is: an index, or what a cleaner had made of it",
        "a broker was deleting it",
    ),
    "leftover-files": Kind(
        INFO, "files that a broker was writing or deleting (.swap, .cleaned, .deleted) are not read"
    ),
    "partition-missing": Kind(
        INFO, "a partition of a coordinator's topic is not there, though one of a higher number is"
    ),
    "log-front-missing": Kind(
        WARNING,
        "the log begins in the middle: its front is not there, or was not exported",
        "the topic is one that is not compacted, and loses its front with time",
    ),
    "undecodable-record": Kind(ERROR, "a record of a known type that cannot be decoded", "its type is unknown"),
    "unreplayable-record": Kind(ERROR, "a record that contradicts the ones before it"),
    # ---- groups
    "generation-went-back": Kind(ERROR, "a classic group's generation is lower than before", "the group was removed"),
    "group-epoch-went-back": Kind(ERROR, "a group epoch is lower than before", "the group was removed"),
    "assignment-epoch-went-back": Kind(ERROR, "an assignment epoch is lower than before", "the group was removed"),
    "assignment-epoch-ahead": Kind(ERROR, "an assignment epoch is above the group's epoch"),
    "member-epoch-went-back": Kind(
        ERROR, "a member epoch is lower than before", "the member was removed, or a static member is away (-2)"
    ),
    "member-epoch-ahead": Kind(ERROR, "a member epoch is above the group's epoch"),
    "topology-epoch-went-back": Kind(ERROR, "a topology epoch is lower than before", "the group was removed"),
    "two-owners": Kind(ERROR, "two members of a group own one partition, or one active task at once"),
    # ---- committed offsets
    "offset-went-back": Kind(
        INFO,
        "a committed offset is lower than the one before, in a group that has members: they went back (seek), or "
        "somebody committed who was late",
        "the group has no members: an offset reset; the offset was removed or expired; the topic is another one",
    ),
    "fenced-commit": Kind(ERROR, "an offset was committed in a transaction by a producer epoch that was fenced before"),
    # ---- transactions
    "illegal-transition": Kind(
        ERROR, "a transactional id came to a state that cannot follow the one before", "the state before is not known"
    ),
    "producer-epoch-went-back": Kind(ERROR, "the producer epoch of a transactional id is lower than before"),
    "producer-id-changed": Kind(ERROR, "a transactional id got another producer id, with epochs left (KIP-890)"),
    "producer-id-shared": Kind(ERROR, "two transactional ids have one producer id"),
    "transaction-partitions-lost": Kind(
        ERROR, "a transaction was decided for other partitions than were added, or lost some while it was open"
    ),
    "transaction-hangs": Kind(ERROR, "a transaction is open for longer than its timeout", "the grace is not over"),
    "transaction-not-completed": Kind(
        ERROR,
        "a decided transaction is not complete, though all its markers are written or its timeout is over",
        "the grace is not over",
    ),
    "transaction-waits": Kind(INFO, "a decided transaction waits for markers that are not in the logs at hand"),
    # ---- producers, markers, data
    "fenced-write": Kind(
        ERROR, "a producer epoch wrote after a newer one", "a day lies between: producers are forgotten"
    ),
    "fenced-marker": Kind(ERROR, "a marker has an epoch below the one that wrote before it", "as above"),
    "coordinator-epoch-went-back": Kind(
        ERROR, "a marker comes from a coordinator that was replaced before: its epoch is lower"
    ),
    "marker-without-transaction": Kind(
        ERROR,
        "a marker that no transaction decided",
        "it was written again after a failover; the transactions' log is not there, or does not reach back so far",
    ),
    "marker-contradicts-decision": Kind(ERROR, "a transaction was decided one way, and its marker says the other"),
    "marker-missing": Kind(
        ERROR, "a transaction is complete, and a partition of it has no marker", "the log does not reach so far"
    ),
    "data-without-marker": Kind(ERROR, "a transaction is over, and open in a partition: readers are held up"),
    "data-outside-transaction": Kind(ERROR, "transactional data in a partition that is not part of its transaction"),
    "data-without-transaction": Kind(ERROR, "transactional data of a producer that no transactional id has"),
    "transaction-open-long": Kind(
        WARNING, "a transaction is open in a partition for long; the transactions' log is not there to say more"
    ),
    # ---- share partitions
    "snapshot-epoch-went-back": Kind(ERROR, "a share partition's snapshot epoch is lower than before"),
    "state-epoch-went-back": Kind(ERROR, "a share partition's state epoch is lower than before"),
    "leader-epoch-went-back": Kind(
        ERROR, "a share partition's leader epoch is lower than before", "its state was initialised again"
    ),
}
"""Kind -> what it is."""


def rank(severity: str) -> int:
    """0 for the worst."""
    return SEVERITIES.index(severity)
