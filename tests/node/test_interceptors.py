"""Interceptors of producers and consumers: their order, the changes that they make, and their failures, which are
logged but not raised.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import kcore
from kcore.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from kcore.node.types import RecordMetadata
from tests.kit import wait_until


class Tagging(kcore.ProducerInterceptor):
    """An interceptor that appends a tag to each value and stores the results."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.results: list[tuple[int, int, str]] = []

    def on_send(self, record: kcore.ProducerRecord) -> kcore.ProducerRecord:
        return replace(record, value=f"{record.value!s}{self.tag}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.results.append((metadata.partition, metadata.offset, type(error).__name__))


class Failing(kcore.ProducerInterceptor, kcore.ConsumerInterceptor):
    """An interceptor whose methods all raise an exception."""

    def on_send(self, record: kcore.ProducerRecord) -> kcore.ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def on_consume(self, records: list[kcore.Record]) -> list[kcore.Record]:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        raise RuntimeError("on_commit")


class Even(kcore.ConsumerInterceptor):
    """An interceptor that passes on the records with even offsets, and stores the committed offsets."""

    def __init__(self) -> None:
        self.committed: list[dict[int, int]] = []

    def on_consume(self, records: list[kcore.Record]) -> list[kcore.Record]:
        return [record for record in records if record.offset % 2 == 0]

    def on_commit(self, offsets: Mapping[Any, Any]) -> None:
        self.committed.append({key.partition: value.offset for key, value in offsets.items()})


def test_producer_interceptors_change_records_and_see_their_results(
    node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": 1_000})
    first, last = Tagging("-a"), Tagging("-b")
    with caplog.at_level(logging.ERROR), node.producer(interceptors=[first, Failing(), last]) as producer:
        assert producer.append(name, "x").result().offset == 0
        assert producer.append(name, "y").result().offset == 1
        refused = producer.append(name, "z" * 5_000)
        with pytest.raises(MessageTooLargeError):
            refused.result()
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.append(f"no-{name}", "x")
        with pytest.raises(MessageTooLargeError):
            producer.flush()
    assert [record.value for record in topic.read(0, 0)] == [b"x-a-b", b"y-a-b"]
    none = "NoneType"
    expected = [(0, 0, none), (0, 1, none), (0, -1, "MessageTooLargeError"), (-1, -1, "UnknownTopicOrPartitionError")]
    assert (first.results, last.results) == (expected, expected)
    failures = [record for record in caplog.records if "client: the interceptor's method " in record.message]
    assert len(failures) == 4 + 4


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")
def test_a_closed_producer_reports_records_that_were_not_stored(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    seen = Tagging("")
    producer = node.producer(linger=60, interceptors=[seen])
    producer.append(name, "x")
    producer.close()
    assert seen.results == [(0, -1, "KcoreError")]


def test_transactions_call_producer_interceptors(node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": 1_000})
    first, last = Tagging("-a"), Tagging("-b")
    interceptors = [first, Failing(), last]
    with caplog.at_level(logging.ERROR), node.transaction(name, interceptors=interceptors) as txn:
        txn.append(name, "x")
        txn.append(name, "y", partition=0)
        assert first.results == []  # buffered
        txn.flush()
        txn.append(name, "z")
        with pytest.raises(UnknownTopicOrPartitionError):
            txn.append(f"no-{name}", "x")
    wait_until(lambda: topic.read(0, 0), "the marker, which Apache Kafka writes after its response")
    assert [record.value for record in topic.read(0, 0)] == [b"x-a-b", b"y-a-b", b"z-a-b"]
    none = "NoneType"
    expected = [(0, 0, none), (0, 1, none), (-1, -1, "UnknownTopicOrPartitionError"), (0, 2, none)]
    assert (first.results, last.results) == (expected, expected)
    failures = [record for record in caplog.records if "client: the interceptor's method " in record.message]
    assert len(failures) == 4 + 4


def test_transactions_report_records_that_were_not_stored(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2, config={"max.message.bytes": 1_000})
    aborted, refused = Tagging(""), Tagging("")
    with node.transaction(name, interceptors=[aborted]) as txn:
        txn.append(name, "sent", partition=0)
        txn.flush()
        txn.append(name, "buffered", partition=1)
        txn.abort()
    with node.transaction(name, interceptors=[refused]) as txn:
        txn.append(name, "x" * 5_000, partition=0)
        txn.append(name, "after it", partition=1)
        with pytest.raises(MessageTooLargeError):
            txn.flush()
        txn.abort()
    too_large = "MessageTooLargeError"
    assert (aborted.results, refused.results) == (
        [(0, 0, "NoneType"), (1, -1, "KcoreError")],
        [(0, -1, too_large), (1, -1, too_large)],
    )
    assert [topic.read(partition, 0) for partition in (0, 1)] == [[], []]


@pytest.mark.parametrize("loop", [False, True], ids=["poll", "loop"])
def test_consumer_interceptors_filter_records_and_see_commits(node: kcore.Node, name: str, loop: bool) -> None:
    node.topics.create(name, 1).append_many([str(number) for number in range(5)])
    even = Even()
    found: list[int] = []
    with node.group(name).consume(name, auto_commit=None, interceptors=[Failing(), even]) as consumer:
        if loop:
            for record in consumer:
                found.append(record.offset)
                if record.offset == 4:
                    break
        else:
            while 4 not in found:
                found += [record.offset for record in consumer.poll(60)]
        consumer.commit()
    assert found == [0, 2, 4]
    assert even.committed == [{0: 5}]
    assert {key.partition: value.offset for key, value in node.group(name).committed().items()} == {0: 5}


async def test_interceptors_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 1)
    seen, even = Tagging("!"), Even()
    async with anode.producer(interceptors=[seen]) as producer:
        assert (await (await producer.append(name, "a")).result()).offset == 0
    async with anode.group(name).consume(name, auto_commit=60.0, interceptors=[even]) as consumer:
        assert [record.value for record in await consumer.poll(60)] == [b"a!"]
    assert (seen.results, even.committed) == ([(0, 0, "NoneType")], [{0: 1}])


class Forgetful(kcore.ProducerInterceptor, kcore.ConsumerInterceptor):
    """An interceptor whose methods lack the `return` statement."""

    def on_send(self, record: kcore.ProducerRecord) -> kcore.ProducerRecord:
        return None  # type: ignore[return-value]

    def on_consume(self, records: list[kcore.Record]) -> list[kcore.Record]:
        return None  # type: ignore[return-value]


def test_an_interceptor_that_returns_none_changes_nothing(
    node: kcore.Node, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, `append` raised an AttributeError about NoneType, and `poll` returned None and lost the records."""
    node.topics.create(name, 1)
    forgetful, last = Forgetful(), Tagging("-a")
    with caplog.at_level(logging.ERROR):
        with node.producer(interceptors=[forgetful, last]) as producer:
            producer.append(name, "x")
        with node.transaction(name, interceptors=[forgetful, last]) as txn:
            txn.append(name, "y")
        with node.group(name).consume(name, reset="earliest", interceptors=[forgetful]) as consumer:
            values = [record.value for record in consumer.poll(60.0)]
            while len(values) < 2:
                values.append(next(iter(consumer)).value)
    assert values == [b"x-a", b"y-a"]
    text = (
        "client: the interceptor's method Forgetful.{method} returned an object of type NoneType for topic {name!r}; "
        "the records stay as they were before its call; correct the method: it must return {valid}"
    )
    sent = text.format(method="on_send", name=name, valid="a kcore.ProducerRecord")
    consumed = text.format(method="on_consume", name=name, valid="a list of records")
    assert [record.getMessage() for record in caplog.records if record.getMessage() == sent] == [sent] * 2
    assert {record.getMessage() for record in caplog.records} == {sent, consumed}


def test_a_loop_keeps_records_whose_interceptor_returns_none(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    for value in ("x", "y"):
        topic.append(value)
    records = node.group(name).consume(name, reset="earliest", interceptors=[Forgetful()])
    with records:
        values = [record.value for _, record in zip(range(2), records, strict=False)]
    assert values == [b"x", b"y"]
