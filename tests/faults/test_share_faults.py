"""Requests of share groups that fail at any allocation, or before any line: no record is lost or delivered again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.allocations import require_failing_allocations

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("step", "kind", "least"),
    [
        ("fetch", "memory", 60),
        pytest.param("fetch", "lines", 40, marks=pytest.mark.long),
        pytest.param("fetch", "interrupt", 40, marks=pytest.mark.long),
        ("generic", "memory", 150),
        pytest.param("generic", "lines", 150, marks=pytest.mark.long),
        pytest.param("acknowledge", "memory", 80, marks=pytest.mark.long),
        pytest.param("acknowledge", "lines", 120, marks=pytest.mark.long),
        pytest.param("expire", "memory", 60, marks=pytest.mark.long),
        pytest.param("initialize", "memory", 50, marks=pytest.mark.long),
        pytest.param("read", "memory", 20, marks=pytest.mark.long),
        pytest.param("write", "memory", 80, marks=pytest.mark.long),
        ("write", "lines", 150),
        pytest.param("delete", "memory", 20, marks=pytest.mark.long),
        pytest.param("summary", "memory", 20, marks=pytest.mark.long),
    ],
)
def test_a_fault_loses_and_repeats_no_record(step: str, kind: str, least: int) -> None:
    """Runs the step with later and later faults, until a fault no longer occurs within the step. `least` is the minimum
    number of faults.
    """
    if kind == "memory":
        require_failing_allocations()
    # In a separate process, because an unchecked allocation would end it.
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.faults.share_faults", step, kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert int(done.stdout.split()[0]) >= least
