"""Reports the uncertainties of a rebuild, as rows of its tables and as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.parquet as pq

from kcore.printable import counted
from kcore.protocol.records.base import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.spark.state.absent import Absent, PlacedId
from kcore.spark.state.table_batches import TableBatch, rows_batch
from kcore.spark.state.table_files import WrittenFile

if TYPE_CHECKING:
    from kcore.spark.events.sources import Part

ID_COLUMNS: Final = {"groups": (CONSUMER_OFFSETS, "group_id"), "transactions": (TRANSACTION_STATE, "transactional_id")}
"""Table -> the internal topic, and the column of the ids whose hashes determine the partitions of this topic."""
IDS: Final = 10_000
"""Maximum number of ids to read from each file: enough to infer the partition count of a topic."""

NAMED: Final = ("absent", "missing", "front")
"""Kinds of faults (`LogFault`) that affect a whole log or file. The report lists the first `SHOWN` of these faults."""
SHOWN: Final = 50


def placed_ids(written: Iterable[WrittenFile], folder: Path) -> Iterator[PlacedId]:
    """Yields a sample of the ids in each table file, with the partitions that contain the ids."""
    for one in written:
        if one.table in ID_COLUMNS:
            topic, column = ID_COLUMNS[one.table]
            with pq.ParquetFile(folder / one.table / one.file) as file:
                batch = next(file.iter_batches(IDS, columns=["coordinator_partition", column]), None)
            if batch is not None:
                rows = zip(*(batch.column(index).to_pylist() for index in range(2)), strict=True)
                yield from (PlacedId(topic, partition, name) for partition, name in rows)


def absent_rows(absent: Iterable[Absent]) -> Iterator[TableBatch]:
    """Yields the rows of the tables `partitions` and `faults` for missing partitions."""
    for of_topic in absent:
        partitions = [
            {"coordinator_partition": partition, "topic": of_topic.topic} for partition in of_topic.partitions
        ]
        nowhere = dict.fromkeys(("first_offset", "next_offset", "last_stable_offset", "last_timestamp_ms"), -1)
        empty = {**nowhere, "complete": False, "lost": True, "records": 0, "unknown": 0, "faults": 1}
        yield "partitions", rows_batch("partitions", [{**partition, **empty} for partition in partitions])
        fault = {"offset": -1, "kind": "absent", "detail": of_topic.sentence}
        yield "faults", rows_batch("faults", [{**partition, **fault} for partition in partitions])


class Uncertainties(NamedTuple):
    """The uncertainties of a rebuilt state: data that is, or may be, missing or wrong.

    Attributes:
        lines: the messages for people.
        are_grave: True if data is known to be wrong or missing; False if a loss is only possible.
    """

    lines: list[str]
    are_grave: bool


Offsets = Mapping[tuple[str, int], int]
"""A mapping from (topic, partition) to an offset."""


def beyond_end(parts: Iterable[Part], offsets: Offsets) -> tuple[list[str], dict[tuple[str, int], int]]:
    """Finds the partitions whose logs end before the offset at which a rebuild was requested to stop.

    Args:
        parts: the partitions, with the ends of their logs.
        offsets: (topic, partition) -> the offset before which to stop.

    Returns:
        A message for each log that ends before its offset in `offsets`. Also the items of `offsets` for the logs whose
        ends are unknown.
    """
    lines, unknown = [], {}
    for part in parts:
        offset = offsets.get(part[:2])
        if offset is None:
            continue
        if part.end is None:
            unknown[part[:2]] = offset
        elif part.end < offset:
            lines.append(
                f"{part.topic}-{part.partition} ends at offset {part.end}, before {offset}: the state is as of its end"
            )
    return lines, unknown


def without_records(partitions: Iterable[tuple[str, int, int]], offsets: Offsets) -> list[str]:
    """Returns a message for each partition whose rebuilt state ends before its offset in `offsets`.

    Args:
        partitions: the topic, the partition and `next_offset` of rows of the table `partitions`.
        offsets: (topic, partition) -> the offset before which to stop.
    """
    return [
        f"{topic}-{partition} has no records from offset {end} up to {offsets[topic, partition]}"
        for topic, partition, end in sorted(partitions)
        if end < offsets.get((topic, partition), end)
    ]


def before_all(timestamp_ms: int | None, rows: Mapping[str, int]) -> list[str]:
    """Returns a message if a state as of a time has no rows.

    Args:
        timestamp_ms: the time; None: the state is not as of a time.
        rows: the number of rows of each table. The tables `partitions` and `faults` describe the logs, not the state.
    """
    if timestamp_ms is None or any(count for table, count in rows.items() if table not in ("partitions", "faults")):
        return []
    return [f"the state as of {timestamp_ms} ms since the epoch is empty"]


def uncertainties_of(out: str | Path, offsets: Offsets = MappingProxyType({})) -> Uncertainties:
    """Returns the uncertainties that the tables `partitions` and `faults` of a rebuild show.

    Args:
        out: the folder of the rebuild's tables.
        offsets: (topic, partition) -> the offset before which to stop, for partitions whose log end is unknown.
    """
    columns = ["topic", "coordinator_partition", "next_offset", "complete", "lost", "holes_to"]
    partitions = pq.read_table(Path(out) / "partitions", columns=columns).to_pylist()
    faults = pq.read_table(Path(out) / "faults").to_pylist()
    named = sorted(
        (row["topic"], row["coordinator_partition"], row["offset"], row["detail"])
        for row in faults
        if row["kind"] in NAMED
    )
    lost = sum(row["lost"] for row in partitions)
    compacted = sum(not row["complete"] and not row["lost"] for row in partitions)
    holes = sum(row["holes_to"] is not None and not row["lost"] for row in partitions)
    ends = without_records((tuple(row.values())[:3] for row in partitions), offsets)
    return uncertainties(DoubtCounts(lost, compacted, holes, len(faults), len(named)), named[:SHOWN], ends)


class DoubtCounts(NamedTuple):
    """The counts from which `uncertainties` makes messages.

    Attributes:
        lost: the number of partitions that lack parts of their logs.
        compacted: the number of partitions that were compacted after the moment that the state shows.
        holes: the number of partitions in which the loss of a file would not be detected.
        faults: the number of rows of the table `faults`: records, and parts of logs, that could not be read or applied.
        named: the number of rows of the table `faults` about a whole log or file.
    """

    lost: int
    compacted: int
    holes: int
    faults: int
    named: int


def uncertainties(
    counts: DoubtCounts, named: Iterable[tuple[str, int, int, str]], ends: Iterable[str] = ()
) -> Uncertainties:
    """Makes the messages about data that is, or may be, missing or wrong in a rebuilt state.

    Args:
        counts: the numbers in the messages.
        named: rows of the table `faults` that are about a whole log or file: topic, partition, offset and detail of the
            first `SHOWN` of these rows.
        ends: the messages of `without_records`.
    """
    lines = [*ends, *(f"{topic}-{partition}: {detail}" for topic, partition, _, detail in named)]
    lost, compacted, holes, faults, of_files = counts
    if of_files > SHOWN:
        lines.append(f"and {of_files - SHOWN} more missing logs and files; see the table `faults`")
    if lost:
        lines.append(f"{_are(lost)} not complete: parts of their logs are missing; see the table `partitions`")
    if compacted:
        lines.append(f"{_are(compacted)} not complete: compacted since then; see the table `partitions`")
    if faults:
        what = "record or part" if faults == 1 else "records or parts"
        lines.append(f"{faults} {what} could not be read or applied; see the table `faults`")
    if holes:
        were = "was" if holes == 1 else "were"
        lines.append(
            f"{counted(holes, 'partitions')} {were} compacted: the loss of a file there would go unnoticed; see "
            "`holes_to`"
        )
    return Uncertainties(lines, bool(lost or compacted or faults))


def _are(count: int) -> str:
    """Returns the beginning of a sentence about some partitions: "1 partition is" or "3 partitions are"."""
    return f"{counted(count, 'partitions')} {'is' if count == 1 else 'are'}"
