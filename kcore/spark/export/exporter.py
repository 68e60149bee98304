"""Exports event logs as Parquet or JSON lines by topic and partition, with a manifest.

An interrupted export can be resumed, and a complete export can be verified. For example, an export has these files:

events/manifest.json
events/topic=__consumer_offsets/partition=7/00000000000000000000.parquet
"""

from __future__ import annotations

import base64
import io
import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from kcore.errors import KcoreError
from kcore.json_text import parse_json
from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.events.arrow import BATCH_ROWS, EVENT_SCHEMA, from_batch, in_range, to_batches
from kcore.spark.events.event import EventRow, LogFault
from kcore.spark.events.sources import OnFault, Part, Source, Span
from kcore.spark.export.manifest import (
    JOURNAL,
    MANIFEST,
    MAX_FAULTS,
    ExportedFault,
    ExportedFile,
    ExportedPartition,
    Manifest,
)
from kcore.spark.export.storage import Storage, digest, storage_of

ROWS_PER_FILE = 500_000

TopicFilter = Callable[[str], bool]


class ExportReport(NamedTuple):
    """The result of an export run.

    Attributes:
        files: the number of written files.
        rows: the number of rows in them.
        faults: the unreadable parts.
        begun_late: partitions as (topic, partition, offset). An earlier run began to export the partition at this
            offset. This run requests an earlier start offset, but it does not export the earlier records.
    """

    files: int
    rows: int
    faults: list[LogFault]
    begun_late: list[tuple[str, int, int]]


def export(
    source: Source,
    out: str | Path | Storage,
    *,
    topic_filter: TopicFilter = lambda topic: True,
    start: int = 0,
    stop: int | None = None,
    form: str = "parquet",
    rows_per_file: int = ROWS_PER_FILE,
    on_file: Callable[[ExportedFile], None] = lambda file: None,
    manifest: Manifest | None = None,
) -> ExportReport:
    """Exports the rows of a source that an export does not contain yet.

    An interrupted export resumes where the manifest ends; an unfinished file is discarded.

    Args:
        source: the logs to export.
        out: the export's folder, a path or a URI; created if it does not exist.
        topic_filter: selects topics.
        start: the first offset of every partition.
        stop: the offset before which to stop; None: the end.
        form: one of `manifest.FORMATS`; an export keeps its first format.
        rows_per_file: the maximum number of rows per file.
        on_file: called with each file once it is in the manifest.
        manifest: the result of `open_export`, so that a process that exports repeatedly need not read the manifest
            again.

    Raises:
        KcoreError: the folder holds an export in another format, or a partition of the export belongs to another log.
            In the second case, the error is raised after the export of all other partitions.
    """
    folder = storage_of(out)
    again = manifest is not None and folder.exists(MANIFEST)
    if manifest is None:
        manifest = open_export(folder, form)
    report = ExportReport(0, 0, [], [])
    known_faults, refused = _faults(manifest), list[str]()
    for part in source.parts():
        if topic_filter(part.topic):
            if (cause := _is_other_log(part, manifest)) is not None:
                refused.append(cause)
                continue
            exported = _entry_of(part, manifest, start)
            if exported.requested_start > start:
                report.begun_late.append((*part[:2], exported.requested_start))
            batches = _unexported(source, part, exported, stop, report.faults.append)
            for written in _files(_Pieces(batches), exported, folder, manifest, rows_per_file):
                on_file(written)
                report = report._replace(files=report.files + 1, rows=report.rows + written.count)
    if not again or _faults(manifest) != known_faults or (manifest.noted and not folder.can_append):
        manifest.save(folder)
    if refused:
        raise KcoreError(f"{'; '.join(refused)}: export to another folder")
    return report


def _faults(manifest: Manifest) -> list[list[ExportedFault]]:
    return [list(part.faults) for part in manifest.partitions.values()]


def open_export(folder: str | Path | Storage, form: str) -> Manifest:
    """Opens or creates an export's folder, discards unfinished files, and returns its manifest.

    Raises:
        KcoreError: the folder holds an export in another format, or its manifest cannot be read.
    """
    storage = storage_of(folder)
    storage.prepare()
    manifest = Manifest.load(storage) if storage.exists(MANIFEST) else Manifest(form)
    if manifest.form != form:
        raise KcoreError(f"{storage.uri} contains an export in the format {manifest.form}, not {form}")
    if storage.exists(JOURNAL):
        manifest.save(storage)  # its last line may be incomplete
    _drop_leftovers(storage, manifest)
    return manifest


