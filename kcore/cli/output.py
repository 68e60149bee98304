"""Output of the verbs: aligned columns for people, JSON lines for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kcore.errors import ConfigError
from kcore.printable import clean

CELL_CHARACTERS: Final = 250
"""The maximum width of a cell, because a group id may have 32,767 characters. Every valid topic name fits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--format`."""
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: lines or columns for people; json: one object per line",
    )


def check_offsets(start: int, stop: int | None) -> None:
    """Raises ConfigError unless the options --from and --to are a range of offsets, which may be empty.

    Args:
        start: the value of --from.
        stop: the value of --to, or None.
    """
    if start < 0 or (stop is not None and stop < start):
        to = "" if stop is None else f" --to {stop}"
        raise ConfigError(
            f"--from {start}{to}: not a range of offsets; --from must be 0 or more, and --to not below --from"
        )


def say(text: object) -> None:
    """Prints a line for people. Escapes control characters, which names and messages of clients may contain."""
    print(clean(text), flush=True)


def complain(text: object) -> None:
    """Prints a line to standard error, prefixed with the command's name. Escapes control characters as `say` does."""
    print(f"kcore: {clean(text)}", file=sys.stderr, flush=True)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str) -> None:
    """Prints rows under column names; None is `-` in text and null in JSON."""
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
    """Formats a text as a table cell: clients' names may contain line ends and terminal control sequences."""
    text = clean(text)
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 1]}…"


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return str(value)
