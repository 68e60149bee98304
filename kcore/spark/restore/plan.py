"""The plan of a restore: committed offsets with their changes and reasons, the input of `kcore offsets apply`.

A JSON plan is one object with one row per line. The first line of a CSV plan is a comment with the same object, but
without its rows. Both formats have the same content, ordered by group, topic and partition. They contain no creation
time and no host, so the same source, moment and target give the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kcore.errors import KcoreError
from kcore.json_text import parse_json
from kcore.protocol.topic_partition import TopicPartition
from kcore.spark.export.storage import write_whole

FORMAT: Final = "kcore-restore-plan"
VERSION: Final = 1

SET: Final = "set"
"""Action of a row: commit the offset."""
SKIP: Final = "skip"
"""Action of a row: leave the offset unchanged."""
REFUSE: Final = "refuse"
"""Action of a row whose offset cannot or must not be restored. The row contains the reason."""
UNCHECKED: Final = "unchecked"
"""Action of a row that cannot be applied, because the plan was made without a target."""
ACTIONS: Final = (SET, SKIP, REFUSE, UNCHECKED)

WHOLE: Final = "whole"
COMPACTED: Final = "compacted"
DAMAGED: Final = "damaged"

COLUMNS: Final = (
    ("group", "text", "the group"),
    ("topic", "text", "the topic"),
    ("partition", "number", "its partition"),
    ("from", "number", "the offset that the target has committed now; null for none, or without a target"),
    ("to", "number", "the offset to commit; null for none"),
    ("action", "text", "set, skip, refuse or unchecked"),
    ("why", "text", "the reason, for people"),
    ("as_of", "number", "the offset as of the moment, before clipping to the target's log; null for none"),
    ("metadata", "text", "the metadata committed with the offset, which is committed again"),
    ("history", "text", "whole; compacted: the log lost records since the moment; damaged: parts of it are missing"),
    ("topic_id", "text", "the target's id of the topic: 32 hexadecimal digits, empty if unknown"),
)
"""(name, kind, meaning) of each column of a plan, in order."""

NAMES: Final = tuple(name for name, _, _ in COLUMNS)
OPTIONAL: Final = ("from", "to", "as_of")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One committed offset.

    `COLUMNS` describes the fields. The fields `from_offset` and `to_offset` are the columns `from` and `to`.
    """

    group: str
    topic: str
    partition: int
    from_offset: int | None
    to_offset: int | None
    action: str
    why: str
    as_of: int | None = None
    metadata: str = ""
    history: str = WHOLE
    topic_id: str = ""

    @property
    def place(self) -> TopicPartition:
        """The topic partition of the row."""
        return TopicPartition(self.topic, self.partition)

    def cells(self) -> dict[str, Any]:
        """Returns the values by column."""
        return dict(zip(NAMES, asdict(self).values(), strict=True))