def _drop_leftovers(storage: Storage, manifest: Manifest) -> None:
    """Removes files that an interrupted run wrote but did not add to the manifest."""
    named = {file.path for part in manifest.partitions.values() for file in part.files}
    for name in filter(_is_data, storage.sizes()):
        if name not in named:
            storage.delete(name)


def _is_data(name: str) -> bool:
    """Returns True for files of partitions: `topic=T/partition=N/FILE`."""
    parts = PurePosixPath(name).parts
    return len(parts) == 3 and parts[0].startswith("topic=") and parts[1].startswith("partition=")


def _is_other_log(part: Part, manifest: Manifest) -> str | None:
    """Returns a text that explains why the exported partition belongs to another log; None if the export can be
    continued.
    """
    exported = manifest.partitions.get(part[:2])
    if exported is None:
        return None
    if exported.topic_id is not None and part.topic_id is not None and exported.topic_id != part.topic_id:
        return f"{part.topic}-{part.partition} has the topic id {part.topic_id}, and the export {exported.topic_id}"
    if exported.files and part.end is not None and part.end < exported.next_offset:
        return f"{part.topic}-{part.partition} ends at {part.end}, before the export at {exported.next_offset}"
    return None


def _entry_of(part: Part, manifest: Manifest, start: int) -> ExportedPartition:
    """Returns a partition's entry in the manifest, after updating it for this run."""
    topic_partition = (part.topic, part.partition)
    exported = manifest.partitions.get(topic_partition)
    if exported is None:
        exported = manifest.partitions[topic_partition] = ExportedPartition(
            *topic_partition,
            max(start, 0),
            log_start=max(start, part.log_start),
            requested_start=max(start if start > part.log_start else 0, part.requested_start),
        )
    marks = [offset for offset in (exported.cleaned_to, part.cleaned_to) if offset is not None]
    exported.cleaned_to = None if part.cleaned_to is None else max(marks)
    exported.active_offset = part.active_offset
    exported.topic_id = part.topic_id or exported.topic_id
    if part.topic == SHARE_GROUP_STATE and part.log_start > exported.next_offset and not part.requested_start:
        # Its coordinator has deleted records that the export lacks. The log from its start contains the whole state.
        exported.log_start, exported.requested_start = part.log_start, 0
    exported.forget_end()
    return exported


