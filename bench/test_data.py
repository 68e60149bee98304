"""Produce and fetch, embedded: what one request costs without a network, log in memory, commit included in produce."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kcore.runtime import RequestContext
from tests.broker.data.context import DataPlane, batch_of

RECORDS = (1, 100)
VALUE = b"v" * 100
PRODUCE_VERSION, FETCH_VERSION = 11, 12


def produce_request(records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def fetch_request(offset: int) -> FetchRequest:
    entry = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[entry])])


@pytest.mark.parametrize("records", RECORDS)
def test_produce(benchmark: Any, records: int) -> None:
    """One batch of one partition: check, append; a commit after every 100 requests, as a busy node has it."""
    plane = DataPlane()
    plane.topic("t")
    request = produce_request(batch_of(*[VALUE] * records))
    context = RequestContext(PRODUCE_VERSION)
    handle, commit = plane.produce_api.handle, plane.pipeline.commit

    def hundred() -> None:
        for _ in range(100):
            handle(context, request)
        commit()

    benchmark.extra_info["requests"] = 100
    benchmark.pedantic(hundred, rounds=200, warmup_rounds=20)


@pytest.mark.parametrize("records", RECORDS)
def test_produce_idempotent(benchmark: Any, records: int) -> None:
    """The same by an idempotent producer: sequences are checked and kept."""
    plane = DataPlane()
    plane.topic("t")
    context = RequestContext(PRODUCE_VERSION)
    handle, commit = plane.produce_api.handle, plane.pipeline.commit
    requests = [
        produce_request(batch_of(*[VALUE] * records, producer=(7, 0), sequence=number * records))
        for number in range(100 * 100)
    ]
    following = iter(requests)

    def hundred() -> None:
        for _ in range(100):
            handle(context, next(following))
        commit()

    benchmark.extra_info["requests"] = 100
    benchmark.pedantic(hundred, rounds=90, warmup_rounds=5)


@pytest.mark.parametrize("records", RECORDS)
def test_fetch(benchmark: Any, records: int) -> None:
    """One batch of one partition, which is there."""
    plane = DataPlane()
    plane.topic("t")
    plane.call(produce_request(batch_of(*[VALUE] * records)), PRODUCE_VERSION)
    request = fetch_request(0)
    context = RequestContext(FETCH_VERSION)
    handle = plane.fetch_api.handle

    def hundred() -> None:
        for _ in range(100):
            handle(context, request)

    benchmark.extra_info["requests"] = 100
    benchmark.pedantic(hundred, rounds=200, warmup_rounds=20)


def test_long_poll(benchmark: Any) -> None:
    """A fetch that parks, a produce that wakes it, and both answers."""
    plane = DataPlane()
    plane.topic("t")
    produce = produce_request(batch_of(VALUE))
    produce_context, fetch_context = RequestContext(PRODUCE_VERSION), RequestContext(FETCH_VERSION)
    partition = plane.partition("t")

    def round_trip() -> None:
        pending = plane.fetch_api.handle(fetch_context, fetch_request(partition.high_watermark))
        plane.produce_api.handle(produce_context, produce)
        plane.pipeline.commit()
        assert pending.done

    benchmark.pedantic(round_trip, rounds=2000, warmup_rounds=20)
