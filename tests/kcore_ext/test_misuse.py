"""Compiled code refuses invalid arguments; it neither reads nor writes outside of its buffers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kcore.group.shard import GroupShard
from kcore_ext.batch import BatchBuilder, CorruptBatchError, iter_records
from kcore_ext.broker.compaction import Sweep, merged
from kcore_ext.broker.compaction_map import OffsetMap
from kcore_ext.group.consumer_records import ConsumerRecords, target_assignment
from kcore_ext.group.offset_block import OffsetBlock
from kcore_ext.group.offsets import OffsetDecoder

COUNT_AT = 57


def _batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(1 << 16, base_timestamp_ms=5)
    for _ in range(count):
        assert builder.append(5, b"k", b"v")
    return builder.build(base_offset)


def test_a_codec_that_returns_no_bytes_is_refused() -> None:
    def pack(codec: int, data: bytes) -> bytes:
        return bytes(10) if len(data) > 400 else None  # type: ignore[return-value]

    builder = BatchBuilder(1 << 16, base_timestamp_ms=5, compression=1, compress=pack)
    assert builder.append(5, b"k", b"v" * 10)
    with pytest.raises(TypeError, match="bytes"):
        builder.build()
    assert builder.append(5, b"k", b"v" * 500)
    data = builder.build()
    nothing: Callable[..., Any] = lambda *_: None  # noqa: E731
    with pytest.raises(TypeError, match="bytes"):
        iter_records(data, decompress=nothing)


def test_batches_with_negative_counts_are_not_merged() -> None:
    """The size of the result is a sum over the counts, which a negative count would make too small."""
    wrong = bytearray(_batch(3, 1))
    struct.pack_into(">i", wrong, COUNT_AT, -10)
    with pytest.raises(ValueError, match="without producer and attributes"):
        merged([_batch(0, 3), bytes(wrong)])


def test_batches_with_impossible_counts_are_not_merged() -> None:
    """Memory is allocated for the number of records that a batch can contain, not for the claimed number."""
    wrong = bytearray(_batch(3, 1))
    struct.pack_into(">i", wrong, COUNT_AT, 2**31 - 1)
    with pytest.raises(ValueError, match="are too few for 2147483647 records"):
        merged([_batch(0, 3), bytes(wrong)])


def test_invalid_batches_are_not_merged() -> None:
    with pytest.raises(TypeError):
        merged([None])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        merged([_batch(0, 1), bytearray(_batch(1, 1))])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="do not fit in one batch"):
        merged([_batch(0, 1), _batch(1 << 40, 1)])
    with pytest.raises(ValueError, match="do not fit in one batch"):
        merged([_batch(10, 1), _batch(3, 1)])


def test_a_pass_refuses_bytes_shorter_than_a_header() -> None:
    sweep = Sweep(OffsetMap(1 << 20), {}, 1000, 1000, 100_000)
    with pytest.raises(ValueError, match="60 bytes are too few"):
        sweep.add(bytes(60), False, True)


def test_a_list_of_records_may_change_after_it_was_encoded() -> None:
    made = [target_assignment("group", "member", {bytes(16): (1, 2)})]
    block = ConsumerRecords(made)
    made += made * 1000
    batch = BatchBuilder(1 << 20, base_timestamp_ms=5)
    assert block.append_to(batch, 9)
    assert (batch.count, len(block)) == (1, 1)


def test_partitions_may_be_more_than_their_length_claims() -> None:
    class Short(list[int]):
        def __len__(self) -> int:
            return 1

    target: dict[bytes, Any] = {bytes(16): Short(range(5000))}
    block = ConsumerRecords([target_assignment("group", "member", target)])
    assert block.size_bytes > 4 * 5000


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 2), (2, 3), (1, 0)])
def test_offsets_are_replayed_within_the_run_alone(start: int, stop: int) -> None:
    run = [(0, _batch(0, 1))]
    with pytest.raises(IndexError, match=f"batches {start} to {stop} of 1"):
        OffsetDecoder().replay(run, start, stop, 0, lambda *_: {}, lambda *_: None)


def test_a_batch_with_a_damaged_count_is_refused() -> None:
    wrong = bytearray(_batch(0, 1))
    struct.pack_into(">i", wrong, COUNT_AT, -1)
    with pytest.raises(CorruptBatchError):
        OffsetMap(1 << 20).add(bytes(wrong), None)  # type: ignore[arg-type]


def test_a_group_shard_without_tables_replays_no_offsets() -> None:
    class Record(NamedTuple):
        key: Any
        value: Any
        version: int

    block = OffsetBlock("g", 0, -1, 10, Record)
    with pytest.raises(TypeError, match="the group shard has no tables of offsets"):
        GroupShard.__new__(GroupShard).replay_block(0, -1, block)