@dataclass(frozen=True, slots=True)
class Checked:
    """The target that a plan was checked against.

    Attributes:
        where: the name of the target: HOST:PORT, or a folder.
        cluster_id: the id of the target's cluster, None if the server does not report it.
    """

    where: str
    cluster_id: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that sets committed offsets of a target cluster back to their values at an earlier moment.

    Attributes:
        source: the log from which the plan was made.
        timestamp_ms: the moment, in ms since the epoch; None if `offsets` defines the moment.
        offsets: the moment as positions in the logs: (topic, partition, offset before which to stop).
        compacted: partitions of `__consumer_offsets` that compaction has changed since the moment. Offsets that were
            deleted since the moment may be missing from the plan.
        damaged: partitions that lack records before the moment for other reasons than compaction, or are missing.
        target: the target that the plan was checked against; None: the plan was not checked.
        rows: by group, topic and partition.
    """

    source: str
    timestamp_ms: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    compacted: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()
    target: Checked | None = None
    rows: tuple[PlanRow, ...] = field(default=())

    def save(self, path: Path) -> None:
        """Writes the plan atomically, as `.json` or `.csv` according to the file name."""
        write_whole(path, (self.as_csv() if is_csv(path) else self.as_json()).encode())

    def as_json(self) -> str:
        """Returns the plan as a JSON object with one row per line."""
        head = json.dumps(self._head(), indent=1, ensure_ascii=False)
        rows = ",\n".join(f"  {json.dumps(row.cells(), ensure_ascii=False)}" for row in sorted_rows(self.rows))
        body = f"[\n{rows}\n ]" if rows else "[]"
        return f'{head[:-2]},\n "rows": {body}\n}}\n'

    def as_csv(self) -> str:
        """Returns the plan as CSV: a comment with the attributes other than `rows`, the column names, and the rows.

        Null values are empty.
        """
        out = io.StringIO(newline="")
        out.write(f"# {json.dumps(self._head())}\r\n")
        writer = csv.DictWriter(out, NAMES)  # the line ends of RFC 4180: values that contain them are quoted
        writer.writeheader()
        for row in sorted_rows(self.rows):
            writer.writerow(row.cells())
        return out.getvalue()

    def _head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "as_of": {"timestamp_ms": self.timestamp_ms, "offsets": [list(one) for one in sorted(self.offsets)]},
            "compacted": list(self.compacted),
            "damaged": list(self.damaged),
            "target": None if self.target is None else asdict(self.target),
        }


def sorted_rows(rows: Iterable[PlanRow]) -> list[PlanRow]:
    """Returns rows ordered by group, topic and partition."""
    return sorted(rows, key=lambda row: (row.group, row.topic, row.partition))


def is_csv(path: Path) -> bool:
    """Returns True if a file name ends in `.csv`.

    Raises:
        KcoreError: the name ends neither in `.json` nor in `.csv`.
    """
    if path.suffix not in (".json", ".csv"):
        raise KcoreError(f"{path}: the name of a plan must end with .json or .csv")
    return path.suffix == ".csv"


def load(path: Path) -> Plan:
    """Reads a plan.

    Raises:
        KcoreError: the file cannot be read, is not a plan, has another version, or has an invalid row.
    """
    try:
        text = path.read_bytes().decode()
        head, cells = _read_csv(text) if is_csv(path) else _read_json(text)
        if head.get("format") != FORMAT:
            raise KcoreError(f"{path} is not a restore plan")
        if head.get("version") != VERSION:
            raise KcoreError(f"{path}: the plan has version {head.get('version')}; supported is version {VERSION}")
        target = head["target"]
        plan = Plan(
            source=head["source"],
            timestamp_ms=head["as_of"]["timestamp_ms"],
            offsets=tuple((topic, partition, offset) for topic, partition, offset in head["as_of"]["offsets"]),
            compacted=tuple(head["compacted"]),
            damaged=tuple(head.get("damaged", ())),  # older plans lack it
            target=None if target is None else Checked(**target),
            rows=tuple(_row(number, row) for number, row in enumerate(cells, 1)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KcoreError(f"{path} cannot be read as a restore plan: {type(error).__name__}: {error}") from error
    partitions = [(row.group, *row.place) for row in plan.rows]
    if len(set(partitions)) != len(partitions):
        twice = next(place for place in partitions if partitions.count(place) > 1)
        raise KcoreError(f"{path}: group {twice[0]!r} has two rows for {twice[1]}-{twice[2]}")
    return plan


def _read_json(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = parse_json(text)
    return document, document.get("rows", [])


def _read_csv(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    first, _, rest = text.partition("\n")
    if not first.startswith("#"):
        raise ValueError("the first line of a CSV plan must be its head, after a #")
    return parse_json(first[1:]), [_from_csv(row) for row in csv.DictReader(io.StringIO(rest, newline=""))]


def _from_csv(row: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = dict(row)
    for name, kind, _ in COLUMNS:
        if kind == "number":
            cells[name] = None if cells[name] == "" and name in OPTIONAL else int(cells[name])
    return cells


def _row(number: int, cells: dict[str, Any]) -> PlanRow:
    if set(cells) != set(NAMES):
        raise ValueError(f"row {number} has the columns {sorted(map(str, cells))}, not {sorted(NAMES)}")
    for name, kind, _ in COLUMNS:
        value = cells[name]
        fits = isinstance(value, str) if kind == "text" else type(value) is int and value >= 0
        if not fits and not (value is None and name in OPTIONAL):
            raise ValueError(f"row {number}: {name} cannot be {value!r}")
    if cells["action"] not in ACTIONS:
        raise ValueError(f"row {number}: action must be one of {', '.join(ACTIONS)}, not {cells['action']!r}")
    if cells["action"] == SET and cells["to"] is None:
        raise ValueError(f"row {number}: the action {SET!r} needs an offset in `to`")
    return PlanRow(*(cells[name] for name in NAMES))
