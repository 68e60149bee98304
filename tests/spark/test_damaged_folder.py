"""A source over a data folder reads around damaged headers, and reports each of them with partition and offset."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

import kcore
from kcore.errors import DataFolderError
from kcore.log.lmdb_layout import LOG_KEY
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import FolderSource, Part, response_rows
from tests.kit import batch, make_topic, produce

COUNT = 30
HEADER_BYTES = 61
SEPARATE_BYTES = 3_000
"""The size of values of records at which the log stores each batch of three records in a value of its own."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a closed folder with batches of one record. The last batch is large, so it has a value of its own."""
    folder = tmp_path_factory.mktemp("stored") / "data"
    with kcore.open(folder, config={"kcore.durability": "os"}) as engine:
        make_topic(engine, "lines")
        for number in range(COUNT):
            value = b"value %03d" % number * (1 if number + 1 < COUNT else 1_000)
            engine.send(produce("lines", batch([value])), 9)
    return folder


def batches_of(folder: Path) -> tuple[Part, list[bytes]]:
    """Returns the partition of the topic, and its batches."""
    source = FolderSource(folder)
    (part,) = [part for part in source.parts() if part.topic == "lines"]
    batches = [data for _, data in source._log(source._keys["lines", 0]).batches()]
    source.close()
    return part, batches


def damaged(stored: Path, folder: Path, old: bytes, new: bytes) -> FolderSource:
    folder.mkdir(exist_ok=True)
    data = (stored / "data.mdb").read_bytes()
    assert old in data
    (folder / "data.mdb").write_bytes(data.replace(old, new))
    (folder / "journal").write_bytes((stored / "journal").read_bytes())
    return FolderSource(folder)


HEADERS = {
    "zeros": bytes(HEADER_BYTES),
    "ones": b"\xff" * HEADER_BYTES,
    "the next base offset": struct.pack(">q", 13),
    "a far base offset": struct.pack(">q", 1 << 40),
    "a low base offset": struct.pack(">q", 0),
}


@pytest.mark.parametrize("header", [*HEADERS, "a large offset delta", "a negative offset delta"])
@pytest.mark.parametrize("place", [0, 1, 12, COUNT - 2])
def test_a_damaged_header_is_reported_once_and_hides_no_other_batch(
    stored: Path, tmp_path: Path, header: str, place: int
) -> None:
    part, batches = batches_of(stored)
    assert len(batches) == COUNT
    old, at, bits = batches[place], 0, HEADERS.get(header, b"")
    if not bits:
        at, bits = 23, struct.pack(">i", (1 << 31) - 1 if "large" in header else -3)
    source = damaged(stored, tmp_path / "data", old, old[:at] + bits + old[at + len(bits) :])
    if old[at : at + len(bits)] == bits:
        return  # the header has this base offset
    for start in (0, place, place + 1):
        faults: list[LogFault] = []
        rows = list(itertools.islice(source.rows(part, start, on_fault=faults.append), 2 * COUNT))
        assert [row.offset for row in rows] == [offset for offset in range(start, COUNT) if offset != place]
        assert [fault[:4] for fault in faults] == ([("lines", 0, place, "corrupt")] if start <= place else [])
    source.close()


def test_a_log_whose_last_batch_is_damaged_is_refused(stored: Path, tmp_path: Path) -> None:
    _, batches = batches_of(stored)
    with pytest.raises(DataFolderError, match="the last batch"):
        damaged(stored, tmp_path / "data", batches[-1], bytes(HEADER_BYTES) + batches[-1][HEADER_BYTES:])


