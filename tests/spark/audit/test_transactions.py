"""Planted faults in transactions, producers and committed offsets of one log: the audit finds each fault once, and
nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore.protocol.records.transaction_log import TransactionLogKey
from kcore.spark.audit.finding import Evidence, Finding, finding
from kcore.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NAMES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREVIOUS,
    TransactionStatus,
)
from tests.spark.audit.written import Written, found, transaction_log

ME = (7, 0)
T0 = [("t", 0)]


@pytest.fixture
def log() -> Written:
    """Returns a `__transaction_state` log with one record: transactional id x, state EMPTY."""
    made = transaction_log()
    made.transaction("x", EMPTY, (1, 0))
    return made


def illegal(transactional_id: str, sentence: str, *evidence: Evidence) -> Finding:
    """Returns the expected finding of an illegal transition."""
    return finding("illegal-transition", evidence, sentence, transactional_id=transactional_id)


def of_y(kind: str, sentence: str, *evidence: Evidence, producer_id: int = 7, **more: Any) -> Finding:
    """Returns an expected finding about transactional id y and its producer id."""
    return finding(kind, evidence, sentence, transactional_id="y", producer_id=producer_id, **more)


def test_every_transition_outside_the_state_table_is_found() -> None:
    """Covers all pairs of states in a log: illegal transitions give a finding, legal transitions none."""
    states = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
    ways: dict[TransactionStatus, list[TransactionStatus]] = {
        EMPTY: [],
        ONGOING: [ONGOING],
        PREPARE_COMMIT: [ONGOING, PREPARE_COMMIT],
        PREPARE_ABORT: [ONGOING, PREPARE_ABORT],
        COMPLETE_COMMIT: [ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT],
        COMPLETE_ABORT: [ONGOING, PREPARE_ABORT, COMPLETE_ABORT],
    }
    for state in states:
        for follows in states:
            log = transaction_log()
            evidence = log.transaction("x", EMPTY, ME)
            for step in ways[state]:
                evidence = log.transaction("x", step, ME)
            here = log.transaction("x", follows, ME)
            expected = []
            if state not in PREVIOUS[follows]:
                sentence = f"x came to {NAMES[follows]} while it was in {NAMES[state]}."
                expected = [illegal("x", sentence, evidence, here)]
            assert found(log) == expected, (state, follows)


def test_an_id_whose_first_state_is_not_empty_is_found(log: Written) -> None:
    here = log.transaction("y", ONGOING, ME, T0)
    assert found(log) == [illegal("y", "y began as Ongoing.", here)]


def test_an_id_whose_first_records_were_compacted_may_begin_in_any_state(log: Written) -> None:
    log.next_offset = 9
    log.transaction("y", COMPLETE_COMMIT, ME)
    log.transaction("x", EMPTY, (1, 1))
    assert found(log) == []


def test_an_id_removed_during_its_transaction_is_found(log: Written) -> None:
    log.transaction("y", EMPTY, ME)
    before = log.transaction("y", ONGOING, ME, T0, started_ms=log.now_ms)
    here = log.put(TransactionLogKey(transactional_id="y"))
    assert found(log) == [illegal("y", "y was removed while it was in Ongoing.", before, here)]


def test_an_expired_id_may_begin_again_with_another_producer_id(log: Written) -> None:
    log.transaction("y", EMPTY, (7, 4))
    log.put(TransactionLogKey(transactional_id="y"))
    log.transaction("y", EMPTY, (9, 0))
    assert found(log) == []


def test_a_decreasing_producer_epoch_is_found(log: Written) -> None:
    before = log.transaction("y", EMPTY, (7, 4))
    here = log.transaction("y", EMPTY, (7, 3))
    sentence = "The producer epoch of y fell from 4 to 3."
    assert found(log) == [of_y("producer-epoch-decreased", sentence, before, here)]


def test_a_producer_id_replaced_before_its_last_epoch_is_found(log: Written) -> None:
    before = log.transaction("y", EMPTY, (7, 4))
    here = log.transaction("y", EMPTY, (9, 0))
    sentence = "y changed from producer id 7 in epoch 4 to producer id 9."
    assert found(log) == [of_y("producer-id-changed", sentence, before, here, producer_id=9)]


def test_a_producer_id_may_be_replaced_after_its_last_epoch(log: Written) -> None:
    """A producer id whose epochs are used up is replaced by another one. This happens in an InitProducerId, or at the
    end of a transaction (KIP-890), and is no finding.
    """
    log.transaction("y", EMPTY, (7, 32_766))
    log.transaction("y", EMPTY, (9, 0))
    log.transaction("z", EMPTY, (8, 32_766))
    log.transaction("z", PREPARE_ABORT, (8, 32_767), next_producer_id=10)
    log.transaction("z", COMPLETE_ABORT, (10, 0))
    assert found(log) == []


def test_a_transaction_that_loses_a_partition_is_found(log: Written) -> None:
    log.transaction("y", EMPTY, ME)
    before = log.transaction("y", ONGOING, ME, [("t", 0), ("t", 1)], started_ms=log.now_ms)
    here = log.transaction("y", PREPARE_COMMIT, ME, [("t", 0)])
    sentence = "The transaction of y lost t-1 in its transition to PrepareCommit."
    assert found(log) == [of_y("transaction-partitions-lost", sentence, before, here, about=("t", 1))]


def test_an_open_transaction_may_gain_partitions(log: Written) -> None:
    log.transaction("y", EMPTY, ME)
    log.transaction("y", ONGOING, ME, [], started_ms=log.now_ms)
    log.transaction("y", ONGOING, ME, T0, started_ms=log.now_ms)
    log.transaction("y", PREPARE_ABORT, (7, 1), T0)
    assert found(log) == []


# ---- producers in one partition


def test_offsets_committed_by_a_fenced_producer_are_found_once() -> None:
    """A producer with an old epoch commits several offsets after the new epoch's first write. The audit reports one
    finding.
    """
    log = Written()
    log.commit("g", 1, producer=(7, 0))
    log.mark((7, 0), True)
    newer = log.commit("g", 2, producer=(7, 1))
    here = log.commit("g", 9, producer=(7, 0))
    log.commit("g", 9, partition=1, producer=(7, 0))
    log.mark((7, 1), True)
    assert found(log) == [
        finding(
            "fenced-commit",
            [newer, here],
            "Producer 7 wrote an offset of group g in epoch 0, after epoch 1.",
            group_id="g",
            producer_id=7,
        )
    ]


def test_data_written_by_a_fenced_producer_are_found() -> None:
    log = Written("t")
    newer = log.raw(None, b"v", producer=(7, 3))
    here = log.raw(None, b"v", producer=(7, 2))
    sentence = "Producer 7 wrote data in epoch 2, after epoch 3."
    assert found(log) == [finding("fenced-write", [newer, here], sentence, producer_id=7)]


def test_an_expired_producer_may_begin_again() -> None:
    log = Written("t")
    log.raw(None, b"v", producer=(7, 3))
    log.wait(86_400_000)
    log.raw(None, b"v", producer=(7, 0))
    assert found(log) == []


def test_a_marker_of_an_earlier_producer_epoch_is_found() -> None:
    log = Written()
    newer = log.mark((7, 3), True)
    here = log.mark((7, 2), True)
    sentence = "Producer 7 wrote a marker in epoch 2, after epoch 3."
    assert found(log) == [finding("fenced-marker", [newer, here], sentence, producer_id=7)]


def test_a_marker_of_an_earlier_coordinator_epoch_is_found() -> None:
    log = Written()
    before = log.mark((7, 0), True, coordinator_epoch=5)
    here = log.mark((7, 0), True, coordinator_epoch=4)
    sentence = "A marker for producer 7 has coordinator epoch 4, after a marker of epoch 5."
    assert found(log) == [finding("coordinator-epoch-decreased", [before, here], sentence, producer_id=7)]


def test_a_new_coordinator_may_repeat_a_marker() -> None:
    log = Written()
    log.commit("g", 1, producer=ME)
    log.mark(ME, True, coordinator_epoch=5)
    log.mark(ME, True, coordinator_epoch=6)
    assert found(log) == []


# ---- committed offsets


def from_10_to_3(before: Evidence, here: Evidence) -> Finding:
    """Returns the expected finding that the committed offset of group g decreased from 10 to 3."""
    sentence = "The committed offset of group g in t-0 fell from 10 to 3 while the group had members."
    return finding("offset-decreased", [before, here], sentence, group_id="g", about=("t", 0))


def test_a_decreasing_offset_of_a_group_with_members_is_found() -> None:
    log = Written()
    log.generation("g", 1, a=[0])
    log.commit("g", 5)
    before = log.commit("g", 10)
    here = log.commit("g", 3)
    log.commit("g", 4)
    assert found(log) == [from_10_to_3(before, here)]


def test_an_offset_in_a_later_version_of_the_value_is_compared() -> None:
    """A later version of Kafka wrote the offset. It is readable as the newest known version (KIP-915)."""
    log = Written()
    log.generation("g", 1, a=[0])
    before = log.commit("g", 10)
    value = OffsetCommitValue(offset=3, metadata="").encode_value(4)
    here = log.put(OffsetCommitKey(group="g", topic="t", partition=0), b"\0\x05" + value[2:])
    assert found(log) == [from_10_to_3(before, here)]


def test_a_group_whose_name_is_not_utf8_is_compared() -> None:
    """Invalid bytes of a name are replaced, as in Kafka. They do not damage the log."""
    log = Written()
    key = OffsetCommitKey(group="g?", topic="t", partition=0).encode_key().replace(b"g?", b"g\xff")
    for offset in (10, 3):
        log.raw(key, OffsetCommitValue(offset=offset, metadata="").encode_value(3))
    assert found(log) == []


def test_a_decreasing_offset_committed_by_a_transaction_is_found() -> None:
    """A transaction commits an offset that is lower than the offset committed before. The audit reports this.

    It ignores offsets of aborted transactions.
    """
    log = Written()
    log.generation("g", 1, a=[0])
    before = log.commit("g", 10)
    log.commit("g", 2, producer=(8, 0))
    log.mark((8, 0), False)
    here = log.commit("g", 3, producer=ME)
    log.mark(ME, True)
    assert found(log) == [from_10_to_3(before, here)]


def test_a_transactional_offset_older_than_the_last_commit_is_no_finding() -> None:
    """A transaction writes offset 3, then another commit writes 10, and then the transaction is committed. The later
    record wins, so the offset has not decreased.
    """
    log = Written()
    log.generation("g", 1, a=[0])
    log.commit("g", 3, producer=ME)
    log.commit("g", 10)
    log.mark(ME, True)
    assert found(log) == []


def test_offsets_may_decrease_after_a_reset_an_expiry_or_a_new_topic() -> None:
    log = Written()
    log.commit("simple", 10)
    log.commit("simple", 3)  # an offset reset of an empty group
    log.generation("g", 1, a=[0])
    log.commit("g", 10)
    log.generation("g", 2)
    log.commit("g", 3)
    log.generation("h", 1, a=[0])
    log.commit("h", 10)
    log.put(OffsetCommitKey(group="h", topic="t", partition=0))  # it expired, or was deleted
    log.commit("h", 3)
    key = OffsetCommitKey(group="h", topic="u", partition=0)
    for offset, topic_id in ((10, bytes([1] * 16)), (3, bytes([2] * 16))):
        log.put(key, OffsetCommitValue(offset=offset, metadata="", topic_id=topic_id), 4)
    assert found(log) == []
