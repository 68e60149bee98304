"""Seeks for which a broker has to look up the offset: the beginning, the end, and a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

import kcore
from kcore import errors
from kcore.node.types import OffsetAndMetadata, TopicPartition

TIMES = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(4)]


def create(node: kcore.Node, name: str, partitions: int = 2) -> kcore.Topic:
    """Creates a topic with four records in each partition, an hour apart."""
    topic = node.topics.create(name, partitions)
    for number in range(partitions):
        for index, time in enumerate(TIMES):
            topic.append(f"{number}-{index}", partition=number, timestamp=time)
    return topic


def poll(consumer: kcore.Consumer, count: int) -> list[str]:
    """Returns the values of the next records, sorted."""
    values: list[str] = []
    while len(values) < count:
        values += [(record.value or b"").decode() for record in consumer.poll(10.0)]
    return sorted(values)


ALL = ["0-0", "0-1", "0-2", "0-3", "1-0", "1-1", "1-2", "1-3"]


def test_a_consumer_seeks_to_the_beginning(node: kcore.Node, name: str) -> None:
    create(node, name)
    with node.group(name).consume(name, auto_commit=None) as consumer:
        assert poll(consumer, 8) == ALL
        consumer.seek_to_beginning()
        assert poll(consumer, 8) == ALL
        consumer.seek_to_beginning((name, 1))
        assert poll(consumer, 4) == ALL[4:]
        assert consumer.poll(0.0) == []
        with pytest.raises(KeyError, match="is not assigned to this consumer"):
            consumer.seek_to_beginning((name, 1), (name, 7))
        with pytest.raises(KeyError, match="is not assigned to this consumer"):
            consumer.seek((name, 7), TIMES[0])


def test_a_consumer_skips_to_the_end(node: kcore.Node, name: str) -> None:
    topic = create(node, name)
    with node.group(name).consume(name, auto_commit=None, max_records=1) as consumer:
        poll(consumer, 1)
        consumer.seek_to_end((name, 0), (name, 1))
        while any(consumer.position(each) is None for each in consumer.assignment):
            consumer.poll(0.1)
        topic.append("new", partition=1)
        assert poll(consumer, 1) == ["new"]
        consumer.commit()
    ends = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 5}
    assert {key: value.offset for key, value in node.group(name).committed().items()} == ends


def test_a_consumer_seeks_to_a_time(node: kcore.Node, name: str) -> None:
    create(node, name)
    with node.group(name).consume(name, auto_commit=None) as consumer:
        assert poll(consumer, 8) == ALL
        consumer.seek((name, 0), datetime(2026, 1, 1, 1, 30, tzinfo=UTC))
        assert poll(consumer, 2) == ["0-2", "0-3"]
        consumer.seek((name, 0), TIMES[3])
        consumer.seek((name, 1), datetime(1960, 1, 1, tzinfo=UTC))
        assert poll(consumer, 5) == ["0-3", *ALL[4:]]


def test_a_time_after_the_last_record_is_the_end(node: kcore.Node, name: str) -> None:
    topic = create(node, name, partitions=1)
    with node.group(name).consume(name, auto_commit=None) as consumer:
        poll(consumer, 4)
        consumer.seek((name, 0), datetime(2100, 1, 1, tzinfo=UTC))
        while consumer.position((name, 0)) is None:
            consumer.poll(0.1)
        topic.append("new")
        assert poll(consumer, 1) == ["new"]


SEEKS: dict[str, tuple[Callable[[kcore.Consumer, TopicPartition], object], int]] = {
    "beginning": (lambda consumer, key: consumer.seek_to_beginning(key), 0),
    "end": (lambda consumer, key: consumer.seek_to_end(key), 4),
    "time": (lambda consumer, key: consumer.seek(key, TIMES[1]), 1),
}


@pytest.mark.parametrize("seek", SEEKS)
def test_a_commit_includes_a_position_that_was_looked_up(node: kcore.Node, name: str, seek: str) -> None:
    create(node, name, partitions=1)
    key = TopicPartition(name, 0)
    go, expected = SEEKS[seek]
    with node.group(name).consume(name, auto_commit=None, max_records=2) as consumer:
        poll(consumer, 2)
        consumer.pause(key)
        assert consumer.paused() == {key}
        go(consumer, key)
        while consumer.position(key) is None:
            consumer.poll(0.1)
        assert consumer.positions() == {key: OffsetAndMetadata(expected)}
        consumer.resume(key)
        assert consumer.paused() == set()


def test_the_first_assignment_may_begin_at_the_end(node: kcore.Node, name: str) -> None:
    """A listener seeks to the end in its first assignment. The consumer begins there: it uses neither the committed
    offset nor the reset policy "none", which would raise an error.
    """
    topic = create(node, name, partitions=1)
    node.group(name).commit({(name, 0): 1})
    consumer: kcore.Consumer

    def assigned(event: kcore.Assigned) -> None:
        if event.partitions:
            consumer.seek_to_end(*event.partitions)

    consumer = node.group(name).consume(name, auto_commit=None, reset="none", on_assigned=assigned)
    with consumer:
        while not consumer.assignment or consumer.position((name, 0)) is None:
            assert consumer.poll(0.1) == []
        topic.append("new")
        assert poll(consumer, 1) == ["new"]


def test_a_partition_without_an_offset_does_not_keep_another_one_from_a_seek(node: kcore.Node, name: str) -> None:
    create(node, name)
    consumer: kcore.Consumer

    def assigned(event: kcore.Assigned) -> None:
        if event.partitions:
            consumer.seek_to_beginning((name, 0))

    consumer = node.group(name).consume(name, auto_commit=None, reset="none", on_assigned=assigned)
    with consumer:
        with pytest.raises(errors.OffsetOutOfRangeError, match="no committed offset, and reset is 'none'") as refused:
            poll(consumer, 100)
        assert refused.value.partitions == (TopicPartition(name, 1),)
        consumer.seek((name, 1), 2)
        consumer.seek_to_beginning((name, 0))
        assert poll(consumer, 6) == [*ALL[:4], "1-2", "1-3"]


async def test_seeks_on_an_event_loop(anode: kcore.AsyncNode, name: str) -> None:
    topic = await anode.topics.create(name, 1)
    for index, time in enumerate(TIMES):
        await topic.append(str(index), timestamp=time)
    async with anode.group(name).consume(name, auto_commit=None) as consumer:

        async def poll(count: int) -> list[bytes | None]:
            values: list[bytes | None] = []
            while len(values) < count:
                values += [record.value for record in await consumer.poll(10.0)]
            return values

        assert await poll(4) == [b"0", b"1", b"2", b"3"]
        consumer.seek_to_beginning()
        assert await poll(4) == [b"0", b"1", b"2", b"3"]
        consumer.seek((name, 0), TIMES[2])
        assert await poll(2) == [b"2", b"3"]
        consumer.seek_to_end()
        while consumer.position((name, 0)) is None:
            await consumer.poll(0.1)
        await topic.append("4")
        assert await poll(1) == [b"4"]
