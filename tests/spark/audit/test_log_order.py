"""Planted faults in the log itself (gaps, duplicates, damage), and legal gaps that compaction leaves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kcore.protocol.records.group_metadata import GroupMetadataKey
from kcore.spark.audit.finding import Evidence, Finding, finding
from kcore.spark.audit.partition import audit
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.segments import find_partitions, read_rows
from tests.spark.audit.written import Written, found


@pytest.fixture
def log() -> Written:
    """Returns a log in which keys occur several times. The audit infers from this that the log was not compacted."""
    made = Written()
    for offset in range(10):
        made.commit("g", offset, partition=offset % 2)
    return made


def at(log: Written, offset: int) -> Evidence:
    row = next(row for row in log.rows if row.offset == offset)
    assert isinstance(row, EventRow)
    return Evidence(row.topic, row.partition, row.offset, row.timestamp_ms)


def test_missing_offsets_are_found(log: Written) -> None:
    before = at(log, 9)
    log.next_offset = 13
    here = log.commit("g", 10)
    sentence = "In __consumer_offsets-0 offsets 10 to 12 are missing."
    assert found(log) == [finding("offset-gap", [before, here], sentence)]


def test_records_after_a_gap_are_not_compared_with_earlier_ones() -> None:
    """The group may have been removed within the gap, so the lower generation after the gap is not a second finding."""
    log = Written()
    log.generation("g", 7, a=[0])
    before = log.generation("g", 8, a=[0])
    log.next_offset = 3
    here = log.generation("g", 1, a=[0])
    sentence = "In __consumer_offsets-0 offset 2 is missing."
    assert found(log) == [finding("offset-gap", [before, here], sentence)]


def test_gaps_below_the_compaction_point_are_no_findings() -> None:
    """Gaps in the compacted part of a log are no findings. This part ends at the cleaner's checkpoint or, without a
    checkpoint, at the first repetition of a key.
    """
    log = Written()
    log.next_offset = 5
    log.commit("g", 1, partition=0)
    log.next_offset = 9
    log.commit("g", 1, partition=1)
    log.next_offset = 20
    log.commit("g", 2, partition=0)
    assert found(log) == []
    assert found(log, cleaned_to=20) == []
    (one,) = found(log, cleaned_to=15)
    assert (one.kind, one.sentence) == ("offset-gap", "In __consumer_offsets-0 offsets 15 to 19 are missing.")


def test_a_topic_with_records_without_keys_is_not_compacted() -> None:
    log = Written("t")
    before = log.raw(None, b"v")
    log.next_offset = 5
    here = log.raw(None, b"v")
    assert found(log) == [finding("offset-gap", [before, here], "In t-0 offsets 1 to 4 are missing.")]


def test_a_topic_whose_keys_are_all_different_may_be_compacted() -> None:
    log = Written("t")
    log.raw(b"a", b"v")
    log.next_offset = 5
    log.raw(b"b", b"v")
    log.raw(b"a", b"v")
    assert found(log) == []


def test_a_record_that_occurs_twice_is_found(log: Written) -> None:
    first, last = at(log, 4), at(log, 5)
    log.rows.insert(5, log.rows[4])
    log.rows.insert(7, log.rows[6])
    sentence = "Offsets 4 to 5 occur twice in __consumer_offsets-0."
    assert found(log) == [finding("duplicate-offset", [first, last], sentence)]


def test_two_records_with_one_offset_are_found(log: Written) -> None:
    here = at(log, 4)
    one = log.rows[4]
    assert isinstance(one, EventRow)
    log.rows.insert(5, one._replace(value=b"\0\1"))
    sentence = "Two different records have offset 4 in __consumer_offsets-0."
    assert found(log) == [finding("offset-conflict", [here], sentence)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\1\0", b""),  # a truncated key
        (GroupMetadataKey(group="g").encode_key(), b"\0\3\0"),  # a truncated value
        (GroupMetadataKey(group="g").encode_key(), b"\x7f\0"),  # a future version, which cannot be read as a known one
    ],
)
def test_a_record_that_cannot_be_decoded_is_found(log: Written, key: bytes, value: bytes) -> None:
    here = log.raw(key, value)
    (one,) = found(log)
    assert one[:12] == finding("undecodable-record", [here], "")[:12]
    assert one.sentence.startswith("The record at offset 10 of __consumer_offsets-0 cannot be decoded: ")


def test_records_of_unknown_types_are_no_findings(log: Written) -> None:
    log.raw(b"\x03\xe7rest", b"\0\0")
    log.raw(b"\0", b"\0\0")
    assert found(log) == []


@pytest.mark.parametrize(
    ("fault", "kind"), [("corrupt", "corrupt-batch"), ("truncated", "truncated-log"), ("duplicate", "duplicate-offset")]
)
def test_each_fault_of_the_reader_is_a_finding(log: Written, fault: str, kind: str) -> None:
    log.rows.append(LogFault("__consumer_offsets", 0, 10, fault, "so it is"))
    here = Evidence("__consumer_offsets", 0, 10, -1)
    assert found(log) == [finding(kind, [here], "__consumer_offsets-0: so it is.")]


def test_damage_and_its_gap_are_one_finding() -> None:
    log = Written()
    log.generation("g", 8, a=[0])
    log.rows.append(LogFault("__consumer_offsets", 0, 1, "corrupt", "so it is"))
    log.next_offset = 4
    log.generation("g", 1, a=[0])
    assert [one.kind for one in found(log)] == ["corrupt-batch"]


# ---- raw segment files of a real broker, damaged


Damage = Callable[[bytearray, list[int]], None]


def whole(folder: Path) -> list[EventRow]:
    (part,) = find_partitions(folder)
    return list(read_rows(part))


def findings(folder: Path) -> list[Finding]:
    (part,) = find_partitions(folder)
    rows: list[EventRow | LogFault] = []
    rows.extend(read_rows(part, on_fault=rows.append))  # faults are between the rows, at their positions
    return [one for one in audit(part.topic, part.partition, rows) if one.severity != "info"]


def batches(data: bytes) -> list[int]:
    """Returns the start position of each batch, and the end of the data."""
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    return starts


@pytest.fixture
def segment(kafka_logs: Path, tmp_path: Path) -> Path:
    """Copies only the newest segment of a partition, so that the log begins in the middle."""
    source = sorted((kafka_logs / "moment-1" / "__consumer_offsets-0").glob("*.log"))[-1]
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (folder / source.name).write_bytes(source.read_bytes())
    return folder / source.name


def test_a_log_that_begins_in_the_middle_is_healthy(segment: Path) -> None:
    assert findings(segment.parent) == []


def test_a_wrong_crc_in_a_segment_is_found(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    starts = batches(data)
    hit = random.Random(1).randrange(len(starts) // 2, len(starts) - 2)
    base = int.from_bytes(data[starts[hit] : starts[hit] + 8], "big")
    data[starts[hit] + 70] ^= 1
    segment.write_bytes(data)
    (one,) = findings(segment.parent)
    assert (one.kind, one.evidence) == ("corrupt-batch", (Evidence("__consumer_offsets", 0, base, -1),))


def test_a_partly_written_end_is_found(segment: Path) -> None:
    data = segment.read_bytes()
    starts = batches(data)
    base = int.from_bytes(data[starts[-2] : starts[-2] + 8], "big")
    segment.write_bytes(data[:-3])
    (one,) = findings(segment.parent)
    assert (one.kind, one.evidence) == ("truncated-log", (Evidence("__consumer_offsets", 0, base, -1),))


def test_a_batch_missing_in_a_segment_is_found(segment: Path) -> None:
    rows = whole(segment.parent)
    data = segment.read_bytes()
    starts = batches(data)
    hit = len(starts) // 2
    base, behind = (int.from_bytes(data[starts[i] : starts[i] + 8], "big") for i in (hit, hit + 1))
    segment.write_bytes(data[: starts[hit]] + data[starts[hit + 1] :])
    (one,) = findings(segment.parent)
    by_offset = {row.offset: Evidence(row.topic, row.partition, row.offset, row.timestamp_ms) for row in rows}
    assert (one.kind, one.evidence) == ("offset-gap", (by_offset[base - 1], by_offset[behind]))


def test_a_batch_that_occurs_twice_in_a_segment_is_found(segment: Path) -> None:
    data = segment.read_bytes()
    starts = batches(data)
    hit = len(starts) // 2
    base, behind = (int.from_bytes(data[starts[i] : starts[i] + 8], "big") for i in (hit, hit + 1))
    segment.write_bytes(data[: starts[hit + 1]] + data[starts[hit] :])
    (one,) = findings(segment.parent)
    assert (one.kind, one.evidence) == ("duplicate-offset", (Evidence("__consumer_offsets", 0, base, -1),))
    assert one.sentence.endswith(f"offsets {base} to {behind - 1} occur in the log again.")
