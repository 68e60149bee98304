"""`spark.read.format("kcore")`: exports, kcore data folders and raw segment files of Kafka, as one DataFrame.

Options:

    path                 the folder (`.load(path)`)
    topic                one topic, or several separated by commas; default: all
    partition            one partition, or several separated by commas; default: all
    startingOffset       the first offset to read
    endingOffset         the offset before which to stop
    startingTimestamp    in ms since the epoch: rows with earlier timestamps are left out
    endingTimestamp      in ms since the epoch: rows with this or a later timestamp are left out
    rowsPerPartition     the maximum number of offsets per task (default 1000000); 0: one task per partition
    includeBatches       `true`: also rows for batches that compaction has left without records (see `batch_only`)
    includeFaults        `true`: also rows for unreadable parts, with the columns `fault` and `fault_detail`
    pushFilters          `true`: filters on topic, partition and offset limit what is read; requires the Spark
                         setting `spark.sql.python.filterPushdown.enabled`
    maxOffsetsPerTrigger streams: the maximum number of offsets per partition and micro-batch

Spark imports the module `pyspark_kcore` by itself, so no registration is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from kcore.spark.events.arrow import EVENT_DDL, FAULT_DDL, beside_faults, fault_batch
from kcore.spark.events.event import LogFault
from kcore.spark.events.reader_options import names, number, numbers, text, truth
from kcore.spark.events.sources import Part, Source, open_source

ROWS_PER_PARTITION = 1_000_000


@dataclass(frozen=True)
class Range:
    """The part of a source to read.

    Attributes:
        topics: names of the topics to read; None: all topics.
        partitions: numbers of the partitions to read; None: all partitions.
        start: the first offset.
        stop: the offset before which to stop; None: the end.
        from_ms: rows with earlier timestamps are left out.
        until_ms: rows with this timestamp or a later one are left out; None: no limit.
        batches: True to include rows for batches without records.
        faults: True to include rows for unreadable parts.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    stop: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    batches: bool = False
    faults: bool = False

    @classmethod
    def of(cls, options: Any) -> Range:
        """Builds the range from options. Raises ConfigError, with the name of the option, for an invalid value."""
        return cls(
            names(options, "topic"),
            numbers(options, "partition"),
            number(options, "startingOffset", 0) or 0,
            number(options, "endingOffset", 0),
            number(options, "startingTimestamp"),
            number(options, "endingTimestamp"),
            truth(options, "includeBatches"),
            truth(options, "includeFaults"),
        )

    def wants(self, part: Part) -> bool:
        """Returns True if the range includes rows of a partition."""
        return (self.topics is None or part.topic in self.topics) and (
            self.partitions is None or part.partition in self.partitions
        )

    def within(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filters a batch by timestamp and row kind. Its offsets are in range already.

        A row without a timestamp counts as older than any other.
        """
        masks = []
        if not self.batches:
            masks.append(pc.invert(batch.column("batch_only")))
        if self.from_ms is not None or self.until_ms is not None:
            micros = pc.fill_null(batch.column("timestamp").cast(pa.int64()), -1000)
            if self.from_ms is not None:
                masks.append(pc.greater_equal(micros, self.from_ms * 1000))
            if self.until_ms is not None:
                masks.append(pc.less(micros, self.until_ms * 1000))
        return batch.filter(reduce(pc.and_, masks)) if masks else batch

    def narrowed(self, pushed: Filter) -> Range | None:
        """Returns this range narrowed by a filter; None if the filter does not limit topic, partition or offset."""
        column = getattr(pushed, "attribute", None)
        name = column[0] if isinstance(column, tuple) and len(column) == 1 else None
        value: Any = getattr(pushed, "value", None)
        if name == "topic" and isinstance(pushed, EqualTo | In):
            return replace(self, topics=_common(self.topics, _values(pushed)))
        if name == "partition" and isinstance(pushed, EqualTo | In):
            return replace(self, partitions=_common(self.partitions, _values(pushed)))
        if name != "offset" or not isinstance(value, int):
            return None
        if isinstance(pushed, EqualTo):
            return self._offsets(value, value + 1)
        if isinstance(pushed, GreaterThan):
            return self._offsets(value + 1, None)
        if isinstance(pushed, GreaterThanOrEqual):
            return self._offsets(value, None)
        if isinstance(pushed, LessThan):
            return self._offsets(0, value)
        if isinstance(pushed, LessThanOrEqual):
            return self._offsets(0, value + 1)
        return None

    def _offsets(self, start: int, stop: int | None) -> Range:
        stops = [limit for limit in (self.stop, stop) if limit is not None]
        return replace(self, start=max(self.start, start), stop=min(stops) if stops else None)


def _values(pushed: Any) -> frozenset[Any]:
    values = pushed.value
    return frozenset(values if isinstance(values, tuple | list) else (values,))


def _common(one: frozenset[Any] | None, other: frozenset[Any]) -> frozenset[Any]:
    return other if one is None else one & other


Piece = tuple[Part, int, int | None]
"""A range of a partition: the partition, the first offset, and the offset before which to stop (None: the log's end).
"""


@dataclass
class Slice(InputPartition):
    """The input of one task: offset ranges of some partitions.

    Attributes:
        pieces: the ranges, in order.
    """

    pieces: tuple[Piece, ...]

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


def slices(source: Source, wanted: Range, rows_per_slice: int) -> list[Slice]:
    """Divides a source among tasks.

    Large partitions are split. A source that allows only one reader becomes one task.
    """
    pieces: list[Piece] = []
    for part in source.parts():
        if not wanted.wants(part):
            continue
        start, stop = max(wanted.start, part.start), wanted.stop
        if part.end is not None:
            stop = part.end if stop is None else min(stop, part.end)
        if stop is None or not rows_per_slice or not source.parallel:
            if stop is None or start < stop:
                pieces.append((part, start, stop))
            continue
        firsts = range(start, stop, rows_per_slice)
        pieces.extend((part, first, min(first + rows_per_slice, stop)) for first in firsts)
    return slices_of(source, pieces)


def slices_of(source: Source, pieces: Sequence[Piece]) -> list[Slice]:
    """Returns one slice per piece, or one slice for all pieces if the source allows only one reader at a time."""
    if source.parallel:
        return [Slice((piece,)) for piece in pieces]
    return [Slice(tuple(pieces))] if pieces else []


def read_slice(path: str, wanted: Range, part: Slice) -> Iterator[Any]:
    """Yields the record batches of a slice, followed by batches with the slice's unreadable parts (`LogFault`), if the
    range includes them.
    """
    faults: list[LogFault] = []
    with open_source(path) as source:
        for place, start, stop in part.pieces:
            batches = map(wanted.within, source.batches(place, start, stop, faults.append))
            yield from map(beside_faults, batches) if wanted.faults else batches
    if wanted.faults and faults:
        yield fault_batch(faults)


class KcoreDataSource(DataSource):
    """The data source `kcore`. The module's docstring lists its options."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the data source, which users pass to `spark.read.format`."""
        return "kcore"

    def schema(self) -> str:
        """Returns the columns, defined in `kcore.spark.events.arrow`."""
        return f"{EVENT_DDL}, {FAULT_DDL}" if truth(self.options, "includeFaults") else EVENT_DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """Returns the reader for `spark.read`.

        Only the option `pushFilters` enables filter pushdown. Spark refuses a reader with pushdown if its setting
        `spark.sql.python.filterPushdown.enabled` is not true.
        """
        kind = PushingReader if truth(self.options, "pushFilters") else KcoreReader
        return kind(text(self.options, "path"), Range.of(self.options), self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Returns the reader for `spark.readStream`."""
        from kcore.spark.events.stream import KcoreStreamReader  # noqa: PLC0415

        return KcoreStreamReader(text(self.options, "path"), Range.of(self.options), self.options)


class KcoreReader(DataSourceReader):
    """The reader of the current content of a folder."""

    def __init__(self, path: str, wanted: Range, options: Any) -> None:
        self._path = path
        self._wanted = wanted
        size = number(options, "rowsPerPartition", 0)
        self._rows_per_slice = ROWS_PER_PARTITION if size is None else size

    def partitions(self) -> list[Slice]:
        """Returns the inputs of the tasks."""
        with open_source(self._path) as source:
            return slices(source, self._wanted, self._rows_per_slice)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields one task's record batches. If there are no slices, Spark passes an empty partition."""
        return read_slice(self._path, self._wanted, partition) if isinstance(partition, Slice) else iter(())


class PushingReader(KcoreReader):
    """A reader with filter pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Applies filters on topics, partitions and offsets to the range.

        Yields the other filters, which Spark applies itself.
        """
        for pushed in filters:
            narrowed = self._wanted.narrowed(pushed)
            if narrowed is None:
                yield pushed
            else:
                self._wanted = narrowed
