"""Batches that the broker refuses as too large: the producer sends their records in smaller batches."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kcore
from kcore import errors
from kcore.client.delivery import ENDED, assign_sequence, next_batch, note_split, note_unsent
from kcore.node.interceptors import ProducerInterceptor
from kcore.node.requests import record_size
from kcore.node.types import RecordMetadata, TopicPartition, to_bytes
from kcore.protocol.compression import compress, decompress
from kcore.testing.server import ServerProcess
from kcore_ext.batch.header import parse_header
from kcore_ext.batch.records import iter_records
from kcore_ext.client.accumulator import Accumulator, DeliveryBase, PartitionQueue, ProducerBatch

TOPIC = "t"
LIMIT = 1_000
HEADER_BYTES = 61

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(st.integers(0, 1 << 42), INT64)
FIELDS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, FIELDS, FIELDS, HEADERS), min_size=2, max_size=40)


def accumulator_of(batch_bytes: int = 1 << 20, compression: int = 0, event: Any = threading.Event) -> Accumulator:
    """Returns an accumulator with a topic of one partition."""
    accumulator = Accumulator(
        DeliveryBase,
        TopicPartition,
        event,
        batch_bytes=batch_bytes,
        buffer_bytes=1 << 30,
        burst_bytes=1 << 30,
        compression=compression,
        compress=compress,
        to_bytes=to_bytes,
        measure=record_size,
        on_batch=lambda: None,
        monotonic=lambda: 3.5,
    )
    accumulator.add_topic(TOPIC, 1)
    return accumulator


def queue_of(accumulator: Accumulator) -> PartitionQueue:
    queue: PartitionQueue = accumulator.queues[TopicPartition(TOPIC, 0)]
    return queue


@given(records=RECORDS, compression=st.sampled_from([0, 1]))
def test_parts_have_the_records_of_the_batch_in_order(records: list[Any], compression: int) -> None:
    """Splitting a batch distributes its records, their deliveries and their bytes over smaller batches, in order. Each
    of these has at most half of the bytes, or a single record.
    """
    accumulator = accumulator_of(compression=compression)
    deliveries = [accumulator.append(TOPIC, value, key, headers, 0, at_ms) for at_ms, key, value, headers in records]
    queue = queue_of(accumulator)
    (batch,) = queue.batches
    parts = accumulator.split(queue, batch)
    assert tuple(queue.batches) == parts
    assert len(parts) > 1
    assert batch.done.is_set()
    stored = [list(iter_records(part.build(7, 0, 0), decompress=decompress)) for part in parts]
    found = [(row.timestamp_ms, row.key, row.value, list(row.headers)) for rows in stored for row in rows]
    assert found == records
    half = HEADER_BYTES + (batch.size - HEADER_BYTES) // 2
    for part, rows in zip(parts, stored, strict=True):
        assert part.count == len(rows)
        assert part.size <= half or part.count == 1
        assert (part.created_s, part.attempts, part.in_flight, part.sequence) == (3.5, 0, False, None)
        assert not part.done.is_set()
    assert accumulator.size == sum(part.size for part in parts)
    records = [(part, index) for part in parts for index in range(part.count)]
    for part in parts:
        part.base_offset = 100 * parts.index(part)
    expected = [(part, part.base_offset + index) for part, index in records]
    assert [(delivery.batch, delivery.offset) for delivery in deliveries] == expected


def test_repeated_splits_end_with_single_records() -> None:
    accumulator = accumulator_of()
    deliveries = [accumulator.append(TOPIC, bytes([number]) * 50, None, (), 0, 0) for number in range(33)]
    queue = queue_of(accumulator)
    while large := next((batch for batch in queue.batches if batch.count > 1), None):
        accumulator.split(queue, large)
    assert [delivery.batch for delivery in deliveries] == list(queue.batches)
    with pytest.raises(ValueError, match="can be split"):
        accumulator.split(queue, queue.batches[0])
    for batch in list(queue.batches):
        accumulator.remove(queue, batch)
    assert accumulator.size == 0


def sent_batches(accumulator: Accumulator, batches: int) -> list[ProducerBatch]:
    """Fills batches of four records and sends all of them. The sequence begins at 5, as after a stored batch."""
    for _ in range(4 * batches):
        assert accumulator.append(TOPIC, b"v" * 20, None, (), 0, 0) is not None
    queue = queue_of(accumulator)
    queue.sequence = (7, 0, 5)
    sent = []
    while batch := next_batch(queue, (7, 0), 5):
        assign_sequence(queue, batch, (7, 0))
        batch.in_flight = True
        sent.append(batch)
    return sent


def test_parts_share_the_sequence_of_the_batch() -> None:
    accumulator = accumulator_of(HEADER_BYTES + 4 * 27)
    first, second = sent_batches(accumulator, 2)
    queue = queue_of(accumulator)
    parts = accumulator.split(queue, first)
    assert not note_split(queue, first, parts)
    assert [(part.sequence, part.count) for part in queue.batches] == [
        ((7, 0, 5), 2),
        ((7, 0, 7), 2),
        ((7, 0, 9), 4),
    ]
    assert next_batch(queue, (7, 0), 5) is parts[0]
    parts[0].in_flight = True
    assert next_batch(queue, (7, 0), 5) is None, "the second part waits for the result of the first one"
    assert not note_unsent(queue, second), "the broker refuses it until it has stored all parts"
    accumulator.remove(queue, parts[0])
    assert next_batch(queue, (7, 0), 5) is parts[1]


def test_parts_of_an_ended_sequence_begin_the_next_one() -> None:
    accumulator = accumulator_of(HEADER_BYTES + 4 * 27)
    (first,) = sent_batches(accumulator, 1)
    queue = queue_of(accumulator)
    queue.chain = ENDED
    parts = accumulator.split(queue, first)
    assert note_split(queue, first, parts), "no batch is left in the old sequence"
    assert [part.sequence for part in parts] == [None, None]


@pytest.mark.parametrize("failing", range(1, 3))
def test_a_split_without_memory_changes_nothing(failing: int) -> None:
    calls = 0

    def event() -> threading.Event:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise MemoryError
        return threading.Event()

    accumulator = accumulator_of(event=event)
    sizes = (10, 400, 10, 400)
    deliveries = [accumulator.append(TOPIC, b"v" * size, None, (), 0, 0) for size in sizes]
    queue = queue_of(accumulator)
    (batch,) = queue.batches
    size = accumulator.size
    with pytest.raises(MemoryError):
        accumulator.split(queue, batch)
    assert (list(queue.batches), accumulator.size, batch.done.is_set()) == ([batch], size, False)
    assert all(delivery.batch is batch for delivery in deliveries)
    assert len(list(iter_records(batch.build(7, 0, 0)))) == len(sizes)


class WithoutMemory:
    """An accumulator that cannot split a batch for lack of memory."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accumulator, name)

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Fails with a MemoryError."""
        raise MemoryError


@pytest.mark.filterwarnings("ignore::kcore.errors.ImplausibleTimeWarning")
def test_a_batch_that_cannot_be_split_fails_and_the_producer_continues(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": LIMIT})
    with node.producer(linger=60.0) as producer:  # all records are in one batch, however slow the appends are
        producer._sender._accumulator = WithoutMemory(producer._accumulator)  # type: ignore[assignment]
        deliveries = [producer.append(name, "v" * 300) for _ in range(10)]
        with pytest.raises(MemoryError):
            producer.flush()
        for delivery in deliveries:
            with pytest.raises(MemoryError):
                delivery.result()
        good = producer.append(name, "good")
        producer.flush()
        assert good.result().offset == 0
    assert values(topic, 1) == [b"good"]


class Results(ProducerInterceptor):
    """Stores the results of records."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.errors: list[str] = []

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is None:
            self.offsets.append(metadata.offset)
        else:
            self.errors.append(type(error).__name__)


