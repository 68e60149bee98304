"""Decides when a commit is written by a background thread, and runs that thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

MAX_BLOCKED_REQUESTS = 0.1  # requests; a thread costs a commit about 100 µs, a third of what one of these would wait


class CommitOffloadPolicy:
    """Who is served without a commit, and how many of them a commit in place would hold up.

    That is how many come in the time of a write. Where every round writes, nobody is there who could be served
    meanwhile; one client that reads and then commits is not held up by itself, unless it is very fast.

    Args:
        patience: how many are too many.
    """

    __slots__ = ("_max_blocked_requests", "_served", "_since_s", "_write_s")

    def __init__(self, max_blocked_requests: float) -> None:
        self._max_blocked_requests = max_blocked_requests
        self._served = 0
        self._since_s = 0.0
        self._write_s = 0.0

    def served(self) -> None:
        """A round passed that served somebody and wrote nothing."""
        self._served += 1

    def should_offload(self, now_s: float) -> bool:
        """A round is to be written, at this time of any clock: whether too many would wait for it."""
        many = self._served * self._write_s > self._max_blocked_requests * (now_s - self._since_s)
        self._served = 0
        self._since_s = now_s
        return many

    def wrote(self, took_s: float) -> None:
        """How long a write took. The average follows slowly: one slow write says little of the next."""
        self._write_s += (took_s - self._write_s) / 8


class Writer:
    """A thread that writes rounds, one at a time. An executor's futures would cost more than many a round."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a process that ends without closing its engine must not wait for it.
        self._thread = threading.Thread(target=self._run, name="kcore-log", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Has `work`, which must not raise, done after what was given before."""
        self._work.put(work)

    def stop(self) -> None:
        """Returns when all is done."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
