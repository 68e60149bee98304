"""The state of the checker: violations, counts, and the progress of each client."""

from __future__ import annotations

import threading
import time
from collections import Counter

SHOWN_OF_A_KIND = 5


class Ledger:
    """The findings and counts of one run, shared by all threads.

    Attributes:
        lock: protects the state that several clients read.
        over: an event that is set when the clients must end.
        counts: the number of events, by name.
        violations: (kind, text) of each violated rule, at most `SHOWN_OF_A_KIND` of a kind.
        progress: monotonic seconds of the last successful step of each client, by name.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.over = threading.Event()
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.violations: list[tuple[str, str]] = []
        self.progress: dict[str, float] = {}
        self._began = time.monotonic()

    def violation(self, kind: str, text: str) -> None:
        """Records and prints a violated rule."""
        with self.lock:
            self.kinds[kind] += 1
            if self.kinds[kind] <= SHOWN_OF_A_KIND:
                self.violations.append((kind, text))
                self.say(f"VIOLATION {kind}: {text}")

    def count(self, name: str, by: int = 1) -> None:
        """Increases the count of a name."""
        with self.lock:
            self.counts[name] += by

    def succeeded(self, client: str) -> None:
        """Records a successful step of a client."""
        self.progress[client] = time.monotonic()

    def waiting_since(self, since: float) -> list[str]:
        """Returns the clients without a successful step since `since`."""
        return sorted(name for name, last in dict(self.progress).items() if last <= since)

    def say(self, text: str) -> None:
        """Prints a line with the elapsed time of the run."""
        print(f"{time.monotonic() - self._began:7.1f} s  {text}", flush=True)
