"""The batches of a producer, compared with a model that stores rows. Covers invalid arguments and threads, too."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.node.requests import build_batch, record_size
from kcore.node.types import to_bytes
from kcore.protocol.compression import CompressionType, compress, decompress
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import iter_records, parse_header
from kcore_ext.client.accumulator import Accumulator, DeliveryBase, PartitionQueue, ProducerBatch
from kcore_ext.client.partitioner import partition_of

FIELDS = st.none() | st.binary(max_size=30) | st.text(max_size=10)
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=2)
APPENDS = st.tuples(FIELDS, FIELDS, HEADERS, st.none() | st.integers(0, 2), st.integers(0, 1 << 40))


class Delivery(DeliveryBase):
    """A delivery that does nothing."""

    __slots__ = ()


def accumulator(**changes: Any) -> Accumulator:
    """Returns an accumulator that has the topic `t` with three partitions."""
    options: dict[str, Any] = {
        "batch_bytes": 200,
        "buffer_bytes": 1 << 30,
        "burst_bytes": 1 << 30,
        "compression": 0,
        "compress": compress,
        "to_bytes": to_bytes,
        "measure": record_size,
        "on_batch": lambda: None,
        "monotonic": time.monotonic,
    }
    made = Accumulator(Delivery, TopicPartition, threading.Event, **(options | changes))
    made.add_topic("t", 3)
    return made


def encoded(field: bytes | str | None) -> bytes | None:
    """Converts a key or a value to bytes."""
    return field.encode() if isinstance(field, str) else field


@given(st.lists(APPENDS, max_size=30), st.sampled_from([CompressionType.NONE, CompressionType.LZ4]))
def test_batches_equal_those_of_a_model(
    appends: list[tuple[Any, Any, list[tuple[str, bytes | None]], int | None, int]], codec: CompressionType
) -> None:
    made = accumulator(compression=int(codec))
    model: dict[int, list[Any]] = {}
    deliveries = []
    for value, key, headers, partition, timestamp_ms in appends:
        delivery = made.append("t", value, key, headers, partition, timestamp_ms)
        number = delivery.partition.partition
        if partition is not None:
            assert number == partition
        elif key is not None:
            assert number == partition_of(encoded(key) or b"", 3)
        model.setdefault(number, []).append((timestamp_ms, encoded(key), encoded(value), tuple(headers)))
        deliveries.append((delivery, number, len(model[number]) - 1))
    assert {queue_key: len(queue.batches) > 0 for queue_key, queue in made.queues.items()} == {
        TopicPartition("t", number): True for number in model
    }
    assert made.size == sum(batch.size for queue in made.queues.values() for batch in queue.batches)
    for number, rows in model.items():
        queue, first = made.queues[TopicPartition("t", number)], 0
        for batch in queue.batches:
            data = batch.build(5, 2, first)
            part = rows[first : first + batch.count]
            assert data == build_batch(part, codec, producer_id=5, producer_epoch=2, base_sequence=first)
            assert [
                (one.timestamp_ms, one.key, one.value, one.headers) for one in iter_records(data, decompress=decompress)
            ] == part
            assert batch.count == 1 or batch.size <= 200, "only a single record may exceed the limit"
            batch.base_offset = 1_000 + first
            first += batch.count
        assert first == len(rows)
    for delivery, number, index in deliveries:
        assert (delivery.offset, delivery.timestamp_ms) == (1_000 + index, model[number][index][0])


def test_records_without_a_key_share_a_partition_until_a_batch_is_full() -> None:
    made = accumulator(batch_bytes=1_000)
    partitions = [made.append("t", b"v" * 50, None, (), None, None).partition for _ in range(120)]
    changes = [number for number in range(1, 120) if partitions[number] != partitions[number - 1]]
    assert 2 <= len(changes) <= 8
    assert all(later - earlier >= 10 for earlier, later in zip([0, *changes], changes, strict=False))


def test_a_batch_that_has_a_sequence_accepts_no_more_records() -> None:
    made = accumulator()
    first = made.append("t", b"1", None, (), 0, None)
    queue = made.queues[TopicPartition("t", 0)]
    queue.assign(first.batch, (1, 0, 0))
    second = made.append("t", b"2", None, (), 0, None)
    assert [batch.count for batch in queue.batches] == [1, 1]
    assert second.batch is queue.batches[1]
    assert (first.batch.number, second.batch.number, queue.assigned) == (0, -1, 1)
    made.remove(queue, second.batch)  # batches may be stored out of order
    assert (list(queue.batches), made.size) == ([first.batch], first.batch.size)
    made.remove(queue, second.batch)
    assert (list(queue.batches), made.size) == ([first.batch], first.batch.size)


def test_a_removed_batch_accepts_no_more_records() -> None:
    made = accumulator()
    late = made.append("t", b"1", None, (), 0, None)
    queue = made.queues[TopicPartition("t", 0)]
    made.remove(queue, late.batch)
    assert made.size == 0
    assert made.append("t", b"2", None, (), 0, None).batch is not late.batch


def test_a_completed_batch_frees_its_records() -> None:
    made = accumulator()
    delivery = made.append("t", b"1", None, (), 0, 77)
    assert parse_header(delivery.batch.build(-1, -1, -1)).record_count == 1
    error = RuntimeError("refused")
    delivery.batch.complete(error)
    assert delivery.batch.done.is_set()
    assert delivery.batch.error is error
    with pytest.raises(ValueError, match="is complete"):
        delivery.batch.build(-1, -1, -1)
    delivery.batch.log_time_ms = 99
    assert (delivery.offset, delivery.timestamp_ms) == (-1, 99)


def test_nothing_is_added_while_the_accumulator_is_not_ready() -> None:
    made = accumulator(buffer_bytes=300, burst_bytes=100, batch_bytes=250)

    def append(topic: str = "t", partition: int = 0, size: int = 60) -> bool:
        return made.append(topic, b"v" * size, None, (), partition, None) is not None

    assert not append("unknown")
    assert not append(partition=3)
    made.add_topic("t", 5)
    made.add_topic("t", 2)  # the number of partitions never falls
    assert append(partition=3)
    assert append(partition=3)
    assert not append(), "after a burst, the sender gets its turn"
    made.rest()
    assert append(partition=3)
    made.rest()
    assert made.full is (made.size >= 300)
    while append():
        made.rest()
    assert made.full
    batches = made.clear()
    assert sum(batch.count for batch in batches) == 3
    assert (made.size, made.queues) == (0, {})
    made.add_topic("t", 1)
    made.closed = True
    assert not append()


def test_wrong_arguments_leave_nothing_behind() -> None:
    made = accumulator()
    wrong: Sequence[tuple[Any, type[Exception]]] = [
        (("t", 5, None, (), None, None), TypeError),
        (("t", b"", [], (), None, None), TypeError),
        (("t", b"", None, [("h", 1)], None, None), TypeError),
        (("t", b"", None, [(b"h", b"")], None, None), TypeError),
        (("t", b"", None, (), "0", None), TypeError),
        (("t", b"", None, (), -1, None), ValueError),
        (("t", b"", None, (), None, "now"), TypeError),
        (("t", b"", None, (), None, 1 << 63), OverflowError),
        (([], b"", None, (), None, None), TypeError),
    ]
    for arguments, error in wrong:
        with pytest.raises(error):
            made.append(*arguments)
    assert (made.size, made.queues) == (0, {})
    with pytest.raises(TypeError):
        Accumulator(dict, TopicPartition, threading.Event)  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError):
        ProducerBatch()
    empty: Any = Delivery()
    assert (empty.offset, empty.timestamp_ms, empty.batch) == (-1, 0, None)


def test_views_are_copied() -> None:
    made, data = accumulator(), bytearray(b"value")
    delivery = made.append("t", data, memoryview(b"key"), [("h", b"1")], 0, 1)
    data[:] = b"other"
    (record,) = iter_records(delivery.batch.build(-1, -1, -1))
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"1"),))


def test_the_timestamp_is_the_present_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    given_ms = accumulator().append("t", b"", None, (), 0, None).timestamp_ms
    assert before_ms <= given_ms <= time.time_ns() // 1_000_000


def test_threads_lose_no_record_and_keep_their_order() -> None:
    """Four threads append records to two partitions with small batches. Each partition has all records, those of each
    thread in the order of its calls.
    """
    made = accumulator(batch_bytes=150)
    threads = [
        threading.Thread(
            target=lambda name=name: [
                made.append(
                    "t", b"%d-%d" % (name, number), None, [("h", b"")] if number % 3 == 0 else (), number % 2, 0
                )
                for number in range(2_000)
            ]
        )
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for partition in (0, 1):
        queue: PartitionQueue = made.queues[TopicPartition("t", partition)]
        values = [record.value for batch in queue.batches for record in iter_records(batch.build(-1, -1, -1))]
        assert len(values) == 4_000
        for name in range(4):
            own = [value for value in values if value is not None and value.startswith(b"%d-" % name)]
            assert own == [b"%d-%d" % (name, number) for number in range(partition, 2_000, 2)]
