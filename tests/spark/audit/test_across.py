"""Faults that concern several logs: the audit compares the transaction log (`__transaction_state`) with the other
partitions.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.spark.audit.finding import AuditObservation, Evidence, finding
from kcore.spark.audit.logs import Logs
from kcore.spark.audit.partition import examine
from kcore.spark.events.sources import Part
from kcore.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from tests.spark.audit.written import Written, found, transaction_log

ME = (7, 0)
OFFSETS = (CONSUMER_OFFSETS, 0)
DATA = ("t", 0)
LONG_MS = 100_000


class Node:
    """Three logs of a node: one with transactional ids, one with committed offsets, and one with data."""

    def __init__(self) -> None:
        self.ids = transaction_log()
        self.offsets = Written(clock=self.ids)
        self.data = Written("t", clock=self.ids)

    @property
    def logs(self) -> tuple[Written, Written, Written]:
        return self.ids, self.offsets, self.data

    def begin(self, producer: tuple[int, int] = ME, *partitions: tuple[str, int], **options: Any) -> Evidence:
        return self.ids.transaction(
            "x", ONGOING, producer, partitions or (DATA,), started_ms=self.ids.now_ms, **options
        )

    def write(self, producer: tuple[int, int] = ME) -> Evidence:
        return self.data.raw(None, b"v", producer=producer, transactional=True)

    def decide(self, producer: tuple[int, int] = ME, commit: bool = True, *partitions: tuple[str, int]) -> Evidence:
        return self.ids.transaction("x", PREPARE_COMMIT if commit else PREPARE_ABORT, producer, partitions or (DATA,))

    def complete(self, producer: tuple[int, int] = ME, commit: bool = True) -> Evidence:
        return self.ids.transaction("x", COMPLETE_COMMIT if commit else COMPLETE_ABORT, producer)

    def whole(self, producer: tuple[int, int] = ME, commit: bool = True, epoch_after: int | None = None) -> None:
        """Writes a complete transaction: its begin, its data, the decision, the marker, and the completion.

        Args:
            producer: the producer id and epoch of the data.
            commit: True to commit, False to abort.
            epoch_after: the epoch of the marker (KIP-890); None: the epoch of the data.
        """
        after = producer if epoch_after is None else (producer[0], epoch_after)
        self.begin(producer)
        self.write(producer)
        self.decide(after, commit)
        self.data.mark(after, commit)
        self.complete(after, commit)

    def go_on(self) -> None:
        """Advances the time, then writes an offset and a record outside of the transactions, so that the logs show the
        new time.
        """
        self.ids.wait(LONG_MS)
        self.offsets.commit("other", 1)
        self.data.raw(None, b"v")


@pytest.fixture
def node() -> Node:
    made = Node()
    made.ids.transaction("x", EMPTY, ME)
    made.whole()
    return made


def test_transactions_of_every_version_and_outcome_are_healthy(node: Node) -> None:
    node.whole(commit=False)
    node.whole(ME, True, 1)
    node.whole((7, 1), False, 2)
    node.begin((7, 2), DATA, OFFSETS)
    node.offsets.commit("g", 5, producer=(7, 2))
    node.decide((7, 3), True, DATA, OFFSETS)
    node.offsets.mark((7, 3), True)
    node.data.mark((7, 3), True)  # nothing was written there
    node.complete((7, 3))
    node.go_on()
    assert found(*node.logs) == []


def test_markers_are_written_again_after_a_failover(node: Node) -> None:
    node.begin()
    node.write()
    node.decide()
    node.data.mark(ME, True, coordinator_epoch=1)
    node.data.mark(ME, True, coordinator_epoch=2)
    node.complete()
    node.go_on()
    assert found(*node.logs) == []


def test_an_open_transaction_beyond_its_timeout_is_found(node: Node) -> None:
    here = node.begin()
    node.write()
    node.go_on()
    age_ms = node.ids.now_ms - 2 - here.timestamp_ms
    sentence = f"The transaction of x has been open for {age_ms} ms; its timeout is 60000 ms."
    assert found(*node.logs) == [
        finding("transaction-hangs", [here], sentence, transactional_id="x", producer_id=7),
    ]
    assert found(*node.logs, now_ms=here.timestamp_ms + 60_000) == []
    assert found(*node.logs, grace_ms=LONG_MS) == []


def test_a_decided_transaction_without_completion_is_found(node: Node) -> None:
    node.begin()
    node.write()
    here = node.decide()
    node.data.mark(ME, True)
    node.go_on()
    (one,) = found(*node.logs)
    assert one[:12] == finding("transaction-not-completed", [here], "", transactional_id="x", producer_id=7)[:12]
    assert one.sentence.endswith("ms with all markers written.")


def test_a_decided_transaction_that_lacks_a_marker_is_an_error_only_after_its_timeout(node: Node) -> None:
    """A partition may have no leader, so a missing marker is legal within the transaction's timeout. After the timeout
    it is an error.
    """
    node.begin(ME, ("elsewhere", 3))
    here = node.decide(ME, True, ("elsewhere", 3))
    node.go_on()
    now_ms = here.timestamp_ms + 30_000
    (one,) = found(*node.logs, now_ms=now_ms)
    about = {"transactional_id": "x", "producer_id": 7}
    assert one == finding(
        "transaction-waits", [here], "x has been in PrepareCommit for 30000 ms and waits for markers.", **about
    )
    (one,) = found(*node.logs, now_ms=now_ms + 60_000)
    sentence = "x has been in PrepareCommit for 90000 ms; its timeout is 60000 ms."
    assert one == finding("transaction-not-completed", [here], sentence, **about)


def test_a_missing_marker_is_found_once(node: Node) -> None:
    """If a marker is missing, the transaction also stays open in the partition. The audit reports both effects as one
    finding.
    """
    node.begin()
    node.write()
    here = node.decide()
    node.complete()
    node.go_on()
    assert found(*node.logs) == [
        finding(
            "marker-missing",
            [here],
            "The transaction of x was committed and completed, but has no marker in t-0.",
            transactional_id="x",
            producer_id=7,
            about=DATA,
        )
    ]


def test_a_missing_marker_among_others_of_its_epoch_is_found(node: Node) -> None:
    """The second of three transactions lacks its marker, and the others of the same epoch have theirs.

    Before KIP-890, all transactions of a producer had the same epoch.
    """
    node.whole()
    node.begin()
    node.write()
    here = node.decide()
    node.complete()
    node.whole()
    node.go_on()
    (one,) = found(*node.logs)
    assert (one.kind, one.evidence) == ("marker-missing", (here,))


def test_a_marker_without_a_transaction_is_found(node: Node) -> None:
    here = node.data.mark((99, 4), False)
    node.whole()
    assert found(*node.logs) == [
        finding(
            "marker-without-transaction",
            [here],
            "A marker in t-0 ends a transaction of producer 99 in epoch 4 as aborted, but no such transaction exists.",
            producer_id=99,
            about=DATA,
        )
    ]
    assert found(node.data, node.offsets) == []  # not known without `__transaction_state`


def test_a_marker_in_a_partition_outside_the_transaction_is_found(node: Node) -> None:
    node.begin()
    node.decide()
    here = node.offsets.mark(ME, True)
    node.data.mark(ME, True)
    node.complete()
    (one,) = found(*node.logs)
    assert (one.kind, one.evidence, one.producer_id) == ("marker-without-transaction", (here,), 7)


def test_a_marker_that_contradicts_the_decision_is_found(node: Node) -> None:
    node.begin()
    node.write()
    decision = node.decide((7, 1), False)
    here = node.data.mark((7, 1), True)
    node.complete((7, 1), False)
    node.go_on()
    assert found(*node.logs) == [
        finding(
            "marker-contradicts-decision",
            [decision, here],
            "The transaction of x was aborted, but its marker in t-0 says that it was committed.",
            transactional_id="x",
            producer_id=7,
            about=DATA,
        )
    ]


def test_data_written_after_the_end_of_its_transaction_are_found(node: Node) -> None:
    """A producer with an old epoch writes after the marker. KIP-890 prevents such writes."""
    late = node.write()
    owner = node.ids.transaction("x", EMPTY, (7, 1))
    node.go_on()
    assert found(*node.logs) == [
        finding(
            "data-without-marker",
            [owner, late],
            "The transaction of producer 7 in t-0 is open, but x is in Empty, so the transaction has ended.",
            transactional_id="x",
            producer_id=7,
            about=DATA,
        )
    ]


def test_offsets_that_stay_pending_after_their_transaction_are_found(node: Node) -> None:
    """The finding names the group of the pending offsets."""
    late = node.offsets.commit("g", 5, producer=ME)
    owner = node.ids.transaction("x", EMPTY, (7, 1))
    node.go_on()
    (one,) = found(*node.logs)
    assert (one.kind, one.group_id, one.evidence) == ("data-without-marker", "g", (owner, late))


def test_data_in_a_partition_outside_the_transaction_are_found(node: Node) -> None:
    owner = node.begin(ME, OFFSETS, timeout_ms=LONG_MS * 2)
    here = node.write()
    node.ids.transaction("y", EMPTY, (8, 0))
    node.go_on()
    assert found(*node.logs) == [
        finding(
            "data-outside-transaction",
            [owner, here],
            "The transaction of producer 7 in t-0 is open, but the transaction of x does not include t-0.",
            transactional_id="x",
            producer_id=7,
            about=DATA,
        )
    ]


def test_data_of_an_unknown_producer_are_found(node: Node) -> None:
    here = node.write((99, 0))
    node.go_on()
    assert found(*node.logs) == [
        finding(
            "data-without-transaction",
            [here],
            "The transaction of producer 99 in t-0 is open, but no transactional id has this producer id.",
            producer_id=99,
            about=DATA,
        )
    ]


def test_a_long_open_transaction_is_found_without_the_transaction_log() -> None:
    log = Written()
    here = log.commit("g", 5, producer=ME)
    log.wait(1_000_000)
    log.commit("other", 1)
    assert found(log) == [
        finding(
            "transaction-open-long",
            [here],
            "The transaction of producer 7 in __consumer_offsets-0 has been open for 1000001 ms.",
            group_id="g",
            producer_id=7,
            about=OFFSETS,
        )
    ]


def test_two_transactional_ids_with_one_producer_id_are_found(node: Node) -> None:
    one = node.begin()
    other = node.ids.transaction("y", EMPTY, ME)
    assert found(*node.logs) == [
        finding(
            "producer-id-shared",
            [one, other],
            "x and y share producer id 7.",
            transactional_id="y",
            producer_id=7,
        )
    ]


# ---- effects of copies and compaction that are no findings


def test_missing_markers_in_a_log_that_was_copied_first_are_no_findings(node: Node) -> None:
    node.begin()
    node.write()
    node.decide()
    node.complete()
    assert found(*node.logs) == []


def test_missing_markers_of_a_deleted_topic_are_no_findings_in_its_successor(node: Node) -> None:
    node.go_on()
    again = Written("t", clock=node.ids)
    again.raw(None, b"v")
    node.go_on()
    assert found(node.ids, node.offsets, again) == []


def test_decisions_removed_by_compaction_are_no_findings(node: Node) -> None:
    """Compaction has removed all but the newest record of a transactional id. The audit reports no error about
    transactions whose decisions are missing for this reason.
    """
    node.whole()
    node.whole((7, 0), True, 1)
    log = transaction_log(node.ids)
    log.rows = [node.ids.rows[-1]]
    node.go_on()
    assert found(log, node.offsets, node.data) == []


def test_decisions_are_known_only_if_every_transaction_log_is_present(node: Node) -> None:
    """If a partition of `__transaction_state` is missing, the audit does not know the outcomes of all transactions.

    It infers missing partitions from the partition numbers, and from the partition in which each known id lies.
    """
    results = examine("__transaction_state", 0, node.ids.rows)
    (observation,) = [one for one in results if isinstance(one, AuditObservation) and one.kind == "log"]
    assert Logs.of([observation]).decisions_since_ms == -1
    assert Logs.of([observation], [Part("__transaction_state", 0)]).decisions_since_ms == -1
    others = [Part("__transaction_state", index) for index in range(3)]
    assert Logs.of([observation], others).decisions_since_ms == -1  # "x" would be of partition 0 of 3, too
    assert Logs.of([observation], others[2:]).decisions_since_ms is None
    five = [*others, Part("__transaction_state", 3), Part("__transaction_state", 4)]
    assert ord("x") % 5 == 0
    assert Logs.of([observation], five).decisions_since_ms == -1
    seven = [*five, Part("__transaction_state", 5), Part("__transaction_state", 6)]
    assert ord("x") % 7 == 1
    assert Logs.of([observation], seven).decisions_since_ms is None
