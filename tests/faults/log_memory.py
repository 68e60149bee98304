"""A program in which each memory allocation of an append and its commit fails once. The log must lose no write.

    python -m tests.faults.log_memory FOLDER|- small|large|everything in_place|in_background [beside]

`-` is a log in memory. With `beside`, every third commit is followed by the move of a full area of the journal. Prints
how many allocations failed with an error. Any difference between the log and its model ends the program with a
traceback. The program runs in its own process, because a defect of compiled code may crash the process.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import logging
import sys
from pathlib import Path

from kcore.log import journal
from tests.faults import log_model
from tests.faults.log_model import Subject

QUIET = 60
"""Number of consecutive runs in which the fault has no effect. The program then ends, because these faults come after
the last allocation of the commit.
"""
QUIET_BESIDE = 200
"""Replaces `QUIET` if the program has the argument `beside`.

The number is larger than `QUIET`, because a fault in the move of a journal area has no effect except a log line.
"""


class FailingAllocation:
    """Makes the allocation number `nth` fail, counted from 0, and no other."""

    def __init__(self, nth: int) -> None:
        self.nth = nth

    def __enter__(self) -> None:
        _testcapi.set_nomemory(self.nth, self.nth + 1)

    def __exit__(self, *_: object) -> None:
        _testcapi.remove_mem_hooks()


def main(folder: str, change_name: str, commit_name: str, beside: str = "") -> int:
    if beside:
        journal.MAX_ENTRIES = 3  # type: ignore[misc]
        logging.disable()
    subject = Subject(None if folder == "-" else Path(folder), reopen_every=8, beside=bool(beside))
    change, commit = getattr(log_model, change_name), getattr(log_model, commit_name)
    subject.grow(change, 3)
    nth = quiet = hits = 0
    while quiet < (QUIET_BESIDE if beside else QUIET):
        hit = subject.disturb(change, commit, lambda nth=nth: FailingAllocation(nth))  # type: ignore[misc]
        quiet = 0 if hit else quiet + 1
        hits += hit
        nth += 1
    subject.close()
    return hits


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
