"""The timeline of transactions, from the first added partition to the last marker, and the causes of aborts."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.records import TRANSACTION_STATE
from kcore.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.spark.timeline.logs import Log, history

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
TIMEOUT_MS = 5_000


class Ids(Log):
    """A partition of `__transaction_state`."""

    def __init__(self) -> None:
        super().__init__(TRANSACTION_STATE)
        self.start_ms = -1

    def say(self, state: int, epoch: int = 0, *, partitions: int = 2, version: int = 0, tid: str = "t1") -> Ids:
        """Writes the next record of a transactional id."""
        if state == ONGOING and self.start_ms < 0:
            self.start_ms = self.now_ms
        parts = [PartitionsSchema(topic="out", partition_ids=list(range(partitions)))]
        value = TransactionLogValue(
            producer_id=7,
            producer_epoch=epoch,
            transaction_timeout_ms=TIMEOUT_MS,
            transaction_status=state,
            transaction_partitions=None if state == EMPTY else parts if state < COMPLETE_COMMIT else [],
            transaction_last_update_timestamp_ms=self.now_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=version,
        )
        if state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            self.start_ms = -1
        self.put(TransactionLogKey(transactional_id=tid), value, 1)
        return self

    def wait(self, ms: int) -> Ids:
        """Advances the time."""
        self.passes(ms)
        return self


def test_a_transaction_has_all_its_columns() -> None:
    log = Ids().say(EMPTY).wait(10).say(ONGOING, partitions=1).wait(20).say(ONGOING).wait(30).say(PREPARE_COMMIT)
    assert history(log.wait(5).say(COMPLETE_COMMIT))["transactions"] == [
        {
            "coordinator_partition": 0,
            "transactional_id": "t1",
            "producer_id": 7,
            "producer_epoch": 0,
            "start_offset": 1,
            "end_offset": 4,
            "start_ms": 10,
            "prepare_ms": 60,
            "end_ms": 65,
            "duration_ms": 55,
            "timeout_ms": TIMEOUT_MS,
            "state": "CompleteCommit",
            "outcome": "committed",
            "cause": None,
            "partitions": 2,
            "topics": ["out"],
            "whole": True,
        }
    ]


CASES: dict[str, tuple[Ids, tuple[Any, ...]]] = {
    "aborted by its producer: the epoch stays": (
        Ids().say(ONGOING).wait(9).say(PREPARE_ABORT).say(COMPLETE_ABORT),
        ("aborted", "producer", 9),
    ),
    "fenced by a new instance": (
        Ids().say(ONGOING).wait(9).say(PREPARE_ABORT, 1, version=2).say(COMPLETE_ABORT, 1),
        ("aborted", "fenced", 9),
    ),
    "the timeout was over": (
        Ids().say(ONGOING).wait(TIMEOUT_MS).say(PREPARE_ABORT, 1, version=2).say(COMPLETE_ABORT, 1),
        ("aborted", "timeout", TIMEOUT_MS),
    ),
    "transaction.version 2: an abort raises the epoch as a fence does": (
        Ids().say(ONGOING, version=2).wait(9).say(PREPARE_ABORT, 1, version=2).say(COMPLETE_ABORT, 1),
        ("aborted", "producer or fenced", 9),
    ),
    "aborted without having begun": (
        Ids().say(EMPTY).say(PREPARE_ABORT, 1, version=2).say(COMPLETE_ABORT, 1),
        ("aborted", "producer", 0),
    ),
    "open at the end, and so long till then": (Ids().say(ONGOING).wait(70).say(EMPTY, tid="t2"), ("open", None, 70)),
    "decided without all markers": (Ids().say(ONGOING).wait(4).say(PREPARE_COMMIT), ("open", None, 4)),
    "its end was compacted away": (Ids().say(ONGOING).loses(2), ("open", None, 0)),
}
CASES["another took its place"] = (Ids().say(ONGOING).wait(3), ("unknown", None, None))
CASES["another took its place"][0].say(EMPTY, 4)


@pytest.mark.parametrize("case", CASES)
def test_the_records_of_a_transaction_determine_outcome_and_cause(case: str) -> None:
    log, expected = CASES[case]
    (row,) = history(log)["transactions"]
    assert (row["outcome"], row["cause"], row["duration_ms"]) == expected


def test_an_id_may_have_several_transactions() -> None:
    """A transactional id has three transactions. No duration includes the time since the previous transaction."""
    log = Ids()
    for _ in range(3):
        log.wait(100).say(ONGOING).wait(7).say(PREPARE_COMMIT).say(COMPLETE_COMMIT)
    found = [(row["start_ms"], row["duration_ms"], row["outcome"]) for row in history(log)["transactions"]]
    assert found == [(100, 7, "committed"), (207, 7, "committed"), (314, 7, "committed")]
