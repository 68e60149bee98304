"""What verbs print: aligned columns for people, JSON lines for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kcore.printable import clean

CELL_CHARACTERS: Final = 250
"""So wide is a cell at most: a group's id may have 32,767 characters. All names of topics find room."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--format`."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="text: columns; json: an object a line"
    )


def say(text: object) -> None:
    """Prints a line for people. Whatever names and messages of clients are in it, it stays one line of plain text."""
    print(clean(text), flush=True)


def complain(text: object) -> None:
    """Prints a line for people to the standard error, see `say`, with the command's name in front."""
    print(f"kcore: {clean(text)}", file=sys.stderr, flush=True)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> None:
    """Prints rows under their columns' names; None is `-` for people and null for programs."""
    if form == "json":
        for row in rows:
            print(json.dumps(dict(zip(columns, row, strict=True)), default=_to_json))
        return
    cells = [[name.upper().replace("_", "-") for name in columns]]
    cells += [["-" if value is None else _cell(str(value)) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())


def _cell(text: str) -> str:
    """A text as it may stand in a table: names come from clients, and may hold line ends, or what steers a terminal."""
    text = clean(text)
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 1]}…"


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return str(value)
