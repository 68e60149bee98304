"""Transactions without a socket, on an embedded engine with a manual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kcore
from kcore.clock import ManualClock
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.harness import WALL_MS
from tests.transaction.world import Identity, end_request, produce_request

SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "1"}


def state(engine: Any, tid: str) -> str:
    found = engine.send(DescribeTransactionsRequest(transactional_ids=[tid])).transaction_states[0]
    return str(found.transaction_state)


def begin(engine: Any, tid: str) -> Identity:
    """Creates the coordinator's topic at its first use and initialises a producer."""
    while engine.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[tid])).coordinators[0].error_code:
        pass
    response = engine.send(InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=60_000))
    assert not response.error_code
    return Identity(response.producer_id, response.producer_epoch)


def test_transactions_of_an_embedded_engine_in_virtual_time(tmp_path: Path) -> None:
    """One transaction commits, and another one times out in virtual time. A reopened folder has both results."""
    clock = ManualClock(wall_ms=WALL_MS)
    with kcore.open(tmp_path / "data", config=SETTINGS, clock=clock) as engine:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        engine.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        who = begin(engine, "done")
        assert not engine.send(produce_request("done", who, 0, b"a"), 12).responses[0].partition_responses[0].error_code
        after = engine.send(end_request("done", who, True))
        assert (after.error_code, after.producer_id, after.producer_epoch) == (0, who.producer_id, 1)
        left = begin(engine, "left")
        assert (
            not engine.send(produce_request("left", left, 0, b"b"), 12).responses[0].partition_responses[0].error_code
        )
        engine.advance(59_000)
        assert state(engine, "left") == "Ongoing"
        engine.advance(11_001)
        assert state(engine, "left") == "CompleteAbort"
    with kcore.open(tmp_path / "data", config=SETTINGS, clock=clock) as engine:
        assert (state(engine, "done"), state(engine, "left")) == ("CompleteCommit", "CompleteAbort")
        repeated = engine.send(end_request("done", who, True))
        assert (repeated.error_code, repeated.producer_epoch) == (0, 1)
