"""Compiled code survives every failed allocation: the call raises MemoryError, and the next call works.

The sweeps of a module run in a child process, because using freed memory may end the process.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.faults.allocations import require_failing_allocations
from tests.kcore_ext.allocation import (
    assignor_cases,
    client_cases,
    codec_cases,
    column_cases,
    record_cases,
    request_cases,
    soft_state_cases,
)
from tests.kcore_ext.allocation.sweep import FOREVER, Attempt

ROOT = Path(__file__).parents[2]
STRICT_MEMORY = {
    # Checks for writes beyond a block, and overwrites freed blocks.
    "PYTHONMALLOC": "malloc_debug",
    # Freed large blocks are unmapped, so a later access ends the process.
    "MALLOC_MMAP_THRESHOLD_": "8192",
}
MODULES = (assignor_cases, client_cases, codec_cases, column_cases, record_cases, request_cases, soft_state_cases)


@pytest.mark.parametrize("spans", [(1, FOREVER), pytest.param((2, 3), marks=pytest.mark.long)], ids=["one", "several"])
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_failed_allocation_is_survived(module: ModuleType, spans: tuple[int, ...]) -> None:
    require_failing_allocations()
    cases = [
        name
        for name, case in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(case).return_annotation in (Attempt, "Attempt")
    ]
    run = subprocess.run(
        [sys.executable, "-m", "tests.kcore_ext.allocation.sweep", ",".join(map(str, spans)), module.__name__, *cases],
        cwd=ROOT,
        env=STRICT_MEMORY | os.environ,  # a build with sanitizers has its own allocator
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0, f"exit status {run.returncode}\n{run.stdout}{run.stderr}"
    failed = dict(line.split(": ") for line in run.stdout.splitlines())
    assert sorted(failed) == sorted(cases)
    assert "0" not in failed.values(), f"no allocation failed, so a sweep tests nothing: {failed}"
