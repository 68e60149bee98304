"""Sources of event rows with one interface: raw segment files, kcore data folders, exports and running servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.errors import KcoreError
from kcore.protocol.batch_layout import HEADER_BYTES
from kcore.protocol.records.base import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.spark.events import segments
from kcore.spark.events.event import EventRow, LogFault

if TYPE_CHECKING:
    import pyarrow as pa

    from kcore.log import LogEngine, PartitionLog
    from kcore.log.interface import PartitionKey
    from kcore.node._sync.node import Node
    from kcore.spark.events.batches import Header

OnFault = Callable[[LogFault], None]


def ignore(fault: LogFault) -> None:
    """Ignores an unreadable part of a log."""


class Part(NamedTuple):
    """One partition of a source.

    Attributes:
        topic: the name of the partition's topic.
        partition: the partition's number.
        start: the first available offset.
        end: the offset after the last record; None if the source does not know it without reading the log.
        cleaned_to: the offset up to which compaction has run; None if not known for certain. A broker's checkpoint is
            not certain: the cleaner replaces a log's files one by one and writes the checkpoint afterwards.
        active_offset: the base offset of the newest segment, which is never compacted; None without segments.
        log_start: the offset at which the log begins. If it is above 0, earlier records are missing, but not because of
            compaction.
        requested_start: the requested start offset of an export, if this offset is after the start of the log; else 0.
        leftovers: files with parts of the log that are not read.
        topic_id: the id of the topic in hexadecimal digits, which changes if a topic is created again; None if
            unknown.
    """

    topic: str
    partition: int
    start: int = 0
    end: int | None = None
    cleaned_to: int | None = None
    active_offset: int | None = None
    log_start: int = 0
    requested_start: int = 0
    leftovers: tuple[str, ...] = ()
    topic_id: str | None = None

    @property
    def front(self) -> str | None:
        """A sentence on missing records at the start of the log; None if there is no loss to report.

        In topics that are not compacted, retention deletes old records. These deletions are not reported.
        """
        if not self.requested_start and not (self.log_start and self.topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)):
            return None
        why = ", as requested" if self.requested_start else ""
        return f"the log begins at offset {self.log_start}{why}: earlier records are missing"


def no_files(part: Part) -> list[Any]:
    """Returns an empty list: the default of `Source.beside`, for sources that have only the log itself."""
    return []


class Span(NamedTuple):
    """A range of one partition to read from a source.

    Attributes:
        part: the partition, as returned by `Source.parts`.
        start: the first offset to read.
        stop: the offset before which to stop; None: the end.
        on_fault: receives a `LogFault` for each unreadable part of the log.
        columns: the needed columns, including `offset`; None: all. The source may leave out the other columns.
    """

    part: Part
    start: int = 0
    stop: int | None = None
    on_fault: OnFault = ignore
    columns: Collection[str] | None = None

    def has(self, offset: int) -> bool:
        """Returns True if an offset is in the range."""
        return offset >= self.start and (self.stop is None or offset < self.stop)

    def lacks(self, offset: int, kind: str, detail: str) -> None:
        """Reports an unreadable part of the log. `LogFault` documents the arguments."""
        self.on_fault(LogFault(self.part.topic, self.part.partition, offset, kind, detail))


class Source(ABC):
    """Partitions of event logs.

    Attributes:
        parallel: True if several processes may read it at once.
        beside: returns the content of other files of a partition, such as its checkpoint, as buffers of pyarrow.
    """

    parallel = True
    beside: Callable[[Part], list[Any]] = staticmethod(no_files)

    @abstractmethod
    def parts(self) -> list[Part]:
        """Returns the source's partitions, by topic and number."""

    def rows(
        self, part: Part, start: int = 0, stop: int | None = None, on_fault: OnFault = ignore
    ) -> Iterator[EventRow]:
        """Yields a partition's rows in offset order, each offset once. `Span` documents the arguments."""
        return self.read_rows(Span(part, start, stop, on_fault))

    def batches(
        self,
        part: Part,
        start: int = 0,
        stop: int | None = None,
        on_fault: OnFault = ignore,
        columns: Collection[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows as record batches of `kcore.spark.events.arrow.EVENT_SCHEMA`.

        `Span` documents the arguments.
        """
        return self.read_batches(Span(part, start, stop, on_fault, columns))

    @abstractmethod
    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Yields the rows of a span; implements `rows`."""

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yields the record batches of a span; implements `batches`."""
        from kcore.spark.events.arrow import to_batches  # noqa: PLC0415

        return to_batches(self.read_rows(span))

    def close(self) -> None:  # noqa: B027  # most sources hold no open files
        """Closes open files."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SegmentSource(Source):
    """A log folder of a Kafka broker, or a copy of parts of one.

    Args:
        path: the folder.
        partitions: the partitions in the folder; None: they are found by listing the folder.
        read: returns the content of a file by its path in `partitions`.
    """

    def __init__(
        self,
        path: str | Path,
        partitions: Iterable[segments.SegmentPartition] | None = None,
        read: segments.ReadFile = segments.mapped,
    ) -> None:
        found = segments.find_partitions(path) if partitions is None else partitions
        self._parts = {part[:2]: part for part in found}
        self._read = read

    def parts(self) -> list[Part]:
        """Implements `Source.parts`."""
        return [
            Part(
                part.topic,
                part.partition,
                part.first_offset,
                active_offset=part.active_offset,
                log_start=part.first_offset,
                leftovers=part.leftovers,
                topic_id=segments.topic_id_of(part) if self._read is segments.mapped else None,
            )
            for part in self._parts.values()
        ]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`."""
        return segments.read_rows(self._parts[span.part[:2]], span.start, span.stop, span.on_fault, self._read)

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Implements `Source.read_batches`."""
        return segments.read_batches(self._parts[span.part[:2]], span.start, span.stop, span.on_fault, read=self._read)


class FolderSource(Source):
    """A kcore data folder that no server has open. One process at a time can open it."""

    parallel = False

    def __init__(self, path: str | Path) -> None:
        try:
            from kcore.inspect.sources import topic_names  # noqa: PLC0415
            from kcore.log import LmdbLogEngine, check_folder  # noqa: PLC0415
        except ImportError as error:
            raise KcoreError(
                f"{path} is a data folder, and only kcore's compiled extension can read it: export the folder "
                "with `kcore export` and read the export"
            ) from error
        check_folder(path)
        self._engine = LmdbLogEngine(path, create=False)
        names = topic_names(self._engine)
        self._keys = {
            (names[key.topic_id], key.partition): key for key in self._engine.partitions() if key.topic_id in names
        }

    _engine: LogEngine
    _keys: dict[tuple[str, int], PartitionKey]

    def _log(self, key: PartitionKey) -> PartitionLog:
        """Returns the log of a partition."""
        return self._engine.open(key)

    def parts(self) -> list[Part]:
        """Implements `Source.parts`."""
        found = []
        for (topic, partition), key in sorted(self._keys.items()):
            log = self._log(key)
            start, topic_id = log.log_start_offset, key.topic_id.hex()
            marks = (start, log.high_watermark, log.cleaned_to)
            found.append(Part(topic, partition, *marks, log_start=start, topic_id=topic_id))
        return found

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`."""
        from kcore.spark.events.batches import BatchError, rows_of  # noqa: PLC0415

        for first, batch in self._stored(span):
            try:
                for row in rows_of(*span.part[:2], batch):
                    if row.offset >= first and span.has(row.offset):
                        yield row
            except BatchError as fault:
                span.lacks(fault.offset, fault.kind, str(fault))

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Implements `Source.read_batches`."""
        from kcore.spark.events.arrow import BATCH_ROWS  # noqa: PLC0415
        from kcore.spark.events.batches import BatchError, gatherer  # noqa: PLC0415

        gathered = gatherer(*span.part[:2])
        for first, batch in self._stored(span):
            try:
                gathered.add(batch, first, span.stop)
            except BatchError as fault:
                span.lacks(fault.offset, fault.kind, str(fault))
            if len(gathered) >= BATCH_ROWS:
                yield gathered.take()
        if len(gathered):
            yield gathered.take()

    def _stored(self, span: Span) -> Iterator[tuple[int, bytes]]:
        """Yields the intact batches of a span, each with the first offset to read."""
        from kcore.spark.events.around_damage import around_damage  # noqa: PLC0415
        from kcore.spark.events.batches import BatchError, check  # noqa: PLC0415

        log = self._log(self._keys[span.part[:2]])
        first = max(span.start, log.log_start_offset)
        if first >= log.high_watermark:
            return
        for base, batch in around_damage(log, first, span.stop, span.lacks):
            try:
                header = check(memoryview(batch), 0)
            except BatchError as fault:
                span.lacks(base, fault.kind, str(fault))
            else:
                yield first, batch
                # A leader may compact the log meanwhile: its next batch may repeat records of this one.
                first = max(first, header.last_offset + 1)

    def close(self) -> None:
        """Implements `Source.close`."""
        self._engine.close()


class ServerSource(Source):
    """The topics of a running cluster, kcore's or any Kafka-compatible one, read through Fetch.

    Args:
        node: the cluster, or an embedded engine.
        topics: the topics to read; None: all.
    """

    parallel = False
    FETCH_BYTES = 4 << 20

    def __init__(self, node: Node, topics: Collection[str] | None = None) -> None:
        self._node = node
        self._topics = topics

    def parts(self) -> list[Part]:
        """Implements `Source.parts`. Raises KafkaError if a partition's leader refuses."""
        topics = [topic for topic in self._node.topics.describe() if self._topics is None or topic.name in self._topics]
        partitions = [(topic.name, row.partition) for topic in topics for row in topic.partitions]
        ids = {topic.name: topic.id.hex() if any(topic.id) else None for topic in topics}
        starts = self._node.topics.start_offsets(partitions)
        ends = self._node.topics.end_offsets(partitions, isolation="read_uncommitted")
        missing = [f"{topic}-{number}" for topic, number in partitions if (topic, number) not in starts.keys() & ends]
        if missing:
            raise KcoreError(f"partitions without a leader, or just deleted: {', '.join(sorted(missing))}; try again")
        return [
            Part(*place, starts[place], ends[place], log_start=starts[place], topic_id=ids[place[0]])
            for place in sorted(starts)
        ]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Implements `Source.read_rows`. Raises KafkaError if the partition's leader refuses."""
        part = span.part
        position = max(span.start, part.start)
        end = part.end if span.stop is None or part.end is None else min(part.end, span.stop)
        topic = self._node.topics[part.topic]
        while end is None or position < end:
            records = memoryview(topic.read_batches(part.partition, position, max_bytes=self.FETCH_BYTES))
            before = position
            position = yield from response_rows(part, records, position, end, span.on_fault)
            if position == before:
                return


def response_rows(
    part: Part, records: memoryview, first: int, end: int | None, on_fault: OnFault
) -> Generator[EventRow, None, int]:
    """Yields the rows of a Fetch response.

    Args:
        part: the requested partition.
        records: the received batches; the last batch may be cut short.
        first: the requested offset: earlier rows of its batch are left out.
        end: the offset before which to stop; None: no limit.
        on_fault: receives a `LogFault` for each unreadable part of the log.

    Returns:
        The next offset.
    """
    from kcore.spark.events.batches import BatchError, check, rows_of  # noqa: PLC0415

    at, position = 0, first
    while at < len(records):
        size_bytes = 0
        try:
            header = check(records, at)
            size_bytes = header.size_bytes
            _check_order(header, records, at, position)
            for row in rows_of(part.topic, part.partition, bytes(records[at : at + size_bytes])):
                if row.offset >= first and (end is None or row.offset < end):
                    yield row
            position = max(position, header.last_offset + 1)
        except BatchError as fault:
            if fault.kind == "truncated":
                break  # the response was full: the next one contains the whole batch
            size_bytes = size_bytes or fault.size_bytes
            if not size_bytes and position > first:
                break  # the next response begins with this batch
            # Without a size, the start of the next batch is unknown.
            rest = "" if size_bytes else "; the records after it were not read"
            on_fault(LogFault(part.topic, part.partition, position, fault.kind, f"{fault}{rest}"))
            if not size_bytes:
                break
            position = _position_after(records, at, size_bytes, position)
        at += size_bytes
    return position


def _check_order(header: Header, records: memoryview, at: int, position: int) -> None:
    """Checks the base offset of a batch against the batches before and after it, because the CRC does not cover it.

    Args:
        header: the header of the batch.
        records: the batches of a Fetch response, as bytes.
        at: the position of the batch in `records`.
        position: the offset after the previous batch, or the requested offset, which the first batch may contain.

    Raises:
        BatchError: the batch overlaps the previous batch. Or it leaves a gap to the previous batch, and overlaps the
            next batch.
    """
    from kcore.spark.events.batches import BatchError  # noqa: PLC0415

    following = _next_base(records, at + header.size_bytes)
    if header.last_offset < position or (at > 0 and header.base_offset < position):
        detail = f"the batch at position {at} has base offset {header.base_offset}, but follows offset {position - 1}"
        raise BatchError("corrupt", detail, header.size_bytes, header.base_offset)
    if following is not None and position < header.base_offset and position <= following <= header.last_offset:
        detail = f"the batch at position {at} has last offset {header.last_offset}, but precedes offset {following}"
        raise BatchError("corrupt", detail, header.size_bytes, header.base_offset)


def _next_base(records: memoryview, at: int) -> int | None:
    """Returns the base offset at a position of a response, or None at its end."""
    return int.from_bytes(records[at : at + 8], "big", signed=True) if len(records) - at >= HEADER_BYTES else None


def _position_after(records: memoryview, at: int, size_bytes: int, position: int) -> int:
    """Returns the offset at which to continue after a damaged batch.

    The offset follows from the header of the damaged batch, and from the base offset of the next batch, which limits
    it.

    Args:
        records: the batches of a Fetch response, as bytes.
        at: the position of the damaged batch in `records`.
        size_bytes: the size of the damaged batch.
        position: the offset after the previous batch, which is the lower limit of the result.
    """
    base = int.from_bytes(records[at : at + 8], "big", signed=True)
    last_delta = max(int.from_bytes(records[at + 23 : at + 27], "big", signed=True), 0)
    following = _next_base(records, at + size_bytes)
    if base < position or (following is not None and base >= following):
        base = position  # the base offset is damaged
    behind = base + last_delta + 1
    return behind if following is None else max(position, min(behind, following))


def open_source(path: str | Path) -> Source:
    """Opens the source at a path or URL: an export, a broker's log folder, a kcore data folder, or a cluster's store.

    An export may be at a URI of another file system; pyarrow reads it. Jobs read URIs through Spark instead
    (`kcore.spark.frames.logs`).

    Raises:
        KcoreError: the folder is not a source. If some of its subfolders are sources, the message names them.
    """
    from kcore.spark.export.manifest import MANIFEST  # noqa: PLC0415
    from kcore.spark.export.storage import local_path  # noqa: PLC0415

    if is_cluster(path):
        from kcore.spark.events.cluster_source import ClusterSource  # noqa: PLC0415

        return ClusterSource(str(path))
    local = local_path(path)
    if local is None:
        from kcore.spark.export.exporter import ExportSource  # noqa: PLC0415

        return ExportSource(path)
    path = local
    if (path / MANIFEST).is_file():
        from kcore.spark.export.exporter import ExportSource  # noqa: PLC0415

        return ExportSource(path)
    if not path.is_dir():
        raise KcoreError(f"{path} is not a folder")
    if segments.find_partitions(path):
        return SegmentSource(path)
    if not (path / DATA_FILE).is_file() and (inside := _log_folders(path)):
        raise KcoreError(f"{path} contains no logs, but its subfolders do: name one of {', '.join(inside)}")
    if not (path / DATA_FILE).is_file():
        raise KcoreError(
            f"{path} contains no logs: neither an export ({MANIFEST}), nor the segment files of a broker "
            f"(TOPIC-PARTITION/*.log), nor a data folder ({DATA_FILE})"
        )
    return FolderSource(path)


def is_cluster(place: str | Path) -> bool:
    """Returns True for the URL of the store of a cluster."""
    return isinstance(place, str) and place.startswith(CLUSTER_SCHEMES)


CLUSTER_SCHEMES = ("postgresql://", "postgres://", "local://", "memory://")
"""Prefixes of the URLs of clusters, as in `kcore.cluster.urls.FACTORIES`.

This module repeats them, because only jobs that read the store of a cluster import `kcore.cluster.urls`.
"""

DATA_FILE = "data.mdb"
"""The name of the file by which kcore recognizes its data folder.

It is repeated in this module, because the module that defines it needs the extension.
"""


def _log_folders(path: Path) -> list[str]:
    """Returns the subfolders that are sources themselves, because a broker may have several log folders."""
    from kcore.spark.export.manifest import MANIFEST  # noqa: PLC0415

    return [
        str(folder)
        for folder in sorted(path.iterdir())
        if folder.is_dir()
        and ((folder / MANIFEST).is_file() or (folder / DATA_FILE).is_file() or segments.find_partitions(folder))
    ]
