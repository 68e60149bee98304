"""Every allocation of a request fails once: nothing acknowledged is lost, and the engine goes on or refuses clearly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("step", "first", "last"),
    [
        ("commit", 0, 60),
        ("produce", 0, 70),
        ("transaction", 300, 420),  # its end: the markers and the completion
        ("classic", 0, 20),
        ("join", 0, 60),
        ("consumer", 0, 20),
        ("consumer join", 0, 60),
        ("init", 0, 40),
    ],
)
def test_an_allocation_that_fails_loses_nothing_that_was_acknowledged(step: str, first: int, last: int) -> None:
    pytest.importorskip("_testcapi", reason="only CPython's own test module can let an allocation fail")
    command = [sys.executable, "-m", "tools.interrupting.no_memory", step, "--first", str(first), "--last", str(last)]
    # In a process of its own: an allocation that is not checked would end it.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    name, _, outcomes = done.stdout.strip().partition("{")
    assert name.strip() == step
    faults = sum(int(part.split(": ")[1]) for part in outcomes.rstrip("}").split(", ") if "reopened" not in part)
    assert faults == last - first
