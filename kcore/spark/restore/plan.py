"""The plan of a restore: which committed offsets become what, and why. A file for people and for `kcore offsets apply`.

As JSON it is one object, a row a line; as CSV the first line is a comment that holds all of the object but the rows.
Both say the same, in the order of group, topic and partition, and hold nothing of when or where they were made: the
same source, moment and target give the same bytes.
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
from kcore.spark.export.manifest import write_whole

FORMAT: Final = "kcore-restore-plan"
VERSION: Final = 1

SET: Final = "set"
"""The offset is to be committed."""
SKIP: Final = "skip"
"""Nothing is to be done."""
REFUSE: Final = "refuse"
"""It cannot, or must not, be restored; the row says why."""
UNCHECKED: Final = "unchecked"
"""No target was looked at; such a row cannot be applied."""
ACTIONS: Final = (SET, SKIP, REFUSE, UNCHECKED)

WHOLE: Final = "whole"
COMPACTED: Final = "compacted"
DAMAGED: Final = "damaged"

COLUMNS: Final = (
    ("group", "text", "the group"),
    ("topic", "text", "the topic"),
    ("partition", "number", "its partition"),
    ("from", "number", "what the target has committed now; null for nothing, or without a target"),
    ("to", "number", "what is to be committed; null where nothing is"),
    ("action", "text", "set, skip, refuse or unchecked"),
    ("why", "text", "a sentence for people"),
    ("then", "number", "the offset as of the moment, before it was clipped to the target's log; null for none"),
    ("metadata", "text", "the remark that was committed with it, committed again"),
    ("history", "text", "whole; compacted: the log lost records since then; damaged: parts of it are missing"),
    ("topic_id", "text", "the target's id of the topic: 32 hexadecimal digits, empty if unknown"),
)
"""(name, kind, meaning) of a row's columns, in their order."""

NAMES: Final = tuple(name for name, _, _ in COLUMNS)
OPTIONAL: Final = ("from", "to", "then")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One committed offset; `COLUMNS` says what its fields mean. `from_offset` and `to_offset` are `from` and `to`."""

    group: str
    topic: str
    partition: int
    from_offset: int | None
    to_offset: int | None
    action: str
    why: str
    then: int | None = None
    metadata: str = ""
    history: str = WHOLE
    topic_id: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def cells(self) -> dict[str, Any]:
        """By column."""
        return dict(zip(NAMES, asdict(self).values(), strict=True))


@dataclass(frozen=True, slots=True)
class Checked:
    """What a plan was checked against.

    Attributes:
        where: as it was named: HOST:PORT, or a folder.
        cluster_id: its cluster's id, None for a server that does not say.
    """

    where: str
    cluster_id: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan.

    Attributes:
        source: the log that it was made of.
        timestamp_ms: the moment, in ms since the epoch; None if it was named by offsets.
        offsets: the moment as (topic, partition, offset before which to stop).
        compacted: partitions of `__consumer_offsets` that lost records since the moment: offsets that were deleted
            there since then may be missing from the plan.
        damaged: partitions of which something, or all, is missing before the moment that no compaction took.
        target: what it was checked against; None: nothing.
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
        """Writes the file, as its name ends: `.json` or `.csv`. It is there whole or not at all."""
        write_whole(path, (self.as_csv() if is_csv(path) else self.as_json()).encode())

    def as_json(self) -> str:
        """An object, its rows a line each."""
        head = json.dumps(self._head(), indent=1, ensure_ascii=False)
        rows = ",\n".join(f"  {json.dumps(row.cells(), ensure_ascii=False)}" for row in sorted_rows(self.rows))
        body = f"[\n{rows}\n ]" if rows else "[]"
        return f'{head[:-2]},\n "rows": {body}\n}}\n'

    def as_csv(self) -> str:
        """A comment with the head, the columns' names, the rows. What is null is empty."""
        out = io.StringIO(newline="")
        out.write(f"# {json.dumps(self._head())}\r\n")
        writer = csv.DictWriter(out, NAMES)  # with the line ends of RFC 4180: what has such characters is then quoted
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
    """By group, topic and partition."""
    return sorted(rows, key=lambda row: (row.group, row.topic, row.partition))


def is_csv(path: Path) -> bool:
    """Whether a file's name asks for CSV.

    Raises:
        KcoreError: it asks for neither form.
    """
    if path.suffix not in (".json", ".csv"):
        raise KcoreError(f"{path}: a plan is a .json or a .csv file")
    return path.suffix == ".csv"


def load(path: Path) -> Plan:
    """Reads a plan.

    Raises:
        KcoreError: the file cannot be read, is no plan, is of another version, or a row of it says what cannot be.
    """
    try:
        text = path.read_bytes().decode()
        head, cells = _read_csv(text) if is_csv(path) else _read_json(text)
        if head.get("format") != FORMAT:
            raise KcoreError(f"{path} is no restore plan")
        if head.get("version") != VERSION:
            raise KcoreError(f"{path}: a plan of version {head.get('version')}; this is for version {VERSION}")
        target = head["target"]
        plan = Plan(
            source=head["source"],
            timestamp_ms=head["as_of"]["timestamp_ms"],
            offsets=tuple((topic, partition, offset) for topic, partition, offset in head["as_of"]["offsets"]),
            compacted=tuple(head["compacted"]),
            damaged=tuple(head.get("damaged", ())),  # older plans have none
            target=None if target is None else Checked(**target),
            rows=tuple(_row(number, row) for number, row in enumerate(cells, 1)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KcoreError(f"{path} cannot be read as a restore plan: {type(error).__name__}: {error}") from error
    places = [(row.group, *row.place) for row in plan.rows]
    if len(set(places)) != len(places):
        twice = next(place for place in places if places.count(place) > 1)
        raise KcoreError(f"{path}: group {twice[0]!r} has two rows for {twice[1]}-{twice[2]}")
    return plan


def _read_json(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = json.loads(text)
    return document, document.get("rows", [])


def _read_csv(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    first, _, rest = text.partition("\n")
    if not first.startswith("#"):
        raise ValueError("the first line of a plan as CSV is its head, behind a #")
    return json.loads(first[1:]), [_from_csv(row) for row in csv.DictReader(io.StringIO(rest, newline=""))]


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
        raise ValueError(f"row {number}: action is one of {', '.join(ACTIONS)}, not {cells['action']!r}")
    if cells["action"] == SET and cells["to"] is None:
        raise ValueError(f"row {number}: there is no offset to set")
    return PlanRow(*(cells[name] for name in NAMES))
