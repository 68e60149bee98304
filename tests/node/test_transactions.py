"""Transactions by the client API."""

from __future__ import annotations

import asyncio
import time

import pytest

import kcore
from kcore import errors
from kcore.node._sync.topics import Topic
from kcore.node.membership import Protocol
from kcore.node.types import OffsetAndMetadata
from kcore.protocol.topic_partition import TopicPartition


def stored(topic: Topic, count: int, partition: int = 0) -> list[bytes | None]:
    """Waits until a partition has `count` committed records, and returns their values.

    The wait is needed because Apache Kafka writes transaction markers after it has responded.
    """
    until_s = time.monotonic() + 60
    while len(records := topic.read(partition, 0)) < count:
        assert time.monotonic() < until_s, records
        time.sleep(0.01)
    return [record.value for record in records]


def test_a_transaction_commits_records_and_offsets_together(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2)
    group = node.group(name)
    for turn in range(3):
        with node.transaction(name) as txn:
            for number in range(2):
                txn.append(name, f"{turn}-{number}", partition=number)
            txn.commit_offsets(group, {(name, 0): OffsetAndMetadata(turn, "note"), (name, 1): turn})
            assert stored(topic, turn) == [f"{each}-0".encode() for each in range(turn)]
    assert stored(topic, 3, partition=1) == [b"0-1", b"1-1", b"2-1"]
    assert group.committed(stable=True) == {
        TopicPartition(name, 0): OffsetAndMetadata(2, "note"),
        TopicPartition(name, 1): OffsetAndMetadata(2),
    }


def test_an_exception_aborts_the_transaction(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)

    def fail() -> None:
        with node.transaction(name) as txn:
            txn.append(name, "aborted")
            txn.flush()
            txn.commit_offsets(node.group(name), {(name, 0): 5})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with node.transaction(name) as txn:
        txn.append(name, "committed")
    assert stored(topic, 1) == [b"committed"]
    assert [record.value for record in topic.read(0, 0, isolation="read_uncommitted")] == [b"aborted", b"committed"]
    assert node.group(name).committed(stable=True) == {}


