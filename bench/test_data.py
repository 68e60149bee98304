"""Produce and fetch, embedded: what one request costs without a network, log in memory, commit included in produce.

Each round is `REQUESTS` requests on a fresh log, with one commit behind them, as a busy node has it: divide by that.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.runtime import RequestContext
from tests.broker.data.context import DataPlane, batch_of

REQUESTS = 100
RECORDS = (1, 100)
VALUE = b"v" * 100
PRODUCE, FETCH = RequestContext(11), RequestContext(12)


def produce_request(records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch_request(offset: int) -> FetchRequest:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[entry])])


def plane_with_topic() -> DataPlane:
    plane = DataPlane()
    plane.topic("t")
    return plane


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("records", RECORDS)
def test_produce(benchmark: Any, records: int, idempotent: bool) -> None:
    """One batch of one partition a request: checked, appended, answered with the commit."""
    requests = [
        produce_request(
            batch_of(
                *[VALUE] * records,
                producer=(7, 0) if idempotent else (-1, -1),
                sequence=number * records if idempotent else -1,
            )
        )
        for number in range(REQUESTS)
    ]

    def setup() -> tuple[tuple[DataPlane], dict[str, Any]]:
        return (plane_with_topic(),), {}

    def run(plane: DataPlane) -> None:
        handle = plane.produce_api.handle
        for request in requests:
            handle(PRODUCE, request)
        plane.pipeline.commit()

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=100, warmup_rounds=5)


@pytest.mark.parametrize("records", RECORDS)
def test_fetch(benchmark: Any, records: int) -> None:
    """One batch of one partition, which is there."""
    plane = plane_with_topic()
    plane.call(produce_request(batch_of(*[VALUE] * records)), 11)
    request = fetch_request(0)
    handle = plane.fetch_api.handle

    def run() -> None:
        for _ in range(REQUESTS):
            handle(FETCH, request)

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, rounds=100, warmup_rounds=5)


def test_long_poll(benchmark: Any) -> None:
    """A fetch that parks, a produce that wakes it with its commit, and both answers."""
    produce = produce_request(batch_of(VALUE))

    def setup() -> tuple[tuple[DataPlane], dict[str, Any]]:
        return (plane_with_topic(),), {}

    def run(plane: DataPlane) -> None:
        for offset in range(REQUESTS):
            pending = plane.fetch_api.handle(FETCH, fetch_request(offset))
            plane.produce_api.handle(PRODUCE, produce)
            plane.pipeline.commit()
            assert pending.done

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=50, warmup_rounds=5)
