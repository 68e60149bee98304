"""The acquired records of a ShareFetchResponse, assigned to their record batches. The client decodes one batch at a
time.
"""

from __future__ import annotations

from typing import Any

import pytest

import kcore
from kcore import errors
from kcore.client.share_consumer import Acquired
from kcore.node import requests
from kcore.node.requests import AcquiredBatch, acquired_batches, read_acquired
from kcore.node.types import TopicPartition
from kcore.protocol.messages.share_fetch import PartitionData
from kcore_ext.batch import BatchBuilder, stamp

PARTITION = TopicPartition("t", 3)


def batch(base_offset: int, *values: bytes) -> bytes:
    """Returns a batch of records with these values, beginning at an offset."""
    builder = BatchBuilder(1 << 20, base_timestamp_ms=1)
    for value in values:
        assert builder.append(1, None, value)
    built = bytearray(builder.build())
    stamp(built, base_offset, 0)
    return bytes(built)


def read(batches: list[AcquiredBatch]) -> list[list[tuple[int, bytes | None]]]:
    return [[(record.offset, record.value) for record in read_acquired(each)] for each in batches]


def test_each_batch_gets_its_acquired_offsets() -> None:
    """Batches without acquired offsets are left out. Acquired offsets without a batch come last, without records."""
    first, second, third = batch(0, b"a", b"b", b"c"), batch(3, b"d"), batch(10, b"e", b"f")
    row = PartitionData(partition_index=3, records=first + second + third)
    acquired = [Acquired(1, 1, 1), Acquired(2, 2, 4), Acquired(7, 8, 2), Acquired(11, 12, 5)]
    batches = acquired_batches(PARTITION, row, acquired)
    assert batches == [
        AcquiredBatch(PARTITION, first, [Acquired(1, 1, 1), Acquired(2, 2, 4)]),
        AcquiredBatch(PARTITION, third, [Acquired(11, 11, 5)]),
        AcquiredBatch(PARTITION, b"", [Acquired(7, 8, 2), Acquired(12, 12, 5)]),
    ]
    assert [batches[0].deliveries(offset) for offset in range(4)] == [None, 1, 4, None]
    assert [each.gaps([2]) for each in batches] == [[(1, 1)], [(11, 11)], [(7, 8), (12, 12)]]
    assert read(acquired_batches(PARTITION, row, acquired)) == [[(1, b"b"), (2, b"c")], [(11, b"f")], []]
    assert acquired_batches(PARTITION, PartitionData(partition_index=3, records=None), [Acquired(5, 5, 1)]) == [
        AcquiredBatch(PARTITION, b"", [Acquired(5, 5, 1)])
    ]


def test_a_range_of_any_length_takes_no_memory_for_its_offsets() -> None:
    """With a faulty broker or a compacted log, an acquired range may have many offsets but few records. The offsets
    without records are gaps.
    """
    one, two = batch(5, b"a"), batch(9, b"b", b"c")
    row = PartitionData(partition_index=3, records=one + two)
    last = (1 << 63) - 1
    batches = acquired_batches(PARTITION, row, [Acquired(0, last, 1)])
    assert batches == [
        AcquiredBatch(PARTITION, one, [Acquired(5, 5, 1)]),
        AcquiredBatch(PARTITION, two, [Acquired(9, 10, 1)]),
        AcquiredBatch(PARTITION, b"", [Acquired(0, 4, 1), Acquired(6, 8, 1), Acquired(11, last, 1)]),
    ]
    assert batches[1].gaps([9]) == [(10, 10)]
    assert batches[2].gaps([]) == [(0, 4), (6, 8), (11, last)]
    assert AcquiredBatch(PARTITION, one, [Acquired(0, last, 1)]).gaps([5, 3, 5]) == [(0, 2), (4, 4), (6, last)]


def test_offsets_of_overlapping_batches_belong_to_the_first() -> None:
    one, two = batch(0, b"a", b"b"), batch(1, b"x", b"y")
    row = PartitionData(partition_index=3, records=one + two)
    assert read(acquired_batches(PARTITION, row, [Acquired(0, 2, 1)])) == [[(0, b"a"), (1, b"b")], [(2, b"y")]]


def test_a_batch_that_cannot_be_decoded_is_a_corrupt_message() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    with pytest.raises(errors.CorruptMessageError, match="t-3"):
        read_acquired(AcquiredBatch(PARTITION, bytes(data), [Acquired(0, 0, 1)]))


def test_only_the_batch_of_the_next_job_is_decoded(
    node: kcore.Node, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fetches four jobs in four batches. It decodes each batch only when the batch's job is next, because a
    batch of one megabyte can decompress to gigabytes.
    """
    decoded: list[bytes] = []

    def recorded(each: AcquiredBatch) -> Any:
        decoded.append(each.data)
        return read_acquired(each)

    monkeypatch.setattr("kcore.node._sync.queue.read_acquired", recorded)
    node.topics.create(name, 1)
    node.group(name).set_config({"share.auto.offset.reset": "earliest"})
    for value in "abcd":
        node.topics[name].append(value, partition=0)
    steps = []
    with node.queue(name, group=name, max_jobs=4) as queue:
        for _ in range(4):
            job = queue.get(timeout=30)
            assert job is not None
            steps.append((job.value, len(decoded), len(queue._fetched)))
    assert steps == [(b"a", 1, 3), (b"b", 2, 2), (b"c", 3, 1), (b"d", 4, 0)]


def test_jobs_of_a_batch_that_cannot_be_decoded_are_left_to_their_locks(
    node: kcore.Node, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create(name, 1)
    node.group(name).set_config({"share.auto.offset.reset": "earliest"})
    for value in ("a", "b"):
        node.topics[name].append(value, partition=0)
    monkeypatch.setattr(requests, "validate_crc", refuse_a)
    with node.queue(name, group=name, max_jobs=2) as queue:
        job = queue.get(timeout=30)
        assert job is not None
        assert (job.value, job.offset) == (b"b", 1)


def refuse_a(data: bytes) -> None:
    """Raises CorruptBatchError for the batch at offset 0."""
    if data[:8] == bytes(8):
        raise requests.CorruptBatchError(0, "checksum", "crc")
