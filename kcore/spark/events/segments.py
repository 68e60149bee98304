"""Reads raw segment files of a Kafka broker's log folder: `TOPIC-PARTITION/BASEOFFSET.log`.

The reader tolerates incomplete copies. The last segment may be half written. A copy taken while the cleaner swapped
segments may hold two segments with the same records. Indexes and checkpoints may be missing. The reader reads all
intact batches and reports all other bytes.
"""

from __future__ import annotations

import base64
import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.protocol.batch_layout import MAGIC, MAGIC_AT
from kcore.spark.events.batches import BatchError, Header, check, gatherer, rows_of
from kcore.spark.events.event import EventRow, LogFault

if TYPE_CHECKING:
    import pyarrow as pa

_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"\d{20}\.log")
_LEFTOVER = re.compile(r"\d{20}\.log\.(swap|cleaned|deleted)")
_INDEX = re.compile(r"\d{20}\.(index|timeindex|txnindex)")
PARTITION_METADATA = "partition.metadata"
_TOPIC_ID = re.compile(r"^topic_id: ([A-Za-z0-9_-]{22})$", re.MULTILINE)
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
OFFSETS_PER_SEGMENT = 2**31
"""Maximum number of offsets in a segment: indexes store offsets as four bytes relative to the base offset."""

_BASE_DIGITS = 20
_OFFSET_BYTES = 8
_MAGIC = bytes([MAGIC])


class SegmentPartition(NamedTuple):
    """One partition of a log folder.

    Attributes:
        topic: the name of the partition's topic.
        partition: the partition's number.
        paths: the partition's segment files, oldest first.
        checkpoint: the offset in the cleaner's checkpoint file; None if there is no such file.
        missing: the missing segments, each as a pair: its base offset, and the name of a file that proves that the
            segment existed.
        leftovers: the names of files of segments that a broker was writing or deleting; they are not read.
    """

    topic: str
    partition: int
    paths: tuple[str, ...]
    checkpoint: int | None = None
    missing: tuple[tuple[int, str], ...] = ()
    leftovers: tuple[str, ...] = ()

    @property
    def first_offset(self) -> int:
        """The base offset of the oldest segment. It stays the same if compaction removes the first records."""
        return int(Path(self.paths[0]).stem) if self.paths else 0

    @property
    def active_offset(self) -> int:
        """The base offset of the newest segment, which the cleaner never rewrites."""
        return int(Path(self.paths[-1]).stem) if self.paths else 0


ReadFile = Callable[[str], Any]
"""A function that returns the content of a segment file by its path.

The content is a bytes-like object that has the method `find` and supports slices.
"""


def mapped(path: str) -> bytes | mmap.mmap:
    """Maps a local file into memory."""
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return b""
        # The garbage collector closes the mapping: a fault that a caller keeps still refers to its bytes.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def find_partitions(root: str | Path) -> list[SegmentPartition]:
    """Returns the partitions in a broker's log folder, ordered by topic and number.

    If `root` is the folder of a single partition, returns this partition.
    """
    root = Path(root)
    own = (
        [root] if _FOLDER.fullmatch(root.name) and _named((entry.name for entry in root.iterdir()), _SEGMENT) else None
    )
    folders = own or [entry for entry in root.iterdir() if _FOLDER.fullmatch(entry.name) and entry.is_dir()]
    names = {str(folder): [entry.name for entry in folder.iterdir()] for folder in folders}
    path = (root.parent if own else root) / CLEANER_CHECKPOINT
    return partitions_of(names, path.read_text() if path.is_file() else "")


def partitions_of(folders: Mapping[str, Iterable[str]], checkpoint: str = "") -> list[SegmentPartition]:
    """Returns the partitions of some folders, by topic and number.

    Args:
        folders: path of a folder -> the names of its files.
        checkpoint: the content of the cleaner's checkpoint file.
    """
    checkpoints, partitions = _checkpoint(checkpoint), []
    for folder, listed in folders.items():
        match = _FOLDER.fullmatch(folder.rpartition("/")[2])
        names = sorted(listed)
        segments, leftovers = _named(names, _SEGMENT), _named(names, _LEFTOVER)
        if match is not None and (segments or leftovers):
            topic, partition = match["topic"], int(match["partition"])
            paths = tuple(f"{folder}/{name}" for name in segments)
            rest = (checkpoints.get((topic, partition)), _missing(names, leftovers), tuple(leftovers))
            partitions.append(SegmentPartition(topic, partition, paths, *rest))
    return sorted(partitions)


def topic_id_of(part: SegmentPartition) -> str | None:
    """Returns the id of a partition's topic in hexadecimal digits; None if the copy lacks `partition.metadata`."""
    names = [Path(path).with_name(PARTITION_METADATA) for path in part.paths[:1]]
    found = [_TOPIC_ID.search(name.read_text(errors="replace")) for name in names if name.is_file()]
    return base64.urlsafe_b64decode(f"{found[0][1]}==").hex() if found and found[0] else None


