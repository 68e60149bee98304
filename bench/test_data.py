"""Produce and fetch with an embedded engine: the cost of one request without a network, with the log in memory. Produce
includes the commit.

Each round is `REQUESTS` requests on a fresh log, followed by one commit, as on a busy node: divide by `REQUESTS`.
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


def produce_request(records: bytes, partitions: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def fetch_request(offset: int) -> FetchRequest:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[entry])])


def plane_with_topic(partitions: int = 1) -> DataPlane:
    plane = DataPlane()
    plane.topic("t", partitions)
    return plane


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("records", RECORDS)
def test_produce(benchmark: Any, records: int, idempotent: bool) -> None:
    """Measures one batch of one partition per request: check, append, and response with the commit."""
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
        fast = plane.produce_api.fast
        for request in requests:
            fast(PRODUCE, request)
        plane.pipeline.commit()

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=100, warmup_rounds=5)


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("partitions", [1, 10])
@pytest.mark.parametrize("path", ["fast", "handle"], ids=["compiled", "python"])
def test_produce_to_partitions(benchmark: Any, path: str, partitions: int, idempotent: bool) -> None:
    """Measures one record for each of several partitions per request: the compiled path and the generic one."""
    requests = [
        produce_request(
            batch_of(VALUE, producer=(7, 0) if idempotent else (-1, -1), sequence=number if idempotent else -1),
            partitions,
        )
        for number in range(REQUESTS)
    ]

    def setup() -> tuple[tuple[DataPlane], dict[str, Any]]:
        return (plane_with_topic(partitions),), {}

    def run(plane: DataPlane) -> None:
        serve = getattr(plane.produce_api, path)
        for request in requests:
            serve(PRODUCE, request)
        plane.pipeline.commit()

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=100, warmup_rounds=5)


@pytest.mark.parametrize("records", RECORDS)
def test_fetch(benchmark: Any, records: int) -> None:
    """Measures reads of one available batch of one partition."""
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
    """Measures a parked fetch, the Produce whose commit completes it, and both responses."""
    produce = produce_request(batch_of(VALUE))

    def setup() -> tuple[tuple[DataPlane], dict[str, Any]]:
        return (plane_with_topic(),), {}

    def run(plane: DataPlane) -> None:
        for offset in range(REQUESTS):
            pending = plane.fetch_api.handle(FETCH, fetch_request(offset))
            plane.produce_api.fast(PRODUCE, produce)
            plane.pipeline.commit()
            assert pending.done

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=50, warmup_rounds=5)


@pytest.mark.parametrize("case", ["idle", "moving"])
@pytest.mark.parametrize("partitions", [1, 50])
def test_fetch_session(benchmark: Any, partitions: int, case: str) -> None:
    """Measures incremental requests (KIP-227) as Java's consumer sends them. Either nothing changed, or one partition
    has a batch and the request has the next fetch offset.
    """
    plane = DataPlane()
    plane.topic("t", partitions)
    plane.call(produce_request(batch_of(VALUE)), 11)
    handle = plane.fetch_api.handle
    entries = [FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)]
    entries += [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(1, partitions)]
    founding = FetchRequest(session_id=0, session_epoch=0, topics=[FetchTopic(topic="t", partitions=entries)])
    topics = fetch_request(0).topics if case == "moving" else []

    def setup() -> tuple[tuple[list[FetchRequest]], dict[str, Any]]:
        session_id = handle(FETCH, founding).session_id
        requests = [
            FetchRequest(session_id=session_id, session_epoch=1 + number, topics=topics) for number in range(REQUESTS)
        ]
        return (requests,), {}

    def run(requests: list[FetchRequest]) -> None:
        for request in requests:
            handle(FETCH, request)

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=100, warmup_rounds=5)


def test_long_poll_of_fifty(benchmark: Any) -> None:
    """Measures an idle consumer of fifty partitions. Its poll is parked, and one batch completes it."""
    produce = produce_request(batch_of(VALUE))

    def setup() -> tuple[tuple[DataPlane, int], dict[str, Any]]:
        plane = DataPlane()
        plane.topic("t", 50)
        entries = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(50)]
        founding = FetchRequest(session_id=0, session_epoch=0, topics=[FetchTopic(topic="t", partitions=entries)])
        return (plane, plane.fetch_api.handle(FETCH, founding).session_id), {}

    def run(plane: DataPlane, session_id: int) -> None:
        for offset in range(REQUESTS):
            topics = fetch_request(offset).topics
            pending = plane.fetch_api.handle(
                FETCH,
                FetchRequest(
                    max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=1 + offset, topics=topics
                ),
            )
            plane.produce_api.fast(PRODUCE, produce)
            plane.pipeline.commit()
            assert pending.done

    benchmark.extra_info["operations"] = REQUESTS
    benchmark.pedantic(run, setup=setup, rounds=20, warmup_rounds=2)
