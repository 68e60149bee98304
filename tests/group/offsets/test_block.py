"""A block of offsets encodes the records of a whole OffsetCommit at once: same responses, bytes and stored offsets as
with single records.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.group.offsets.store import OffsetStore
from kcore.protocol.messages.offset_commit import OffsetCommitRequestPartition
from kcore.runtime.machine import Record
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offset_block import OffsetBlock, unknown_partitions
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata
from kcore_ext.runtime.shard import EncodedRecords
from tests.reference import offsets as reference

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
uuid = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
names = st.text(max_size=12)
fields = {
    "partition_index": st.integers(0, 9),
    "committed_offset": int64,
    "committed_leader_epoch": int32,
    "committed_metadata": st.none() | st.text(max_size=12) | st.just("x" * 200),
}
# A request's own class, whose slots are read in place, and another class with these attributes.
requested_partitions = st.builds(OffsetCommitRequestPartition, **fields) | st.builds(SimpleNamespace, **fields)
topics = st.tuples(
    names, uuid, st.lists(st.tuples(requested_partitions, st.sampled_from([0, 0, 3])), max_size=5), st.booleans()
)
times = st.tuples(int64, st.just(-1) | int64)


def response_entry(partition_index: int, error_code: int) -> tuple[int, int]:
    return partition_index, error_code


def make(group: str, now_ms: int, expire_ms: int, limit: int, wanted: list[Any]) -> tuple[OffsetBlock[Record], Any]:
    """Returns the block of a request, and its responses."""
    block = OffsetBlock(group, now_ms, expire_ms, limit, Record)
    responses = []
    for topic, topic_id, entries, refused in wanted:
        codes = [code for _, code in entries] if refused else None
        responses.append(block.add(topic, topic_id, [entry for entry, _ in entries], codes, response_entry, {}))
    return block, responses


@settings(deadline=None)
@given(names, times, st.lists(topics, max_size=3))
def test_records_and_responses_equal_the_codecs(group, when, wanted):
    block, responses = make(group, *when, 100, wanted)
    records = []
    for (topic, topic_id, entries, refused), responses_seen in zip(wanted, responses, strict=True):
        codes = [code for _, code in entries] if refused else None
        made, expected = reference.new_offsets(group, topic, topic_id, [e for e, _ in entries], codes, *when, 100)
        assert responses_seen == expected
        records += made
    assert [(r.key.encode_key(), r.value.encode_value(r.version)) for r in block] == records
    assert len(block) == len(records)
    assert [block[place] for place in range(len(block))] == list(block) == block[:]


@settings(deadline=None)
@given(names, times, st.lists(topics, max_size=3), st.integers(0, 1 << 40))
def test_the_bytes_equal_those_of_single_records(group, when, wanted, base_ms):
    block, _ = make(group, *when, 500, wanted)
    expected = BatchBuilder(1 << 20, base_timestamp_ms=base_ms)
    encoded = EncodedRecords(list(block))
    assert encoded.append_to(expected, base_ms + 7)
    batch = BatchBuilder(1 << 20, base_timestamp_ms=base_ms)
    assert block.append_to(batch, base_ms + 7)
    assert block.size_bytes == encoded.size_bytes >= batch.size_bytes - 61
    if len(block):
        assert batch.build() == expected.build()


@settings(deadline=None)
@given(st.lists(st.tuples(names, times, st.lists(topics, max_size=2)), max_size=4))
def test_the_store_equals_that_of_single_records(commits):
    blocks, records = OffsetStore(), OffsetStore()
    offset = 5
    for group, when, wanted in commits:
        block, _ = make(group, *when, 500, wanted)
        for place, record in enumerate(make(group, *when, 500, wanted)[0], offset):
            key = record.key
            assert isinstance(key, CommitKey)
            assert isinstance(record.value, OffsetAndMetadata)
            records.put(-1, key.group, key.topic, key.partition, record.value.place(place))
        reference.put_block(blocks, group, offset, block)
        offset += len(block)
    for group in {group for group, _, _ in commits}:
        assert blocks.topics(group) == records.topics(group)
    assert list(blocks.groups()) == list(records.groups())
    assert blocks.offset_count == records.offset_count


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(0, 20))
def test_metadata_is_measured_in_utf16_code_units(metadata, limit):
    entry = OffsetCommitRequestPartition(committed_metadata=metadata)
    ((_, code),) = OffsetBlock("g", 0, -1, limit, Record).add("t", bytes(16), [entry], None, response_entry, {})
    assert code == (12 if reference.is_too_long(metadata, limit) else 0)


@settings(deadline=None)
@given(st.lists(requested_partitions), st.integers(0, 10))
def test_unknown_partitions_get_an_error_in_request_order(partitions, count):
    codes = [0 if entry.partition_index < count else 3 for entry in partitions]
    assert unknown_partitions(partitions, count, 3) == (codes if any(codes) else None)


def test_responses_without_an_error_are_shared():
    shared: dict[int, Any] = {}
    entries = [OffsetCommitRequestPartition(partition_index=index) for index in (3, 4, 3)]
    made: list[int] = []

    def counted(partition_index: int, error_code: int) -> tuple[int, int]:
        made.append(partition_index)
        return partition_index, error_code

    for _ in range(2):
        responses = OffsetBlock("g", 0, -1, 10, Record).add("t", bytes(16), entries, [0, 5, 0], counted, shared)
        assert responses == [(3, 0), (4, 5), (3, 0)]
    assert shared == {3: (3, 0)}
    assert made == [3, 4, 4], "each error has a new object"


def test_a_full_batch_refuses_further_records():
    block = OffsetBlock("g", 0, -1, 10, Record)
    block.add(
        "t", bytes(16), [OffsetCommitRequestPartition(partition_index=p) for p in range(3)], None, response_entry, {}
    )
    batch = BatchBuilder(61 + block.size_bytes // 2, base_timestamp_ms=0)
    assert not block.append_to(batch, 0)
    assert batch.count == 1


def test_a_block_is_stored_once():
    block, _ = make("g", 0, -1, 10, [("t", bytes(16), [(OffsetCommitRequestPartition(), 0)], False)])
    store = OffsetStore()
    reference.put_block(store, "g", 5, block)
    with pytest.raises(ValueError, match="has a record at 5 already, not at 6"):
        reference.put_block(store, "g", 6, block)


@pytest.mark.parametrize(
    ("group", "entry", "expire_ms", "error"),
    [
        ("g" * 32_768, {}, -1, "32768 bytes"),
        ("g", {"committed_metadata": "m" * 32_768}, 5, "32768 bytes"),
        ("g", {"committed_offset": 1 << 63}, -1, "int"),
        ("g", {"partition_index": 1 << 31}, -1, "int"),
        ("g", {"committed_metadata": b"bytes"}, -1, "str"),
    ],
)
def test_values_too_large_for_a_record_are_refused(group, entry, expire_ms, error):
    block = OffsetBlock(group, 0, expire_ms, 40_000, Record)
    with pytest.raises((ValueError, OverflowError, TypeError), match=error):
        block.add("t", bytes(16), [OffsetCommitRequestPartition(**entry)], None, response_entry, {})
    assert list(block) == []


def test_an_index_without_a_record_is_refused():
    block, _ = make("g", 0, -1, 10, [("t", bytes(16), [(OffsetCommitRequestPartition(), 0)], False)])
    assert block[-1] == block[0]
    for place in (1, -2):
        with pytest.raises(IndexError, match="has 1 records"):
            block[place]
    assert repr(block) == "<OffsetBlock of 'g', 1 offsets>"


class WrongLength(list[Any]):
    """A list whose `__len__` returns a wrong number, as an embedding program could pass it."""

    announced = 0

    def __len__(self) -> int:
        return self.announced


@pytest.mark.parametrize("announced", [0, 1, 7])
def test_a_wrong_length_is_handled(announced):
    entries = WrongLength([OffsetCommitRequestPartition(partition_index=p, committed_offset=p) for p in range(6)] * 50)
    entries.announced = announced
    codes = [0 if entry.partition_index < 4 else 3 for entry in entries]
    assert unknown_partitions(entries, 4, 3) == codes
    block = OffsetBlock("g", 0, -1, 10, Record)
    assert block.add("t", bytes(16), entries, codes, response_entry, {}) == [
        (entry.partition_index, code) for entry, code in zip(entries, codes, strict=True)
    ]
    assert [record.value.committed_offset for record in block] == [0, 1, 2, 3] * 50
    with pytest.raises(ValueError, match="more than the 3 partitions that were checked"):
        OffsetBlock("g", 0, -1, 10, Record).add("t", bytes(16), entries, [0, 0, 3], response_entry, {})


def test_a_length_beyond_memory_is_refused():
    entries = WrongLength([OffsetCommitRequestPartition()])
    entries.announced = (1 << 64) // 48 + 2  # the size in bytes overflows 64 bits to a small number
    with pytest.raises(OverflowError, match="a commit of"):
        OffsetBlock("g", 0, -1, 10, Record).add("t", bytes(16), entries, None, response_entry, {})
