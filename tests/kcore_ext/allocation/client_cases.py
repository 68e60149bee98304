"""The client's batches and fetched records while allocations fail."""

from __future__ import annotations

import time
from typing import Any

from kcore.node.requests import record_size
from kcore.node.types import Record, to_bytes
from kcore.protocol.compression import compress, decompress
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import BatchBuilder, iter_records
from kcore_ext.client.accumulator import Accumulator, DeliveryBase
from kcore_ext.client.fetched import FetchedRecords, RecordCursor
from tests.kcore_ext.allocation.sweep import Attempt


class _Delivery(DeliveryBase):
    __slots__ = ()


class _Event:
    def set(self) -> None:
        """Does nothing."""


def _batches() -> bytes:
    data = b""
    for base in range(0, 15, 3):
        builder = BatchBuilder(1 << 16, base_timestamp_ms=1_000, transactional=base == 6, producer_id=7)
        for number in range(3):
            headers = [("h", b"1"), ("none", None)] if number == 1 else ()
            assert builder.append(1_000 + number, b"k", b"v" * 100, headers)
        data += builder.build(base)
    return data


def _expected() -> list[Record]:
    return [
        Record("t", 0, offset, 1_000 + offset % 3, b"k", b"v" * 100, (("h", b"1"), ("none", None)) * (offset % 3 == 1))
        for offset in range(15)
        if offset // 3 != 2
    ]


def add_and_take_fetched_records() -> Attempt:
    """Adds the batches of a response and takes the records in two calls of `take`. A failed call must not lose a
    record.
    """
    data = _batches()
    fetched = FetchedRecords(Record, "t", 0)
    taken: list[list[Record]] = [[], []]

    def action() -> None:
        fetched.add(data, 0, [(6, 7)], decompress)
        taken[0] = fetched.take(5)
        taken[1] = fetched.take(50)

    def check(succeeded: bool) -> None:
        if succeeded:
            assert taken[0] + taken[1] == _expected()
        elif fetched.following >= 15:
            assert taken[0] + taken[1] + fetched.take(50) == _expected()
        else:
            assert _expected()[: len(fetched)] == fetched.take(50)

    return Attempt(action, check)


def finish_and_drop_records_of_a_loop() -> Attempt:
    """Iterates over records with a `RecordCursor`. A failed call must neither skip a record nor forget that a record is
    finished.
    """
    records = _expected()
    cursor = RecordCursor()
    ends: dict[Any, int] = {}
    seen: list[Record] = []

    def action() -> None:
        cursor.load(list(records))
        seen.clear()
        ends.clear()
        seen.extend(next(cursor) for _ in range(4))
        ends.update(cursor.finished(current=False))
        cursor.drop({TopicPartition("other", 0)})
        seen.extend(cursor.rest(2))

    def check(succeeded: bool) -> None:
        if succeeded:
            assert seen == records[:6]
            assert ends == {("t", 0): 3}
            assert list(cursor) == records[6:]
        else:
            action()
            assert (seen, ends) == (records[:6], {("t", 0): 3})

    return Attempt(action, check)


def append_records() -> Attempt:
    """Appends to several batches. Each record is added completely or not at all."""
    accumulator = Accumulator(
        _Delivery,
        TopicPartition,
        _Event,
        batch_bytes=400,
        buffer_bytes=1 << 20,
        burst_bytes=1 << 20,
        compression=0,
        compress=compress,
        to_bytes=to_bytes,
        measure=record_size,
        on_batch=lambda: None,
        monotonic=time.monotonic,
    )
    accumulator.add_topic("t", 2)
    stored: list[bytes] = []

    def action() -> None:
        for number in range(8):
            value = b"%d" % number + b"v" * 120
            headers = [("h", b"1")] if number % 3 == 0 else ()
            accumulator.append("t", value, b"key", headers, 1, 5)
            stored.append(value)

    def check(succeeded: bool) -> None:
        queue = accumulator.queues.get(TopicPartition("t", 1))
        batches = list(queue.batches) if queue is not None else []
        values = [record.value for batch in batches for record in iter_records(batch.build(-1, -1, -1))]
        # `on_batch` or the list may fail after the record was added.
        assert values[: len(stored)] == stored
        assert len(values) <= len(stored) + 1
        assert accumulator.size == sum(batch.size for batch in batches)
        assert all(batch.count for batch in batches)
        if succeeded:
            assert len(values) == 8

    return Attempt(action, check)
