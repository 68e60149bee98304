"""Producers by the client API: batches, order, keys, retries and errors."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.client.partitioner import partition_of
from kcore.node.types import RecordMetadata
from tests.tcp_proxy import Proxy


def values(node: kcore.Node, name: str, partition: int) -> list[int]:
    """Returns all values of a partition as numbers."""
    topic, found = node.topics[name], []
    end = topic.end_offsets()[partition]
    while len(found) < end:
        found += [int(record.value or b"") for record in topic.read(partition, len(found), 10_000)]
    return found


def test_records_are_stored_in_order_in_few_batches(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 2)
    with node.producer(compression="zstd", linger=0.01) as producer:
        deliveries = [producer.append(name, str(number), partition=number % 2) for number in range(5_000)]
        assert deliveries[4].result() == RecordMetadata(name, 0, 2, deliveries[4].result().timestamp_ms)
    assert all(delivery.done for delivery in deliveries)
    assert values(node, name, 0) == list(range(0, 5_000, 2))
    assert values(node, name, 1) == list(range(1, 5_000, 2))


def test_keys_choose_the_partition_as_javas_producer_does(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 7)
    with node.producer() as producer:
        placed = {key: producer.append(name, "0", key=key).result().partition for key in ("21", "abc", "foobar", "")}
        unkeyed = {producer.append(name, "1").result().partition for _ in range(5)}
    assert placed == {"21": 3, "abc": 4, "foobar": 0, "": 2}
    assert placed["abc"] == partition_of(b"abc", 7)
    assert len(unkeyed) == 1, "records without a key share a partition until a batch is full"


def test_a_producer_stores_the_time_of_a_record(node: kcore.Node, name: str) -> None:
    """The argument has the name and the type of the argument of a topic's and a transaction's `append`."""
    topic = node.topics.create(name, 1)
    times = [datetime(2026, 1, 31, 12, tzinfo=UTC), 1_700_000_000.25, 0]
    with node.producer() as producer, node.producer(interceptors=[kcore.ProducerInterceptor()]) as intercepted:
        for each in (producer, intercepted):
            deliveries = [each.append(name, "1", timestamp=time) for time in times]
            assert [one.result().timestamp_ms for one in deliveries] == [1_769_860_800_000, 1_700_000_000_250, 0]
        with pytest.raises(ValueError, match="seconds since 1970, not milliseconds"):
            producer.append(name, "1", timestamp=1_700_000_000_000)
        with pytest.raises(TypeError, match="the time is 'now'; valid: a datetime"):
            producer.append(name, "1", timestamp="now")  # type: ignore[arg-type]
    records = topic.read(0, 0)
    assert [record.timestamp_ms for record in records] == [1_769_860_800_000, 1_700_000_000_250, 0] * 2


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")
def test_the_wait_for_a_result_has_a_time_limit(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.producer(linger=600.0) as producer:
        delivery = producer.append(name, "waits for more records")
        with pytest.raises(TimeoutError, match="not stored after 0 s"):
            delivery.result(timeout=0)
        producer.flush()
        assert delivery.result(timeout=0).offset == 0


def test_a_refused_batch_fails_alone(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1, config={"max.message.bytes": 1_000})
    producer = node.producer()
    good = producer.append(name, "1")
    good.result()
    bad = producer.append(name, b"x" * 5_000)
    with pytest.raises(errors.MessageTooLargeError):
        bad.result()
    later = producer.append(name, "2")
    with pytest.raises(errors.MessageTooLargeError):
        producer.flush()
    assert later.result().offset == 1
    producer.flush()
    producer.close()
    assert values(node, name, 0) == [1, 2]
    with pytest.raises(errors.KcoreError, match="closed"):
        producer.append(name, "3")


def test_a_missing_topic_is_an_error_at_once(node: kcore.Node) -> None:
    with node.producer() as producer, pytest.raises(errors.UnknownTopicOrPartitionError):
        producer.append("no-such-topic", "v")


async def test_a_producer_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    topic = await anode.topics.create(name, 1)
    async with anode.producer(buffer_bytes=10_000, batch_bytes=2_000) as producer:
        deliveries = [await producer.append(name, str(number)) for number in range(2_000)]
        metadata = await asyncio.gather(*(delivery.result() for delivery in deliveries))
    assert [each.offset for each in metadata] == list(range(2_000))
    assert (await topic.end_offsets()) == {0: 2_000}


@pytest.mark.parametrize("turn", range(3))
def test_lost_connections_neither_lose_nor_repeat_records(served: str, name: str, turn: int) -> None:
    with kcore.connect(served) as direct, Proxy(served) as proxy:
        direct.topics.create(name, 1)
        with kcore.connect(proxy.bootstrap) as node, node.producer(batch_bytes=2_000) as producer:
            deliveries: list[Any] = []
            for number in range(600):
                deliveries.append(producer.append(name, str(number), partition=0))
                if number % 200 == 100:
                    proxy.cut_after_next_request()
                    deliveries[-1].result()
        assert values(direct, name, 0) == list(range(600))
        assert proxy.cuts == 3


@pytest.mark.parametrize("failing_call", ["start", "handle"])
def test_a_failure_of_the_send_loop_does_not_end_it(bootstrap: str, name: str, failing_call: str) -> None:
    """An exception in the producer's background loop does not end the loop. Otherwise `flush` and the waits for results
    would never end.
    """
    with kcore.connect(bootstrap) as node, node.producer() as producer:
        node.topics.create(name, 1)
        holder: Any = producer._calls.transport if failing_call == "start" else producer._sender
        attribute = "start" if failing_call == "start" else "_handle_row"
        original = getattr(holder, attribute)
        failures = [MemoryError("injected")]

        def fail_once(*arguments: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return original(*arguments, **options)

        setattr(holder, attribute, fail_once)
        first = producer.append(name, "first")
        if failing_call == "start":
            with pytest.raises(MemoryError):
                first.result(60.0)
            with pytest.raises(MemoryError):
                producer.flush()
        else:
            assert first.result(60.0).offset in (0, -1)
        second = producer.append(name, "second")
        producer.flush()
        assert second.result(0).offset == (0 if failing_call == "start" else 1)
        assert [record.value for record in node.topics[name].read(0, 0)] == (
            [b"second"] if failing_call == "start" else [b"first", b"second"]
        )


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")
@pytest.mark.parametrize("closes", ["producer", "node"])
def test_a_block_raises_if_the_producer_was_closed_before_its_records_were_stored(
    node: kcore.Node, name: str, closes: str
) -> None:
    """Another thread closes the node or the producer. Before, the block ended without an error, and lost the record."""
    node.topics.create(name, 1)
    producer = node.producer(linger=600.0)

    def use_block() -> None:
        with producer:
            producer.append(name, "waits for more records")
            (producer if closes == "producer" else node).close()

    with pytest.raises(errors.KcoreError, match="the producer was closed before the record was stored"):
        use_block()
    producer.flush()
    if closes == "node":
        return
    unused = node.producer()
    unused.close()
    unused.flush()
