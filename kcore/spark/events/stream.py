"""`spark.readStream.format("kcore")`: a folder that grows, read once, however often a query is stopped.

A stream's position is how far each partition was read. It lies in the query's own checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from kcore.spark.events.datasource import Piece, Range, Slice, read_slice, slices_of
from kcore.spark.events.reader_options import number
from kcore.spark.events.sources import Part, Source, open_source

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # an older Spark, which takes one micro-batch then

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nobody asks for it."""


Offsets = dict[str, int]
"""Partition (`TOPIC-NUMBER`) -> the offset that comes next."""


def name_of(part: Part) -> str:
    """A partition as positions name it."""
    return f"{part.topic}-{part.partition}"


class KcoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what was added to a folder since the last micro-batch."""

    def __init__(self, path: str, wanted: Range, options: Any) -> None:
        self._path = path
        self._wanted = wanted
        self._limit = number(options, "maxOffsetsPerTrigger", 1)
        self._given: Offsets = {}
        self._last: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """Before everything."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """What there is now is all that will be read, in as many micro-batches as the limit makes of it."""
        ends: Offsets = {}
        with open_source(self._path) as source:
            for part in source.parts():
                if self._wanted.wants(part):
                    ends[name_of(part)] = part.end if part.end is not None else _end_of(source, part, part.start)
        self._last = ends

    def latestOffset(self, start: Any = None, limit: Any = None) -> Offsets:  # noqa: N802  # Spark's name
        """Where the folder ends now, or where the limit does."""
        position: Offsets = dict(start or self._given)
        with open_source(self._path) as source:
            for part in source.parts():
                if self._wanted.wants(part):
                    self._advance(source, part, position)
        self._given = position
        return position

    def _advance(self, source: Source, part: Part, position: Offsets) -> None:
        first = max(position.get(name_of(part), 0), self._wanted.start, part.start)
        end = part.end if part.end is not None else _end_of(source, part, first)
        if self._wanted.stop is not None:
            end = min(end, self._wanted.stop)
        if self._last is not None:
            end = min(end, self._last.get(name_of(part), 0))
        if self._limit is not None:
            end = min(end, first + self._limit)
        if end > first:
            position[name_of(part)] = end

    def partitions(self, start: Offsets, end: Offsets) -> list[Slice]:
        """What the tasks of a micro-batch read."""
        with open_source(self._path) as source:
            pieces: list[Piece] = [
                (part, max(start.get(name_of(part), 0), self._wanted.start), end[name_of(part)])
                for part in source.parts()
                if end.get(name_of(part), 0) > start.get(name_of(part), 0)
            ]
            return slices_of(source, pieces)

    def read(self, partition: Any) -> Iterator[Any]:
        """One task's record batches."""
        return read_slice(self._path, self._wanted, partition)

    def commit(self, end: Offsets) -> None:
        """Nothing is kept here of what was read."""


def _end_of(source: Source, part: Part, start: int) -> int:
    """Where a partition of raw segments ends: only reading tells."""
    end = start
    for row in source.rows(part, start):
        end = row.offset + 1
    return end