def _missing(listed: list[str], leftovers: list[str]) -> tuple[tuple[int, str], ...]:
    """Returns the missing segments, each with a file that proves that the segment existed.

    The cleaner writes a new segment as a `.swap` file and then renames the file. If only the `.swap` file exists, the
    copy was made before the renaming, or the broker died before it.

    A broker that deletes a segment renames the `.log` file before the index. If only the index still has its name,
    another program removed the `.log` file.
    """
    names = [name[:_BASE_DIGITS] for name in _named(listed, _SEGMENT)]
    signs = [name for name in leftovers if name.endswith(".swap") or not names]
    named = {name[:_BASE_DIGITS] for name in leftovers}
    signs += [name for name in _named(listed, _INDEX) if name[:_BASE_DIGITS] not in named]
    files = {int(name[:_BASE_DIGITS]): name for name in reversed(signs) if name[:_BASE_DIGITS] not in names}
    return tuple(sorted(files.items()))


def _named(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    return sorted(name for name in names if pattern.fullmatch(name))


def _checkpoint(text: str) -> dict[tuple[str, int], int]:
    """Parses the cleaner's checkpoint: a version, a count, then one `topic partition offset` per line."""
    entries = {}
    for line in text.splitlines()[2:]:
        words = line.split()
        if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
            entries[words[0], int(words[1])] = int(words[2])
    return entries


def read_rows(
    part: SegmentPartition,
    start: int = 0,
    stop: int | None = None,
    on_fault: Callable[[LogFault], None] = lambda fault: None,
    read: ReadFile = mapped,
) -> Iterator[EventRow]:
    """Yields the rows of a partition in offset order, each offset once.

    Args:
        part: the partition.
        start: the first offset to read.
        stop: the offset before which to stop; None: the end.
        on_fault: receives a `LogFault` for each unreadable part of the log.
        read: returns the content of a file.
    """
    for path, header, batch, first in _batches(part, start, stop, on_fault, read):
        try:
            for row in rows_of(part.topic, part.partition, batch):
                if row.offset >= first and (stop is None or row.offset < stop):
                    yield row
        except BatchError as fault:
            _report(part, path, fault, header.base_offset, on_fault)


def read_batches(
    part: SegmentPartition,
    start: int = 0,
    stop: int | None = None,
    on_fault: Callable[[LogFault], None] = lambda fault: None,
    batch_rows: int = 10_000,
    read: ReadFile = mapped,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows as Arrow, in batches of `batch_rows` rows or slightly more."""
    gathered = gatherer(part.topic, part.partition)
    for path, header, batch, first in _batches(part, start, stop, on_fault, read):
        try:
            gathered.add(batch, first, stop)
        except BatchError as fault:
            _report(part, path, fault, header.base_offset, on_fault)
        if len(gathered) >= batch_rows:
            yield gathered.take()
    if len(gathered):
        yield gathered.take()


Found = tuple[str, Header, memoryview, int]
"""A batch: its file, its header, its bytes, and the first of its offsets that was not read before."""


def _batches(
    part: SegmentPartition, start: int, stop: int | None, on_fault: Callable[[LogFault], None], read: ReadFile
) -> Iterator[Found]:
    """Yields the batches of a partition with offsets in the range, in order."""
    next_offset = start
    bases = [int(Path(path).stem) for path in part.paths]
    missing = _Missing(part, start, on_fault)
    for index, path in enumerate(part.paths):
        if stop is not None and bases[index] >= stop:
            break
        missing.before(bases[index])
        if index + 1 < len(bases) and bases[index + 1] <= start:
            continue
        for batch in _segment_batches((part, path, read), next_offset, stop, on_fault, start):
            yield batch
            next_offset = batch[1].last_offset + 1
    missing.before(stop)


class _Missing:
    """The missing segments of a partition, reported in the order of reading."""

    def __init__(self, part: SegmentPartition, start: int, on_fault: Callable[[LogFault], None]) -> None:
        self._part = part
        self._start = start
        self._on_fault = on_fault
        self._left = list(part.missing)

    def before(self, offset: int | None) -> None:
        """Reports the missing segments that begin below `offset`; None: no upper limit.

        Does not report segments before the first offset to read.
        """
        while self._left and (offset is None or self._left[0][0] < offset):
            base, name = self._left.pop(0)
            if offset is None or offset > self._start:
                detail = f"{base:020d}.log is missing, but {name} exists"
                self._on_fault(LogFault(self._part.topic, self._part.partition, base, "missing", detail))


def _segment_batches(
    place: tuple[SegmentPartition, str, ReadFile],
    start: int,
    stop: int | None,
    on_fault: Callable[[LogFault], None],
    first: int,
) -> Iterator[Found]:
    part, path, read = place
    next_offset, again = start, _Again(part, path, on_fault)
    data = read(path)
    view = memoryview(data)
    awaited = int(Path(path).stem)  # next offset of the file, independent of the range
    beyond = awaited + OFFSETS_PER_SEGMENT
    position = 0
    while position < len(view):
        try:
            header = _checked(view, position, next_offset, beyond)
        except BatchError as fault:
            again.end()
            if not data[position:].strip(b"\0"):  # preallocated space
                zeros = BatchError("truncated", f"all bytes from position {position} on are zero")
                _report(part, path, zeros, next_offset, on_fault)
                return
            position = _behind_damage(data, position, fault.size_bytes, range(max(awaited, next_offset), beyond))
            following = _offset_at(view, position) if position < len(view) else beyond
            if not awaited <= fault.offset < following:
                fault.offset = awaited
            if following > first:
                _report(part, path, fault, awaited, on_fault)
            continue
        awaited = max(awaited, header.last_offset + 1)
        batch_at, position = position, position + header.size_bytes
        if header.last_offset < next_offset:
            if header.last_offset >= first:
                again.add(header)
            continue
        again.end()
        if stop is not None and header.base_offset >= stop:
            return
        yield path, header, view[batch_at:position], next_offset
        next_offset = header.last_offset + 1
    again.end()


def _checked(view: memoryview, position: int, next_offset: int, beyond: int) -> Header:
    """Returns the header at `position` after checking its CRC and the plausibility of its offset.

    The CRC does not cover the offset. An offset that is too high would make all later batches look like duplicates.

    Raises:
        BatchError: the batch is cut short or damaged.
    """
    header = check(view, position)
    stray = header.last_offset >= beyond
    if not stray and header.base_offset > next_offset:
        behind = position + header.size_bytes
        following = _offset_at(view, behind)
        stray = next_offset <= following < header.base_offset and _is_batch(view, behind)
    if stray:
        detail = (
            f"the batch at position {position} has base offset {header.base_offset}, but offset {next_offset} was "
            "expected"
        )
        raise BatchError("corrupt", detail, header.size_bytes)
    return header


def _offset_at(view: memoryview, position: int) -> int:
    return int.from_bytes(view[position : position + _OFFSET_BYTES], "big", signed=True)


def _is_batch(view: memoryview, position: int) -> bool:
    try:
        check(view, position)
    except BatchError:
        return False
    return True


def _behind_damage(data: Any, position: int, size_bytes: int, offsets: range) -> int:
    """Returns the position at which reading continues after a damaged batch.

    If the length of the damaged batch leads to an intact batch or to the end of the file, reading continues there. If
    not, reading continues at the next intact batch with one of the expected offsets, or at the end of the file.

    Args:
        data: the content of a segment file.
        position: the start of the damaged batch.
        size_bytes: the length of the batch according to its header; 0 if unknown. The CRC does not cover this field.
        offsets: the base offsets that the next batch may have.
    """
    view = memoryview(data)
    claimed = position + size_bytes
    if size_bytes and (claimed == len(data) or (claimed < len(data) and _is_batch(view, claimed))):
        return claimed
    at = position + 1
    magic_at: int
    while (magic_at := data.find(_MAGIC, at + MAGIC_AT)) >= 0:
        at = magic_at - MAGIC_AT
        if _offset_at(view, at) in offsets and _is_batch(view, at):
            return at
        at += 1
    return len(data)


def _report(
    part: SegmentPartition, path: str, fault: BatchError, next_offset: int, on_fault: Callable[[LogFault], None]
) -> None:
    offset = fault.offset if fault.offset >= 0 else next_offset
    on_fault(LogFault(part.topic, part.partition, offset, fault.kind, f"{Path(path).name}: {fault}"))


class _Again:
    """The adjacent batches of a file whose offsets were read before. A run of such batches is reported as one fault."""

    __slots__ = ("_file", "_first", "_last", "_on_fault", "_part")

    def __init__(self, part: SegmentPartition, path: str, on_fault: Callable[[LogFault], None]) -> None:
        self._part = part
        self._file = Path(path).name
        self._on_fault = on_fault
        self._first = self._last = -1

    def add(self, header: Header) -> None:
        """Adds a batch whose offsets were read before to the current run of such batches."""
        if self._first < 0:
            self._first = header.base_offset
        self._last = header.last_offset

    def end(self) -> None:
        """Ends the current run of batches, and reports it as a fault. Does nothing if there is no run."""
        if self._first >= 0:
            detail = f"{self._file}: offsets {self._first} to {self._last} occur in the log again"
            self._on_fault(LogFault(self._part.topic, self._part.partition, self._first, "duplicate", detail))
            self._first = -1
