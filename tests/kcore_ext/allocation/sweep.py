"""Runs named cases in this process and makes each of their allocations fail in turn.

The process is a child of the tests, so that a crash fails one test and does not end the whole run:

    python -m tests.kcore_ext.allocation.sweep SPANS MODULE CASE...

SPANS is a list such as 1,2: each run makes this number of successive allocations fail. 0 stands for all later ones. A
second failure tests the code that handles the first one.

A case is a function without arguments that returns an `Attempt`. The sweep calls it again for every allocation, so an
attempt always starts from a fresh state.
"""

from __future__ import annotations

import _testcapi
import faulthandler
import gc
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

QUIET_RUNS: Final = 40
"""Number of successive runs without a failed allocation after which a sweep ends: all allocations have failed once by
then.
"""
MAX_ALLOCATIONS: Final = 3000
FOREVER: Final = 0


class Attempt(NamedTuple):
    """One run of a case: the code whose allocations fail, and the checks afterwards."""

    action: Callable[[], Any]
    """The code under test. It must succeed, or raise MemoryError or one of the exceptions in `also`."""
    check: Callable[[bool], None]
    """The assertions after a run, when allocations succeed again. The argument is True if the action has succeeded."""
    also: tuple[type[Exception], ...] = ()
    """Other exceptions that the action may raise after a failed allocation."""
    only_alone: bool = False
    """True to skip the runs in which all later allocations fail (FOREVER).

    If memory stays exhausted, an error handler in Python ends the interpreter.
    """


def run_with_faults(attempt: Attempt, first: int, last: int) -> bool:
    """Runs an action while the allocations `first` to `last` fail. With `last` 0, all allocations from `first` on fail.

    Returns True if the action succeeded.
    """
    allowed = (MemoryError, *attempt.also)
    action = attempt.action
    _testcapi.set_nomemory(first, last)
    try:
        action()
    except allowed:
        return False
    finally:
        _testcapi.remove_mem_hooks()
    return True


def sweep(case: Callable[[], Attempt], spans: list[int]) -> int:
    """Runs a case again and again, each time with another failing allocation and with each of the spans. Returns the
    number of runs in which the action failed.
    """
    failed = 0
    for span in spans:
        quiet = index = 0
        while quiet < QUIET_RUNS:
            attempt = case()
            if span == FOREVER and attempt.only_alone:
                break
            succeeded = run_with_faults(attempt, index, index + span if span else 0)
            attempt.check(succeeded)
            quiet = quiet + 1 if succeeded else 0
            failed += not succeeded
            index += 1
            assert index < MAX_ALLOCATIONS, "the action never runs out of allocations"
    return failed


def main(arguments: list[str]) -> None:
    """Sweeps the cases that the command line names and prints the number of failed attempts of each."""
    faulthandler.enable()
    spans, module, *names = arguments
    for name in names:
        sys.stdout.write(f"{name}: ")
        sys.stdout.flush()  # a case that ends the process is the last one in the output
        case = getattr(importlib.import_module(module), name)
        # Otherwise, imports and caches that the first call fills would count as allocations of the action.
        attempt = case()
        attempt.action()
        attempt.check(True)
        gc.disable()  # collections would make the count of allocations depend on earlier attempts
        failed = sweep(case, [int(span) for span in spans.split(",")])
        gc.enable()
        gc.collect()
        sys.stdout.write(f"{failed}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
