"""Memory allocations of a request fail, one or several in a row: the engine loses no acknowledged write, and
continues.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.allocations import require_failing_allocations

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("step", "first", "last", "span"),
    [
        ("commit", 0, 60, 1),
        ("produce", 0, 70, 1),
        ("transaction", 300, 420, 1),  # the end of the transaction: the markers and the completion
        ("classic", 0, 20, 1),
        ("join", 0, 60, 1),
        ("consumer", 0, 20, 1),
        ("consumer join", 0, 60, 1),
        ("init", 0, 40, 1),
        ("share", 0, 80, 1),
        ("streams", 0, 80, 1),
        # The later failures strike the handlers of the first one, and the traceback of its exception.
        ("commit", 0, 60, 5),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("produce", 0, 70, 3),
                ("transaction", 330, 420, 2),
                ("consumer join", 0, 60, 2),
                ("share", 80, 140, 2),
                ("streams", 80, 140, 2),
            )
        ),
    ],
)
def test_allocations_that_fail_lose_nothing_that_was_acknowledged(step: str, first: int, last: int, span: int) -> None:
    require_failing_allocations()
    options = [f"--first={first}", f"--last={last}", f"--span={span}"]
    command = [sys.executable, "-m", "tools.interrupting.no_memory", step, *options]
    # In a separate process, because an unchecked allocation would end it.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    name, _, outcomes = done.stdout.strip().partition("{")
    assert name.strip() == step
    faults = sum(int(part.split(": ")[1]) for part in outcomes.rstrip("}").split(", ") if "reopened" not in part)
    assert faults == last - first