def _unexported(
    source: Source, part: Part, exported: ExportedPartition, stop: int | None, on_fault: OnFault
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition that are not exported yet; adds unreadable parts to the manifest."""

    def record(fault: LogFault) -> None:
        on_fault(fault)
        exported.lacks(ExportedFault(fault.offset, fault.kind, fault.detail))

    return source.batches(part, exported.next_offset, stop, record)


def _files(
    pieces: _Pieces, exported: ExportedPartition, folder: Storage, manifest: Manifest, rows_per_file: int
) -> Iterator[ExportedFile]:
    """Writes a partition's files; yields each once it is in the manifest."""
    topic_partition = (exported.topic, exported.partition)
    while (written := _write_file(folder, topic_partition, pieces, manifest.form, rows_per_file)) is not None:
        exported.files.append(written)
        exported.next_offset = written.last_offset + 1
        manifest.note(folder, exported)
        yield written


class _Pieces:
    """The rows of batches, divided into pieces of any size."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, limit: int) -> pa.RecordBatch | None:
        """Returns the next rows, at most `limit`; None if no rows are left or `limit` is 0."""
        if not limit:
            return None
        batch = self._rest if self._rest is not None else next(self._batches, None)
        if batch is None:
            return None
        self._rest = batch.slice(limit) if batch.num_rows > limit else None
        return batch.slice(0, limit)


def _write_file(
    folder: Storage, topic_partition: tuple[str, int], pieces: _Pieces, form: str, rows_per_file: int
) -> ExportedFile | None:
    """Writes the next file of a partition; returns None if no rows are left."""
    piece = pieces.take(rows_per_file)
    if piece is None:
        return None
    topic, partition = topic_partition
    first_offset = piece.column("offset")[0].as_py()
    name = f"topic={quote(topic)}/partition={partition}/{first_offset:020d}.{form}"
    count = 0
    with folder.create(name) as file:
        write, finish = _writer(file, form)
        try:
            while piece is not None:
                write(piece)
                count += piece.num_rows
                last_offset = piece.column("offset")[-1].as_py()
                piece = pieces.take(rows_per_file - count)
        finally:
            finish()  # before the file is closed
    return ExportedFile(name, first_offset, last_offset, count, file.size_bytes, file.sha256)


def _writer(file: Any, form: str) -> tuple[Callable[[pa.RecordBatch], None], Callable[[], None]]:
    if form == "jsonl":
        return lambda batch: file.write(b"".join(map(as_json, from_batch(batch)))), lambda: None
    writer = pq.ParquetWriter(file, EVENT_SCHEMA, compression="zstd")
    return writer.write_batch, writer.close


def as_json(row: EventRow) -> bytes:
    """Returns a row as a line of JSON with bytes in base64, as in Spark's `to_json`."""
    fields = row._asdict()
    fields["key"], fields["value"] = _text(row.key), _text(row.value)
    fields["headers"] = [[name, _text(value)] for name, value in row.headers]
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def of_json(line: bytes) -> EventRow:
    """Parses a line of JSON to a row."""
    fields = parse_json(line)
    fields["key"], fields["value"] = _bytes(fields["key"]), _bytes(fields["value"])
    fields["headers"] = tuple((name, _bytes(value)) for name, value in fields["headers"])
    return EventRow(**fields)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class ExportSource(Source):
    """An export, read by its manifest.

    Args:
        path: the folder of the export, a path or a URI.
        manifest: the content of the export's manifest; None: it is read from the folder.
        opened: opens a file by its name in the manifest; None: files are opened in the folder.
    """

    def __init__(
        self, path: str | Path | Storage, manifest: Manifest | None = None, opened: Callable[[str], Any] | None = None
    ) -> None:
        if manifest is None or opened is None:
            storage = storage_of(path)
        self._manifest = Manifest.load(storage) if manifest is None else manifest
        self._open = storage.open if opened is None else opened

    def parts(self) -> list[Part]:
        """Implements `Source.parts`."""
        return [
            Part(
                *topic_partition,
                part.files[0].first_offset if part.files else part.next_offset,
                part.next_offset,
                # With segments, the offset can only be a broker's checkpoint, which is not certain (see `Part`).
                part.cleaned_to if part.active_offset is None else None,
                part.active_offset,
                part.log_start,
                part.requested_start,
                topic_id=part.topic_id,
            )
            for topic_partition, part in sorted(self._manifest.partitions.items())
        ]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`."""
        for batch in self.read_batches(span):
            yield from from_batch(batch)

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a span without creating an object per row, because Parquet files are read as Arrow."""
        recorded = self._recorded_faults(span)
        for batch in self._rows_of_files(span):
            yield from _interspersed(batch, recorded, span)
        for fault in recorded:
            span.lacks(*fault)

    def _recorded_faults(self, span: Span) -> deque[tuple[int, str, str]]:
        """Returns the unreadable parts that the export recorded in the range of a span, by offset.

        If the range begins at or before the first row, the result includes the unreadable parts before this row. If the
        range reaches the end of the export, the result includes the unreadable parts after the last row.
        """
        exported = self._manifest.partitions[span.part[:2]]
        first = exported.files[0].first_offset if exported.files else exported.next_offset
        reaches_end = span.stop is None or span.stop >= exported.next_offset
        faults = [
            (fault.offset, fault.kind, fault.detail)
            for fault in exported.faults
            if span.has(fault.offset)
            or (fault.offset < first and span.start <= first)
            or (fault.offset >= exported.next_offset and reaches_end)
        ]
        return deque(sorted(faults, key=lambda fault: fault[0]))

    def _rows_of_files(self, span: Span) -> Iterator[pa.RecordBatch]:
        columns, stop = span.columns, span.stop
        names = None if columns is None else [field.name for field in EVENT_SCHEMA if field.name in columns]
        for file in self._manifest.partitions[span.part[:2]].files:
            if file.last_offset < span.start or (stop is not None and file.first_offset >= stop):
                continue

            def report(detail: object, of: ExportedFile = file) -> None:
                span.lacks(of.first_offset, "corrupt", f"{of.path}: {detail}")

            try:
                inside = span.has(file.first_offset) and span.has(file.last_offset)
                for batch in self._file_batches(file.path, report, names):
                    rows = batch if inside else in_range(batch, span.start, stop)
                    if rows.num_rows:
                        yield rows
            except (OSError, ValueError, KeyError, TypeError) as error:  # includes pyarrow's errors
                report(error)

    def _file_batches(
        self, name: str, report: Callable[[object], None], columns: list[str] | None
    ) -> Iterator[pa.RecordBatch]:
        if self._manifest.form == "jsonl":
            with self._open(name) as file:
                yield from to_batches(_json_rows(_lines(file), report))
            return
        with self._open(name) as file, pq.ParquetFile(file) as parquet:
            missing = [each for each in columns or EVENT_SCHEMA.names if each not in parquet.schema_arrow.names]
            if missing:  # without `control` or `transactional`, records would be applied wrongly
                raise ValueError(f"the file lacks the columns {', '.join(missing)}")
            yield from parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)


def _interspersed(batch: pa.RecordBatch, recorded: deque[tuple[int, str, str]], span: Span) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a batch.

    Reports the recorded unreadable parts at the offsets of these rows, and removes them from `recorded`.
    """
    while recorded and recorded[0][0] <= batch.column("offset")[-1].as_py():
        before = bisect_left(batch.column("offset").to_pylist(), recorded[0][0])
        if before:
            yield batch.slice(0, before)
        span.lacks(*recorded.popleft())
        batch = batch.slice(before)
    yield batch


def _lines(file: Any) -> Iterable[bytes]:
    """Returns an iterator over the lines of a pyarrow file, because the file object itself is not iterable."""
    return io.BufferedReader(file)


def _json_rows(lines: Iterable[bytes], report: Callable[[object], None]) -> Iterator[EventRow]:
    """Yields the rows of valid lines; reports other lines."""
    for number, line in enumerate(lines, 1):
        try:
            yield of_json(line)
        except (ValueError, KeyError, TypeError) as error:
            report(f"line {number}: {error}")


def verify(folder: str | Path | Storage) -> list[str]:
    """Returns a description of each fault of an export: missing or changed files, and parts of the source that could
    not be read.

    An empty list means that every file exists unchanged and in order, and that the source was completely readable.

    Raises:
        KcoreError: there is no readable manifest.
    """
    storage = storage_of(folder)
    manifest = Manifest.load(storage)
    sizes = storage.sizes()
    findings: list[str] = []
    named = set()
    for part in manifest.partitions.values():
        findings += _lacking(part)
        behind = 0
        for file in part.files:
            named.add(file.path)
            findings += [f"{file.path}: {fault}" for fault in _file_faults(storage, sizes, file)]
            if file.first_offset < behind:
                findings.append(f"{file.path}: begins at {file.first_offset}, before the end of the previous file")
            behind = file.last_offset + 1
        if part.files and part.next_offset != behind:
            name = f"{part.topic}-{part.partition}"
            findings.append(f"{name}: the manifest continues at {part.next_offset}, but the files end at {behind}")
    return findings + [f"{name}: is not in the manifest" for name in sorted({*filter(_is_data, sizes)} - named)]


def _lacking(part: ExportedPartition) -> Iterator[str]:
    name = f"{part.topic}-{part.partition}"
    for fault in part.faults:
        yield f"{name}@{fault.offset}: {fault.kind} at export: {fault.detail}"
    if len(part.faults) >= MAX_FAULTS:
        yield f"{name}: the manifest lists the maximum number of unreadable parts; there may be more"


def _file_faults(storage: Storage, sizes: Mapping[str, int], file: ExportedFile) -> Iterator[str]:
    size = sizes.get(file.path)
    if size is None:
        yield "is missing"
    elif size != file.size_bytes:
        yield f"has {size} bytes, not {file.size_bytes}"
    elif digest(storage, file.path) != file.sha256:
        yield "was changed: its checksum differs"
    else:
        try:
            count, first, last = _row_range(storage, file.path)
        except (OSError, ValueError, KeyError, TypeError) as error:  # includes pyarrow's errors
            yield f"cannot be read: {error}"
            return
        if (count, first, last) != (file.count, file.first_offset, file.last_offset):
            expected = f"{file.count} of {file.first_offset} to {file.last_offset}"
            yield f"has {count} rows of offsets {first} to {last}, and the manifest says {expected}"


def _row_range(storage: Storage, name: str) -> tuple[int, int, int]:
    """Returns the number of rows of a file of the export, and the first and last offset."""
    if name.endswith(".jsonl"):
        with storage.open(name) as file:
            offsets = [int(parse_json(line)["offset"]) for line in _lines(file)]
    else:
        with storage.open(name) as file, pq.ParquetFile(file) as parquet:
            offsets = parquet.read(columns=["offset"]).column("offset").to_pylist()
    return (len(offsets), offsets[0], offsets[-1]) if offsets else (0, -1, -1)
