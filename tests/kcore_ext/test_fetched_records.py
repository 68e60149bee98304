"""Records of Fetch responses, compared with a reference that iterates over every batch in Python."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kcore.node.requests  # noqa: F401 - has the memory of records reused
from kcore.node.types import Record
from kcore.protocol.compression import CompressionType, compress, decompress
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch import (
    BatchBuilder,
    CorruptBatchError,
    build_control_batch,
    iter_records,
    parse_header,
    split_batches,
    stamped,
)
from kcore_ext.client.fetched import FetchedRecords, RecordCursor, reuse_memory

FIELDS = st.none() | st.binary(max_size=12)
HEADERS = st.lists(st.tuples(st.text(max_size=4), FIELDS), max_size=2).map(tuple)
TIMES = st.sampled_from([-1, 0, 5, 1 << 40])
ROWS = st.lists(st.tuples(TIMES, FIELDS, FIELDS, HEADERS), min_size=1, max_size=5)


def batch(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    base_offset: int = 0,
    *,
    producer_id: int = -1,
    codec: CompressionType = CompressionType.NONE,
    append_time: bool = False,
    gaps: bool = False,
) -> bytes:
    """Builds a batch. A producer id makes the batch transactional, and `gaps` leaves out every second offset."""
    builder = BatchBuilder(
        1 << 20,
        base_timestamp_ms=rows[0][0],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
        compression=int(codec),
        compress=compress,
        log_append_time=append_time,
    )
    for number, row in enumerate(rows):
        assert builder.append(*row, offset_delta=2 * number if gaps else -1)
    return builder.build(base_offset, leader_epoch=base_offset % 7)


def marker(base_offset: int, producer_id: int, commit: bool) -> bytes:
    """Builds the end marker of a transaction."""
    return build_control_batch(
        int(commit), 0, producer_id=producer_id, producer_epoch=0, timestamp_ms=1, base_offset=base_offset
    )


def reference(data: bytes, position: int, aborted: list[tuple[int, int]] | None) -> tuple[list[Record], int, int]:
    """Reads the records of a response batch by batch."""
    records: list[Record] = []
    open_aborted: set[int] = set()
    following = epoch = -1
    left = sorted(aborted or ())
    for start, size in split_batches(data).batches:
        one = data[start : start + size]
        header = parse_header(one)
        while left and left[0][0] <= header.base_offset:
            open_aborted.add(left.pop(0)[1])
        following, epoch = max(following, header.next_offset), header.partition_leader_epoch
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            records += [
                Record("t", 3, row.offset, row.timestamp_ms, row.key, row.value, row.headers)
                for row in iter_records(one, decompress=decompress)
                if row.offset >= position
            ]
    return records, following, epoch


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, int, list[tuple[int, int]] | None]:
    """A strategy for (batches, consumer's position, aborted transactions) with transactional and other producers."""
    data, offset = b"", draw(st.sampled_from([0, 9, 1 << 33]))
    start = offset
    begun: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(0, 6))):
        producer = draw(st.sampled_from([-1, -1, 7, 8]))
        if producer in begun and draw(st.booleans()):
            commit = draw(st.booleans())
            data += marker(offset, producer, commit)
            first = begun.pop(producer)
            aborted += [] if commit else [(first, producer)]
            offset += 1
            continue
        if producer >= 0:
            begun.setdefault(producer, offset)
        codec = draw(st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4]))
        one = batch(
            draw(ROWS),
            offset,
            producer_id=producer,
            codec=codec,
            append_time=draw(st.booleans()),
            gaps=draw(st.booleans()),
        )
        data += one
        offset = parse_header(one).next_offset
    cut = draw(st.integers(0, 5)) * 15  # the end of the last batch is missing
    data = data[: len(data) - cut] if cut else data
    return data, draw(st.integers(start, offset)), draw(st.sampled_from([None, aborted]))


@given(responses(), st.lists(st.integers(0, 4), max_size=8))
def test_fetched_records_equal_the_reference(
    response: tuple[bytes, int, list[tuple[int, int]] | None], limits: list[int]
) -> None:
    data, position, aborted = response
    records, following, epoch = reference(data, position, aborted)
    fetched = FetchedRecords(Record, "t", 3)
    fetched.add(data, position, None if aborted is None else sorted(aborted, reverse=True), decompress)
    assert (len(fetched), fetched.following, fetched.leader_epoch) == (len(records), following, epoch)
    taken: list[Record] = []
    for limit in [*limits, len(records)]:
        assert fetched.next_offset == (records[len(taken)].offset if len(taken) < len(records) else -1)
        part = fetched.take(limit)
        assert len(part) == min(limit, len(records) - len(taken))
        taken += part
    assert taken == records
    assert all(type(record) is Record for record in taken)
    assert (len(fetched), fetched.next_offset, fetched.take(9)) == (0, -1, [])