def values(topic: Any, count: int) -> list[bytes]:
    """Waits until partition 0 has the end offset `count`, and returns the values of its visible records.

    The wait is needed because Apache Kafka writes transaction markers after it has responded.
    """
    until_s = time.monotonic() + 60
    while topic.end_offsets()[0] < count:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    found: list[bytes] = []
    offset = 0
    while rows := topic.read(0, offset):
        found += [row.value for row in rows]
        offset = rows[-1].offset + 1
    return found


@pytest.mark.parametrize("acks", ["all", 1])
def test_a_producer_splits_batches_that_the_broker_refuses(node: kcore.Node, name: str, acks: Any) -> None:
    """The producer sends batches without waiting for responses. Only the single record that is too large fails."""
    topic = node.topics.create(name, 1, config={"max.message.bytes": LIMIT})
    results = Results()
    producer = node.producer(batch_bytes=16_000, linger=0.01, acks=acks, interceptors=[results])
    deliveries = [producer.append(name, f"{number:0200}" if number != 333 else "x" * 5_000) for number in range(500)]
    with pytest.raises(errors.MessageTooLargeError):
        producer.flush()
    producer.flush()
    producer.close()
    with pytest.raises(errors.MessageTooLargeError):
        deliveries.pop(333).result()
    assert [delivery.result().offset for delivery in deliveries] == list(range(499))
    assert values(topic, 499) == [f"{number:0200}".encode() for number in range(500) if number != 333]
    assert (results.offsets, results.errors) == (list(range(499)), ["MessageTooLargeError"])


