"""Output of the commands: names chosen by clients cannot break a table, and machine-readable output has the unchanged
names.
"""

from __future__ import annotations

import json

import pytest

from kcore.cli.output import print_rows

ROWS = [
    ("new\nline\ttab", 1),
    ("\x1b[2Jcleared\x7f", None),
    ("turned \u202e round", 3),
    ("emoji 😀 \\n", 4),
    ("b" * 30_000, 5),
]


def test_names_stay_in_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("group_id", "lag"), ROWS, "text")
    shown = [r"new\x0aline\x09tab", r"\x1b[2Jcleared\x7f", r"turned \u202e round", "emoji 😀 \\n", "b" * 249 + "…"]
    expected = [("GROUP-ID", "LAG"), *zip(shown, ("1", "-", "3", "4", "5"), strict=True)]
    assert capsys.readouterr().out.splitlines() == [f"{name:250}  {lag}" for name, lag in expected]


def test_machine_readable_output_has_unchanged_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("group_id", "lag"), ROWS, "json")
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == ROWS
