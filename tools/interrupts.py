"""Interrupts an embedded engine with real signals: `python -m tools.interrupts --count 10000`.

A timer raises `KeyboardInterrupt` in the main thread at random moments of `send`, `open` and `close`. Afterwards the
engine must either work, or refuse all requests until it is reopened. Every acknowledged write must be present, in
memory and in the reopened folder. Prints a table of outcomes; exits with 1 if a check fails. The program begins a new
folder after some hundred interrupts, because a longer log only makes each opening slower.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kcore
from kcore.errors import EngineInterruptedError
from tools.interrupting.ledger import SETTINGS, Ledger, RefusedError

CHECK_EVERY = 100
FOLDER_EVERY = 200
WATCH_EVERY = 10
"""Number of actions after which the watchdog for hangs starts again. A start takes several milliseconds."""
LONGEST_S = {"send": 0.0015, "open": 0.03, "close": 0.003}
"""Action -> maximum time in seconds from its start to the interrupt. Interrupts after the end of the action do not
count.
"""
HANG_S = 60


class Interrupter:
    """A timer that raises one `KeyboardInterrupt` while it is armed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.armed = False
        self.came = False
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, *_: Any) -> None:
        if self.armed:
            self.armed = False
            self.came = True
            raise KeyboardInterrupt

    def during(self, action: Any, within_s: float) -> str:
        """Runs `action` with an interrupt at a random moment. Returns the outcome."""
        self.came = False
        outcome = "done"
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-6, within_s))
            action()
            self.armed = False
        except KeyboardInterrupt:
            outcome = "interrupted"
        except RefusedError as error:
            outcome = f"refused: {error.code.name}"
        except EngineInterruptedError:
            outcome = "broken"
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return outcome


def interrupt_open(ledger: Ledger, interrupter: Interrupter) -> str:
    """Interrupts an open, then opens the folder again."""
    ledger.close()
    opened: list[Any] = []

    def action() -> None:
        with kcore.open(ledger.path, config=SETTINGS) as engine:
            opened.append(engine)

    outcome = interrupter.during(action, LONGEST_S["open"])
    for engine in opened:
        engine.close()
    ledger.open()
    return outcome


def interrupt_close(ledger: Ledger, interrupter: Interrupter) -> str:
    """Interrupts a close after writes, closes again, and opens the folder."""
    outcome = interrupter.during(ledger.close, LONGEST_S["close"])
    ledger.close()
    ledger.open()
    return outcome


def run(path: Path, count: int, seed: int, until_s: float) -> Counter[tuple[str, str, str]]:
    """Interrupts actions until `count` interrupts were delivered or the time is over.

    Returns the number of interrupts by action, outcome of the action, and the engine's condition afterwards.

    Args:
        path: a folder for the data folders, one for each `FOLDER_EVERY` interrupts.
        count: the number of interrupts.
        seed: the seed of the random moments.
        until_s: the monotonic time at which the program ends.

    Raises:
        AssertionError: an acknowledged write is lost.
    """
    interrupter = Interrupter(seed)
    outcomes: Counter[tuple[str, str, str]] = Counter()
    folder = 0
    while outcomes.total() < count and time.monotonic() < until_s:
        folder += 1
        remaining = min(FOLDER_EVERY, count - outcomes.total())
        interrupt_folder(path / str(folder), remaining, interrupter, until_s, outcomes)
        shutil.rmtree(path / str(folder))
        print(f"{outcomes.total()} interrupts", file=sys.stderr, flush=True)
    return outcomes


def interrupt_folder(
    path: Path, count: int, interrupter: Interrupter, until_s: float, outcomes: Counter[tuple[str, str, str]]
) -> None:
    """Interrupts the work on one data folder. Adds the results to `outcomes`."""
    ledger = Ledger(path)
    names = list(ledger.steps)
    done = actions = 0
    while done < count and time.monotonic() < until_s:
        if actions % WATCH_EVERY == 0:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        actions += 1
        action = interrupter.random.choices(["send", "open", "close"], [20, 1, 1])[0]
        before = ledger.reopened
        name = interrupter.random.choice(names)
        if action == "send":
            outcome = interrupter.during(ledger.steps[name], LONGEST_S["send"])
        elif action == "open":
            outcome = interrupt_open(ledger, interrupter)
        else:
            outcome = interrupt_close(ledger, interrupter)
        if not interrupter.came:
            continue
        done += 1
        for one in ("commit", "produce", "transaction", "classic", "consumer"):
            ledger.until_acknowledged(one)
        outcomes[action, outcome, "opened again" if ledger.reopened > before else "went on"] += 1
        if done % CHECK_EVERY == 0:
            ledger.check()
            ledger.check_folder()
    faulthandler.cancel_dump_traceback_later()
    ledger.check()
    ledger.check_folder()
    ledger.close()


def main() -> int:
    """Parses the command line and runs the workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="how many interrupts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3_600, help="the time after which the program ends")
    parser.add_argument("--log", action="store_true", help="show the engine's log: a traceback for each failed round")
    options = parser.parse_args()
    if not options.log:
        logging.getLogger("kcore").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), options.count, options.seed, time.monotonic() + options.seconds)
    for (action, outcome, afterwards), number in sorted(outcomes.items()):
        print(f"{action:6} {outcome:32} {afterwards:14} {number:6}")
    print(f"{sum(outcomes.values())} interrupts: every acknowledged write is there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
