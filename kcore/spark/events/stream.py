"""`spark.readStream.format("kcore")`: a stream of the rows that are added to a folder.

The stream's position is the next offset of each partition. Spark stores the position in the query's checkpoint, so the
query processes each row once, even if it is restarted.
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
except ImportError:  # an older Spark; it reads everything in one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """The base class of Spark's streams with a limit, for versions of Spark that do not have it."""


Offsets = dict[str, int]
"""The position of a stream: a mapping from the partition (`TOPIC-NUMBER`) to the next offset."""


def name_of(part: Part) -> str:
    """Returns the name of a partition in the position of a stream: `TOPIC-NUMBER`."""
    return f"{part.topic}-{part.partition}"


class KcoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of the rows added to a folder since the last micro-batch."""

    def __init__(self, path: str, wanted: Range, options: Any) -> None:
        self._path = path
        self._wanted = wanted
        self._limit = number(options, "maxOffsetsPerTrigger", 1)
        self._given: Offsets = {}
        self._last: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802  # Spark's name
        """Returns the position before all rows."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Limits the query to the current content. `maxOffsetsPerTrigger` determines the number of micro-batches."""
        ends: Offsets = {}
        with open_source(self._path) as source:
            for part in source.parts():
                if self._wanted.wants(part):
                    ends[name_of(part)] = part.end if part.end is not None else _end_of(source, part, part.start)
        self._last = ends

    def latestOffset(self, start: Any = None, limit: Any = None) -> Offsets:  # noqa: N802  # Spark's name
        """Returns the current end of the folder, or an earlier position because of `maxOffsetsPerTrigger`."""
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
        """Returns the inputs of a micro-batch's tasks."""
        with open_source(self._path) as source:
            pieces: list[Piece] = [
                (part, max(start.get(name_of(part), 0), self._wanted.start), end[name_of(part)])
                for part in source.parts()
                if end.get(name_of(part), 0) > start.get(name_of(part), 0)
            ]
            return slices_of(source, pieces)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yields one task's record batches."""
        return read_slice(self._path, self._wanted, partition)

    def commit(self, end: Offsets) -> None:
        """Does nothing: the reader keeps no state of committed micro-batches."""


def _end_of(source: Source, part: Part, start: int) -> int:
    """Returns the end offset of a partition of raw segments. Reads the segments to find it."""
    end = start
    for row in source.rows(part, start):
        end = row.offset + 1
    return end