async def test_a_result_is_awaited_across_splits(anode: kcore.AsyncNode, name: str) -> None:
    """A caller waits for the result of a record in a batch that the broker refuses. The wait continues until the
    smaller batch with this record is stored.
    """
    await anode.topics.create(name, 1, config={"max.message.bytes": LIMIT})
    async with anode.producer(batch_bytes=16_000, linger=0.01, compression="gzip") as producer:
        deliveries = [await producer.append(name, f"{number}" + "é" * 90) for number in range(200)]
        metadata = await asyncio.gather(*(delivery.result() for delivery in deliveries))
    assert [each.offset for each in metadata] == list(range(200))
    assert all(delivery.done for delivery in deliveries)


def test_a_transaction_splits_batches_that_the_broker_refuses(node: kcore.Node, name: str) -> None:
    topic = node.topics.create(name, 1, config={"max.message.bytes": LIMIT})
    results = Results()
    with node.transaction(name, interceptors=[results]) as txn:
        for number in range(50):
            txn.append(name, f"{number:0200}")
    assert values(topic, 51) == [f"{number:0200}".encode() for number in range(50)]
    assert (results.offsets, results.errors) == (list(range(50)), [])

    def fail() -> None:
        with node.transaction(name, interceptors=[results]) as txn:
            txn.append(name, "good")
            txn.append(name, "x" * 5_000)
            txn.append(name, "after it")

    with pytest.raises(errors.MessageTooLargeError):
        fail()
    assert results.errors == ["MessageTooLargeError"] * 2
    with node.transaction(name) as txn:
        txn.append(name, "next")
    assert values(topic, 55)[50:] == [b"next"]


def test_a_server_with_a_small_limit_gets_every_record() -> None:
    """`message.max.bytes` of the broker is smaller than a batch of the producer. All records arrive, and the records of
    each key keep their order.
    """
    with ServerProcess(settings={"message.max.bytes": "2000"}) as server, kcore.connect(server.bootstrap) as node:
        topic = node.topics.create(TOPIC, 3)
        with node.producer(batch_bytes=100_000, linger=0.01) as producer:
            for number in range(1_000):
                producer.append(TOPIC, f"{number:0100}", key=str(number % 10))
        found: dict[bytes, list[int]] = {}
        for partition, end in topic.end_offsets().items():
            offset = 0
            while offset < end:
                rows = topic.read(partition, offset)
                for row in rows:
                    found.setdefault(row.key or b"", []).append(int(row.value or b""))
                offset = rows[-1].offset + 1
        assert found == {str(key).encode(): list(range(key, 1_000, 10)) for key in range(10)}


def test_header_of_a_part_is_that_of_an_idempotent_batch() -> None:
    accumulator = accumulator_of()
    for number in range(4):
        accumulator.append(TOPIC, b"v" * 30, None, (), 0, 1_000 - number)
    queue = queue_of(accumulator)
    parts = accumulator.split(queue, queue.batches[0])
    headers = [parse_header(part.build(7, 1, 2)) for part in parts]
    shown = [(each.producer_id, each.producer_epoch, each.base_sequence, each.base_timestamp_ms) for each in headers]
    assert shown == [(7, 1, 2, 1_000), (7, 1, 2, 998)]
    assert [each.max_timestamp_ms for each in headers] == [1_000, 998]
