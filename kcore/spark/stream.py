"""`spark.readStream.format("kcore")`: a folder that grows, read once, however often a query is stopped.

A stream's position is how far each partition was read. It lies in the query's own checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from kcore.spark.datasource import Piece, Range, Slice, read_slice, slices_of
from kcore.spark.sources import Part, Source, open_source

Offsets = dict[str, int]
"""Partition (`TOPIC-NUMBER`) -> the offset that comes next."""


def name_of(part: Part) -> str:
    """A partition as positions name it."""
    return f"{part.topic}-{part.partition}"


class KcoreStreamReader(DataSourceStreamReader):
    """Reads what was added to a folder since the last micro-batch."""

    def __init__(self, path: str, wanted: Range, options: Any) -> None:
        self._path = path
        self._wanted = wanted
        limit = options.get("maxOffsetsPerTrigger")
        self._limit = None if limit is None else int(limit)
        self._given: Offsets = {}

    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """Before everything."""
        return {}

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