def test_records_outlive_the_response_and_are_not_tracked() -> None:
    fetched = FetchedRecords(Record, "t", 0)
    fetched.add(batch([(5, b"k", b"v" * 600, (("h", b"1"),)), (5, None, None, ())]), 0, None, decompress)
    first, second = fetched.take(2)
    del fetched
    gc.collect()
    assert first == Record("t", 0, 0, 5, b"k", b"v" * 600, (("h", b"1"),))
    assert second == Record("t", 0, 1, 5, None, None)
    assert not gc.is_tracked(first), "no cycle leads through a record"


class _Derived(Record):
    """A subclass of `Record` whose objects have a dictionary."""


def test_the_memory_of_freed_records_is_reused_without_their_fields() -> None:
    rows = [(5 + number, b"k", b"v" * 40, ()) for number in range(3_000)]
    for _ in range(3):
        fetched = FetchedRecords(Record, "t", 0)
        fetched.add(batch(rows), 0, None, decompress)
        records = fetched.take(len(rows))
        places = {id(record) for record in records}
        value = records[7].value
        held = sys.getrefcount(value)
        expected = [Record("t", 0, number, 5 + number, b"k", b"v" * 40) for number in range(len(rows))]
        assert records == expected
        kept = records[11]
        records.clear()
        assert sys.getrefcount(value) == held - 1, "a freed record has freed its fields"
        assert kept == expected[11]
        fetched = FetchedRecords(Record, "t", 1)
        fetched.add(batch([(9, None, None, (("h", b"1"),))] * 10), 0, None, decompress)
        again = fetched.take(10)
        assert [hash(record) for record in again] == [hash(tuple(record)) for record in again]
        assert {id(record) for record in again} <= places
        assert again == [Record("t", 1, number, 9, None, None, (("h", b"1"),)) for number in range(10)]
        del again, expected


def test_records_that_other_code_makes_are_freed_as_before() -> None:
    """Python frees all kinds of records correctly: also records of subclasses, and records with another number of
    fields.
    """
    whole = ("t", 0, 1, 2, b"k", b"v" * 100, ())
    short: Record = tuple.__new__(Record, ("t",))
    records = [Record(*whole), _Derived(*whole), short, pickle.loads(pickle.dumps(Record(*whole)))]
    records[1].__dict__["own"] = records[1]  # a cycle
    references = [weakref.ref(_Owner(record)) for record in records]
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    types = sys.getrefcount(Record), sys.getrefcount(_Derived)
    for _ in range(2_000):
        made = [Record(*whole), _Derived(*whole), tuple.__new__(Record, ("t",))]
        del made
    assert (sys.getrefcount(Record), sys.getrefcount(_Derived)) == types


class _Owner:
    """An object that holds a record and can be weakly referenced, which a record cannot."""

    def __init__(self, record: Record) -> None:
        self.record = record


def test_only_the_fields_of_a_record_are_accepted() -> None:
    class Pair(NamedTuple):
        one: int
        two: int

    with pytest.raises(TypeError, match="Pair is not a NamedTuple of 7 fields"):
        reuse_memory(Pair)
    with pytest.raises(TypeError, match="Pair is not a NamedTuple of 7 fields"):
        FetchedRecords(Pair, "t", 0)


def test_valid_batches_before_an_invalid_one_are_added() -> None:
    good, bad = batch([(1, None, b"1", ())]), bytearray(batch([(1, None, b"2", ())], 1))
    bad[-2] ^= 1
    fetched = FetchedRecords(Record, "t", 0)
    with pytest.raises(CorruptBatchError, match="crc"):
        fetched.add(good + bytes(bad), 0, None, decompress)
    assert [record.value for record in fetched.take(9)] == [b"1"]
    assert fetched.following == 1


def test_a_record_that_does_not_fit_is_refused_before_any_record_of_its_batch_is_made() -> None:
    builder = BatchBuilder(1 << 16, base_timestamp_ms=0, compression=1, compress=lambda codec, data: b"x")
    assert builder.append(0, None, b"v" * 100)
    assert builder.append(0, None, b"v" * 100)
    fetched = FetchedRecords(Record, "t", 0)
    for broken in (b"", b"\x10", b"\xff" * 30, bytes(30)):
        with pytest.raises(CorruptBatchError):
            fetched.add(builder.build(), 0, None, lambda codec, data, limit, broken=broken: broken)
    assert len(fetched) == 0
    assert fetched.following == -1


