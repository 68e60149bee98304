"""Makes every allocation of a step fail once, in a child process: `python -m tools.interrupting.no_memory STEP`.

Prints a line with the outcomes. Exits with 1 if an acknowledged write is lost. The process crashes if code does not
handle a failed allocation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kcore.errors import EngineInterruptedError
from tools.interrupting.ledger import Ledger, RefusedError

CHECK_EVERY = 10  # faults between two checks of the reopened folder


def run(path: Path, step: str, first: int, last: int, span: int) -> Counter[str]:
    """Runs a step repeatedly. In each run, `span` consecutive allocations fail.

    The first failing allocation is one later than in the previous run.

    Args:
        path: the data folder.
        step: the step's name.
        first: the index of the first failing allocation in the first run.
        last: the exclusive upper limit of this index.
        span: the number of consecutive allocations that fail in a run.

    Returns:
        The number of each outcome.

    Raises:
        AssertionError: an acknowledged write is lost.
    """
    import _testcapi  # noqa: PLC0415 - CPython's own tests have it, not every distribution

    ledger = Ledger(path)
    outcomes: Counter[str] = Counter()
    action = ledger.steps[step]
    others = ["commit", "produce", "transaction", "classic", "consumer"]
    for number in range(first, last):
        outcome = "acknowledged"
        _testcapi.set_nomemory(number, number + span)
        try:
            action()
        except BaseException as error:
            _testcapi.remove_mem_hooks()
            no_lock = isinstance(error, RuntimeError) and "can't allocate lock" in str(error)
            if not isinstance(error, (MemoryError, RefusedError, EngineInterruptedError)) and not no_lock:
                raise
            outcome = error.code.name if isinstance(error, RefusedError) else type(error).__name__
        finally:
            _testcapi.remove_mem_hooks()
        outcomes[outcome] += 1
        try:
            for name in others:
                ledger.until_acknowledged(name)
            if number % CHECK_EVERY == 0:
                ledger.check()
                ledger.check_folder()
                for name in ledger.steps:  # warms up, so that the next faults hit the work of every request
                    ledger.until_acknowledged(name)
        except BaseException as error:
            error.add_note(f"after allocation {number} of {step} failed ({outcome})")
            raise
    ledger.check()
    ledger.check_folder()
    ledger.close()
    outcomes["reopened"] = ledger.reopened
    return outcomes


def main() -> int:
    """Parses the command line and runs the step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=300)
    parser.add_argument("--span", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder) / "data", options.step, options.first, options.last, options.span)
    print(options.step, dict(outcomes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