def test_an_empty_transaction_and_an_explicit_end_are_no_errors(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    with node.transaction(name):
        pass
    with node.transaction(name) as txn:
        txn.append(name, "kept")
        txn.commit()
        with pytest.raises(errors.KcoreError, match="not open"):
            txn.append(name, "late")
    with node.transaction(name) as txn:
        txn.append(name, "dropped")
        txn.abort()
    assert stored(topic, 1) == [b"kept"]


def test_a_refused_record_fails_the_transaction_and_the_next_one_works(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": 1_000})
    with pytest.raises(errors.MessageTooLargeError), node.transaction(name) as txn:
        txn.append(name, b"x" * 2_000)
    with node.transaction(name) as txn:
        txn.append(name, "kept")
    assert stored(topic, 1) == [b"kept"]


def test_an_error_that_the_block_catches_cannot_be_committed(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": 1_000})

    def fail() -> None:
        with node.transaction(name) as txn:
            txn.append(name, "kept?")
            txn.flush()
            txn.append(name, b"x" * 2_000)
            with pytest.raises(errors.MessageTooLargeError):
                txn.flush()

    with pytest.raises(errors.KcoreError, match="can only be aborted"):
        fail()
    assert topic.read(0, 0) == []


def test_a_newer_producer_of_the_id_fences_the_older_one(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as old, kcore.connect(bootstrap) as new:
        topic = old.topics.create(name, 1)

        def fail() -> None:
            with old.transaction(name) as txn:
                txn.append(name, "zombie")
                txn.flush()
                with new.transaction(name) as winner:
                    winner.append(name, "new")
                txn.append(name, "zombie")

        with pytest.raises(errors.ProducerFencedError):
            fail()
        with pytest.raises(errors.ProducerFencedError), old.transaction(name):
            raise AssertionError("a fenced producer cannot begin")
        assert stored(topic, 1) == [b"new"]


async def test_transactions_on_a_loop(anode: kcore.AsyncNode, name: str) -> None:
    topic = await anode.topics.create(name, 1)
    async with anode.transaction(name, compression="gzip") as txn:
        for number in range(100):
            await txn.append(name, str(number), key="k")
        await txn.commit_offsets(anode.group(name), {(name, 0): 3})
    committed = await anode.group(name).committed([(name, 0)], stable=True)
    assert committed == {TopicPartition(name, 0): OffsetAndMetadata(3)}
    while not (records := await topic.read(0, 0)):  # Apache Kafka writes the markers after its response
        await asyncio.sleep(0.01)
    assert [record.value for record in records] == [str(number).encode() for number in range(100)]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_fenced_member_cannot_commit_in_a_transaction(node: kcore.Node, name: str, protocol: Protocol) -> None:
    node.topics.create(name, 1)

    class Gone:
        group_metadata = (name, "no-such-member", 3, None)

    def commit() -> None:
        with node.transaction(name) as txn:
            txn.commit_offsets(Gone(), {(name, 0): 1})

    with node.group(name).join(name, protocol=protocol):
        with pytest.raises(errors.CommitFailedError) as raised:
            commit()
        assert isinstance(raised.value.__cause__, errors.UnknownMemberIdError)


def test_a_group_of_a_transaction_may_be_named_by_its_id(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.transaction(name) as txn:
        txn.commit_offsets(name, {(name, 0): 4})
    assert node.group(name).committed([(name, 0)], stable=True) == {(name, 0): OffsetAndMetadata(4)}
    with pytest.raises(TypeError, match="a bytes has no group"), node.transaction(name) as txn:
        txn.commit_offsets(b"group", {(name, 0): 5})  # type: ignore[arg-type]


def test_a_transaction_within_another_one_of_the_id_is_refused(node: kcore.Node, name: str) -> None:
    """A program begins a transaction inside another one with the same transactional id. The inner one is refused,
    because both would wait for each other.
    """
    topic = node.topics.create(name, 1)
    with node.transaction(name) as outer:
        outer.append(name, "outer")
        with pytest.raises(errors.KcoreError, match="already has an open transaction"), node.transaction(name):
            raise AssertionError("two transactions of one id are open")
        with pytest.raises(errors.KcoreError, match="already has an open transaction"):
            node.transaction(name).init()
        with node.transaction(f"{name}-2") as inner:
            inner.append(name, "inner")
    with node.transaction(name) as again:
        again.append(name, "again")
    assert stored(topic, 3) == [b"inner", b"outer", b"again"]


async def test_tasks_take_turns_with_the_transactions_of_an_id(anode: kcore.AsyncNode, name: str) -> None:
    await anode.topics.create(name, 1)

    async def add(value: str) -> None:
        async with anode.transaction(name) as txn:
            await txn.append(name, value)
            await asyncio.sleep(0)
            with pytest.raises(errors.KcoreError, match="already has an open transaction"):
                await anode.transaction(name).init()

    await asyncio.gather(*(add(str(number)) for number in range(3)))
    assert (await anode.topics[name].end_offsets("read_uncommitted"))[0] >= 3


def test_init_ends_the_open_transaction_of_a_predecessor(bootstrap: str, name: str) -> None:
    """Otherwise the offsets of a crashed process would stay pending until the transaction times out."""
    with kcore.connect(bootstrap) as crashed, kcore.connect(bootstrap) as node:
        node.topics.create(name, 1).append("record")
        before = crashed.transaction(name, timeout=600.0)
        before.__enter__()
        before.commit_offsets(name, {(name, 0): 1})
        assert node.group(name).pending_offsets([(name, 0)]) == {(name, 0)}
        txn = node.transaction(name)
        txn.init()
        assert node.group(name).pending_offsets([(name, 0)]) == set()
        with node.group(name).consume(name, auto_commit=None) as consumer:
            assert [record.value for record in consumer.poll(60.0)] == [b"record"]
            with txn:
                txn.commit_offsets(consumer, consumer.positions())
        assert node.group(name).committed([(name, 0)], stable=True) == {(name, 0): OffsetAndMetadata(1, "", 0)}
        with pytest.raises(errors.ProducerFencedError):
            before.__exit__(None, None, None)
        with txn, pytest.raises(errors.KcoreError, match="the transaction is open"):
            txn.init()
        with txn:
            txn.append(name, "second block")
        assert stored(node.topics[name], 2) == [b"record", b"second block"]


@pytest.mark.parametrize("error", [TimeoutError("injected"), KeyboardInterrupt()], ids=["timeout", "interrupt"])
def test_records_whose_abort_failed_are_not_committed_by_the_next_transaction(
    node: kcore.Node, name: str, error: BaseException
) -> None:
    topic = node.topics.create(name, 1)

    def fail(commit: bool) -> None:
        raise error

    with node.transaction(name) as txn:
        txn.append(name, "aborted")
        txn.flush()
        producer = txn._producer
        end, producer.end = producer.end, fail  # type: ignore[method-assign]
        with pytest.raises(type(error)):
            txn.abort()
    producer.end = end  # type: ignore[method-assign]
    with node.transaction(name) as txn:
        txn.append(name, "committed")
    assert stored(topic, 1) == [b"committed"]


@pytest.mark.parametrize("request_after", ["offsets", "records", "commit"])
def test_a_transaction_that_timed_out_does_not_fence_its_producer(request_after: str) -> None:
    """The coordinator aborts a transaction at its timeout and raises the producer epoch. No other producer uses the new
    epoch, so the next transaction of the node succeeds.
    """
    with kcore.open(clock=kcore.ManualClock()) as node:
        topic = node.topics.create("t")

        def time_out() -> None:
            with node.transaction("id", timeout=1.0) as txn:
                txn.commit_offsets("g", {("t", 0): 1})
                node.advance(60_000)
                if request_after == "offsets":
                    txn.commit_offsets("g", {("t", 0): 2})
                elif request_after == "records":
                    txn.append("t", "late")

        with pytest.raises((errors.InvalidProducerEpochError, errors.InvalidTxnStateError)):
            time_out()
        with node.transaction("id", timeout=1.0) as txn:
            txn.append("t", "next")
            txn.commit_offsets("g", {("t", 0): 3})
        assert stored(topic, 1) == [b"next"]
        assert node.group("g").committed()["t", 0].offset == 3