def test_batches_that_decompress_to_too_much_are_left_for_the_next_fetch() -> None:
    """A response has more compressed data than may be decompressed at once. The other batches are left for the next
    fetch, but the first one is always read. An uncompressed batch does not count.
    """
    packed = [batch([(1, None, bytes(1_000), ())], offset, codec=CompressionType.GZIP) for offset in range(5)]
    plain = batch([(1, None, bytes(1_000), ())], 5)
    data = b"".join([*packed, plain])
    position, found = 0, []
    for most_bytes, following in ((1, 1), (1_500, 3), (1 << 20, 6)):
        fetched = FetchedRecords(Record, "t", 0)
        fetched.add(data, position, None, decompress, most_bytes)
        assert fetched.following == following
        compressed = min(following, 5) - position
        assert compressed * 1_000 < fetched.decompressed_bytes < compressed * 1_050
        found += fetched.take(9)
        data, position = b"".join([*packed[following:], plain]), following
    assert [record.offset for record in found] == [0, 1, 2, 3, 4, 5]


def test_batches_of_an_unknown_format_are_refused() -> None:
    data = bytearray(batch([(1, None, b"1", ())]))
    data[16] = 3
    with pytest.raises(CorruptBatchError, match="magic 3"):
        FetchedRecords(Record, "t", 0).add(bytes(data), 0, None, decompress)
    data[16] = 1
    with pytest.raises(CorruptBatchError):
        FetchedRecords(Record, "t", 0).add(bytes(data), 0, None, decompress)


def test_a_stamped_batch_has_the_offsets_of_its_log() -> None:
    result = stamped(batch([(1, None, b"1", ()), (2, None, b"2", ())]), 40, 5)
    assert result is not None
    fetched = FetchedRecords(Record, "t", 0)
    fetched.add(result[0], 41, None, decompress)
    assert fetched.take(5) == [Record("t", 0, 41, 2, None, b"2")]
    assert (fetched.following, fetched.leader_epoch) == (42, 5)


class Pair(NamedTuple):
    """A type with two fields instead of the seven of `Record`."""

    topic: str
    partition: int


@pytest.mark.parametrize("record_type", [Pair, tuple, dict, int, list])
def test_only_types_of_seven_fields_are_accepted(record_type: type) -> None:
    with pytest.raises((TypeError, AttributeError)):
        FetchedRecords(record_type, "t", 0)


# ---- the cursor


def rows(*places: tuple[str, int, int]) -> list[Record]:
    """Makes records of partitions and offsets."""
    return [Record(topic, partition, offset, 0, None, None) for topic, partition, offset in places]


def test_a_record_is_finished_when_the_next_one_is_requested() -> None:
    cursor = RecordCursor()
    cursor.load(rows(("a", 0, 5), ("a", 0, 6), ("b", 1, 9)))
    assert cursor.finished(current=False) == {}
    assert next(cursor).offset == 5
    assert cursor.finished(current=False) == {}
    assert next(cursor).offset == 6
    assert cursor.finished(current=False) == {("a", 0): 6}
    assert cursor.finished(current=False) == {}
    assert cursor.finished(current=True) == {("a", 0): 7}
    assert next(cursor).offset == 9
    assert (len(cursor), list(cursor)) == (0, [])
    assert cursor.finished(current=True) == {("b", 1): 10}
    assert cursor.finished(current=True) == {}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), max_size=8),
    st.lists(st.sampled_from(["next", "current", "before", "drop a-0", "drop b-1", "rest"]), max_size=12),
)
def test_the_cursor_equals_a_model(places: list[tuple[str, int]], steps: list[str]) -> None:
    records = rows(*((topic, partition, offset) for offset, (topic, partition) in enumerate(places)))
    cursor = RecordCursor()
    cursor.load(list(records))
    waiting, current = list(records), list[Record]()
    finished: dict[tuple[str, int], int] = {}
    reported: dict[tuple[str, int], int] = {}
    for step in steps:
        if step in ("next", "current") and (waiting or step == "current"):
            finished |= {(record.topic, record.partition): record.offset + 1 for record in current}
            current = []
        match step:
            case "next":
                assert next(cursor, None) == (waiting[0] if waiting else None)
                current = [waiting.pop(0)] if waiting else current
            case "before" | "current":
                reported |= cursor.finished(current=step == "current")
                assert reported == finished
            case "rest":
                assert cursor.rest(2) == waiting[:2]
                del waiting[:2]
            case _:
                reported |= cursor.finished(current=False)
                assert reported == finished
                dropped = {TopicPartition(step[5], int(step[7]))}
                cursor.drop(dropped)
                waiting = [record for record in waiting if record.topic_partition not in dropped]
                current = [record for record in current if record.topic_partition not in dropped]
        assert len(cursor) == len(waiting)
