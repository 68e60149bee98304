"""Consumption by the client API: iteration, batches, positions, rebalances, transactions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.node._sync import fetcher as fetcher_module
from kcore.node.requests import read_fetched
from kcore.node.types import OffsetAndMetadata, Record
from kcore.protocol.topic_partition import TopicPartition
from tests.kit import wait_until
from tests.node.test_members import FAST, PROTOCOLS


@pytest.fixture(params=PROTOCOLS, ids=["consumer", "eager", "cooperative"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**request.param, **FAST}


def drain(consumer: Any, count: int, limit_s: float = 60.0) -> list[Record]:
    """Polls until a number of records has arrived."""
    records: list[Record] = []
    until_s = time.monotonic() + limit_s
    while len(records) < count:
        assert time.monotonic() < until_s, len(records)
        records += consumer.poll(1.0)
    return records


def test_a_loop_reads_every_record_once_and_commits(node: kcore.Node, name: str, options: dict[str, Any]) -> None:
    topic = node.topics.create(name, 2)
    topic.append_many([str(number) for number in range(1_000)], partition=0, compression="lz4")
    topic.append_many([str(number) for number in range(1_000, 1_500)], partition=1)
    seen: list[Record] = []
    with node.group(name).consume(name, **options) as consumer:
        for record in consumer:
            seen.append(record)
            if len(seen) == 1_500:
                break
    assert sorted(int(record.value or b"") for record in seen) == list(range(1_500))
    for number in (0, 1):
        offsets = [record.offset for record in seen if record.partition == number]
        assert offsets == list(range(len(offsets)))
    assert node.group(name).committed() == {
        TopicPartition(name, 0): OffsetAndMetadata(1_000, "", 0),
        TopicPartition(name, 1): OffsetAndMetadata(500, "", 0),
    } or node.group(name).lag() == {TopicPartition(name, 0): 0, TopicPartition(name, 1): 0}


def test_a_response_is_decompressed_in_parts(node: kcore.Node, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a few kilobytes of compressed batches would take gigabytes of memory in every consumer of the topic."""
    sizes: list[int] = []

    def noted(*arguments: Any) -> Any:
        fetched = read_fetched(*arguments)
        sizes.append(fetched.decompressed_bytes)
        return fetched

    monkeypatch.setattr(fetcher_module, "MAX_DECOMPRESSED_BYTES", 25_000)
    monkeypatch.setattr(fetcher_module, "read_fetched", noted)
    topic = node.topics.create(name, 3)
    for partition in range(3):
        for number in range(10):
            value = bytes([number]) * 10_000
            topic.append_many([value], partition=partition, compression="gzip")
    with node.group(name).consume(name) as consumer:
        seen = drain(consumer, 30)
    assert sum(sizes) > 300_000
    assert max(sizes) < 40_000
    for partition in range(3):
        found = [record for record in seen if record.partition == partition]
        assert [record.offset for record in found] == list(range(10))
        assert all(record.value == bytes([record.offset]) * 10_000 for record in found)


async def test_a_loop_needs_no_with_block(anode: kcore.AsyncNode, name: str, options: dict[str, Any]) -> None:
    topic = await anode.topics.create(name, 1)
    await topic.append_many(list("abc"))
    seen = []
    records = anode.group(name).consume([name], **options).__aiter__()
    async for record in records:
        seen.append(record.value)
        if len(seen) == 3:
            break
    await records.aclose()  # type: ignore[attr-defined]
    assert seen == [b"a", b"b", b"c"]
    assert (await anode.group(name).describe()).members == ()