def with_entry(stored: Path, folder: Path, key: bytes, *, deleted: int | None = None) -> FolderSource:
    """Copies a folder, adds an entry of the log's database, and opens the copy. Can delete the batch at an offset."""
    folder.mkdir()
    for name in ("data.mdb", "journal"):
        (folder / name).write_bytes((stored / name).read_bytes())
    with lmdb.open(str(folder), max_dbs=8) as env, env.begin(write=True, db=env.open_db(b"log")) as txn:
        if deleted is not None:
            assert txn.delete(LOG_KEY.pack(number_of(stored), deleted))
        assert txn.put(key, b"value" * 20)
    return FolderSource(folder)


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a closed folder like `stored`, with three records in each batch, and each batch in its own value."""
    folder = tmp_path_factory.mktemp("separate") / "data"
    with kcore.open(folder, config={"kcore.durability": "os"}) as engine:
        make_topic(engine, "lines")
        for number in range(COUNT // 3):
            engine.send(produce("lines", batch([b"%03d" % number + bytes(SEPARATE_BYTES)] * 3)), 9)
    return folder


def number_of(folder: Path) -> int:
    """Returns the number of the topic's partition in the keys of the log's database."""
    source = FolderSource(folder)
    number: int = source._log(source._keys["lines", 0])._number  # type: ignore[attr-defined]
    source.close()
    return number


@pytest.mark.parametrize("lost", [False, True], ids=["added", "replaced"])
@pytest.mark.parametrize("place", [0, 3, 12, COUNT - 9])
@pytest.mark.parametrize("start", [0, 4, 12, 14])
def test_a_key_of_a_wrong_size_is_reported_once_and_hides_no_batch(
    separate: Path, tmp_path: Path, place: int, start: int, lost: bool
) -> None:
    """Before, the job stopped with a LogError. The key lies behind a batch, or in the place of the batch behind it.

    A read that begins inside of the batch before the key cannot find this batch.
    """
    key = LOG_KEY.pack(number_of(separate), place) + b"x"
    source = with_entry(separate, tmp_path / "data", key, deleted=place + 3 if lost else None)
    (part,) = [part for part in source.parts() if part.topic == "lines"]
    faults: list[LogFault] = []
    offsets = [row.offset for row in source.rows(part, start, on_fault=faults.append)]
    source.close()
    missing = {*range(place + 3, place + 6)} if lost else set()
    inside = place < start < place + 3 + 3 * lost
    offset = start if inside else place + 3
    missing |= {*range(start, place + 3)} if inside else set()
    assert offsets == [each for each in range(start, COUNT) if each not in missing]
    reached = start < place + 3 + 3 * lost
    assert all("has 12 bytes, not 13" in each.detail or "has a key of 13 bytes" in each.detail for each in faults)
    assert [(fault.offset, fault.kind) for fault in faults] == [(offset, "corrupt")] * reached


@pytest.mark.parametrize("place", [6, 12, 15])
def test_a_damaged_batch_near_a_key_of_a_wrong_size_is_reported_too(separate: Path, tmp_path: Path, place: int) -> None:
    """The key lies behind the batch at offset 12."""
    _, batches = batches_of(separate)
    old = batches[place // 3]
    damaged(separate, tmp_path / "batch", old, bytes(HEADER_BYTES) + old[HEADER_BYTES:]).close()
    source = with_entry(tmp_path / "batch", tmp_path / "key", LOG_KEY.pack(number_of(separate), 12) + b"x")
    (part,) = [part for part in source.parts() if part.topic == "lines"]
    faults: list[LogFault] = []
    rows = list(itertools.islice(source.rows(part, 0, on_fault=faults.append), 2 * COUNT))
    source.close()
    assert [row.offset for row in rows] == [each for each in range(COUNT) if not place <= each < place + 3]
    assert sorted({fault.offset for fault in faults}) == {6: [6, 15], 12: [12, 13], 15: [15]}[place]
    assert {fault.kind for fault in faults} == {"corrupt"}


def test_missing_batches_at_the_end_of_a_span_are_reported(stored: Path, tmp_path: Path) -> None:
    """The span ends within the damage, so no batch follows."""
    part, batches = batches_of(stored)
    source = damaged(stored, tmp_path / "data", batches[20], bytes(HEADER_BYTES) + batches[20][HEADER_BYTES:])
    faults: list[LogFault] = []
    assert [row.offset for row in source.rows(part, 18, 21, faults.append)] == [18, 19]
    assert [fault[:4] for fault in faults] == [("lines", 0, 20, "corrupt")]
    source.close()


def read(part: Part, response: bytes, first: int) -> tuple[list[int], int, list[LogFault]]:
    """Returns the offsets of the rows of a response, the next offset, and the faults."""
    faults: list[LogFault] = []
    ends = []

    def rows() -> Iterator[EventRow]:
        ends.append((yield from response_rows(part, memoryview(response), first, part.end, faults.append)))

    return [row.offset for row in rows()], ends[0], faults


@pytest.mark.parametrize("header", ["the next base offset", "a far base offset", "a low base offset"])
def test_a_wrong_base_offset_in_a_response_is_reported(stored: Path, header: str) -> None:
    """The CRC does not cover the base offset, so the offsets of the batches around it are compared."""
    part, batches = batches_of(stored)
    bits = HEADERS[header]
    wrong = bits + batches[12][len(bits) :]
    offsets, end, faults = read(part, b"".join([*batches[10:12], wrong, *batches[13:16]]), 10)
    assert (offsets, end) == ([10, 11, 13, 14, 15], 16)
    assert [fault[:4] for fault in faults] == [("lines", 0, 12, "corrupt")]


@pytest.mark.parametrize("header", ["zeros", "ones"])
def test_a_read_that_ends_at_a_damaged_header_says_so(stored: Path, header: str) -> None:
    """The size of the batch is damaged, too, so the position of the next batch is unknown."""
    part, batches = batches_of(stored)
    wrong = HEADERS[header] + batches[12][HEADER_BYTES:]
    assert read(part, b"".join([*batches[10:12], wrong, *batches[13:16]]), 10) == ([10, 11], 12, [])
    offsets, end, (fault,) = read(part, b"".join([wrong, *batches[13:16]]), 12)
    assert (offsets, end, fault[:4]) == ([], 12, ("lines", 0, 12, "corrupt"))
    assert fault.detail.endswith("; the records after it were not read")


def test_a_batch_with_a_wrong_crc_does_not_move_a_read_past_other_records(stored: Path) -> None:
    """The damaged base offset is above the end of the log."""
    part, batches = batches_of(stored)
    wrong = struct.pack(">q", 1 << 40) + batches[12][8:70] + b"?" + batches[12][71:]
    offsets, end, faults = read(part, b"".join([*batches[10:12], wrong, batches[13]]), 10)
    assert (offsets, end) == ([10, 11, 13], 14)
    assert [fault[:4] for fault in faults] == [("lines", 0, 12, "corrupt")]