def test_a_record_that_failed_is_read_again(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    topic.append_many(list("abc"))

    def process() -> None:
        with node.group(name).consume(name) as consumer:
            for record in consumer:
                if record.value == b"b":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        process()
    with node.group(name).consume(name) as consumer:
        assert [record.value for record in drain(consumer, 2)] == [b"b", b"c"]


def test_poll_commits_the_records_of_the_previous_poll(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    topic.append_many(list("abcd"))
    with node.group(name).consume(name, auto_commit=None, max_records=2) as consumer:
        assert [record.value for record in drain(consumer, 2)] == [b"a", b"b"]
        consumer.commit()
        assert node.group(name).lag() == {TopicPartition(name, 0): 2}
        assert [record.value for record in drain(consumer, 2)] == [b"c", b"d"]
        consumer.commit({(name, 0): 3})
    assert node.group(name).lag() == {TopicPartition(name, 0): 1}


def test_positions_can_be_moved_and_partitions_paused(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 2)
    topic.append_many(list("abc"), partition=0)
    topic.append_many(list("xyz"), partition=1)
    with node.group(name).consume(name) as consumer:
        assert len(drain(consumer, 6)) == 6
        consumer.pause((name, 1))
        consumer.seek((name, 0), 1)
        consumer.seek((name, 1), 2)
        assert consumer.position((name, 0)) == 1
        assert [record.value for record in drain(consumer, 2)] == [b"b", b"c"]
        consumer.resume((name, 1))
        assert [record.value for record in drain(consumer, 1)] == [b"z"]
        with pytest.raises(KeyError, match=f"{name}-7"):
            consumer.seek((name, 7), 0)


def test_the_position_of_a_partition_whose_event_is_not_handled_yet_is_unknown(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1).append("v")
    seen: list[int | None] = []
    consumer = node.group(name).consume(name)
    follow = consumer.member._internal
    assert follow is not None

    def observe(event: kcore.MemberEvent, before: bool) -> None:
        if before and isinstance(event, kcore.Assigned) and event.partitions:
            seen.append(consumer.position((name, 0)))
        follow(event, before)

    consumer.member._internal = observe
    with consumer:
        assert [record.value for record in consumer.poll(30)] == [b"v"]
    assert seen == [None]


def test_the_reset_policy_decides_where_reading_begins(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    topic.append("old")
    with node.group(f"{name}-latest").consume(name, reset="latest") as consumer:
        assert consumer.poll(0.5) == []
        while consumer.assignment == () or consumer.position((name, 0)) is None:
            consumer.poll(0.1)
        topic.append("new")
        assert [record.value for record in drain(consumer, 1)] == [b"new"]
    with (
        node.group(f"{name}-none").consume(name, reset="none") as consumer,
        pytest.raises(errors.OffsetOutOfRangeError),
    ):
        drain(consumer, 1)
    node.group(f"{name}-far").commit({(name, 0): 99})
    with node.group(f"{name}-far").consume(name, reset="earliest") as consumer:
        assert [record.value for record in drain(consumer, 2)] == [b"old", b"new"]


def test_aborted_records_are_left_out(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1)
    with node.transaction(name) as txn:
        txn.append(name, "committed")
    with node.transaction(name) as txn:
        txn.append(name, "aborted")
        txn.flush()
        txn.abort()
    topic.append("plain")
    with node.group(name).consume(name) as consumer:
        assert [record.value for record in drain(consumer, 2)] == [b"committed", b"plain"]
    with node.group(f"{name}-all").consume(name, isolation="read_uncommitted") as consumer:
        assert [record.value for record in drain(consumer, 3)] == [b"committed", b"aborted", b"plain"]


def test_a_commit_lies_behind_the_marker_of_a_transaction(node: kcore.Node, name: str) -> None:
    node.topics.create(name, 1)
    with node.transaction(name) as txn:
        txn.append(name, "a")
        txn.append(name, "b")
    with node.group(name).consume(name, auto_commit=None) as consumer:
        assert [record.value for record in drain(consumer, 2)] == [b"a", b"b"]
        wait_until(lambda: consumer.position((name, 0)) == 3, "the position after the marker")
        assert {key: value.offset for key, value in consumer.positions().items()} == {TopicPartition(name, 0): 3}
        with node.transaction(f"{name}-copy") as txn:
            txn.commit_offsets(consumer, consumer.positions())
    assert node.group(name).lag() == {TopicPartition(name, 0): 0}


async def test_partitions_move_without_a_lost_or_a_repeated_record(
    anode: kcore.AsyncNode, name: str, options: dict[str, Any]
) -> None:
    topic = await anode.topics.create(name, 4)
    seen: list[tuple[int, int]] = []
    stop = asyncio.Event()

    async def work(limit_s: float) -> None:
        async with anode.group(name).consume([name], auto_commit=0.2, **options) as consumer:
            until_s = time.monotonic() + limit_s
            while not stop.is_set() and time.monotonic() < until_s:
                for record in await consumer.poll(0.1, 3):
                    seen.append((record.partition, record.offset))
                    await asyncio.sleep(0.001)

    first = asyncio.ensure_future(work(60))
    for turn in range(10):
        if turn == 3:
            second = asyncio.ensure_future(work(60))
        if turn == 6:
            third = asyncio.ensure_future(work(1.0))
        for number in range(4):
            await topic.append_many([str(each) for each in range(10)], partition=number)
        await asyncio.sleep(0.2)
    await third
    async with asyncio.timeout(60):
        while len(set(seen)) < 400:
            await asyncio.sleep(0.05)
    stop.set()
    await asyncio.gather(first, second)
    assert sorted(set(seen)) == [(number, offset) for number in range(4) for offset in range(100)]
    assert len(seen) == 400, "no record was read twice, because positions are committed before partitions move"
