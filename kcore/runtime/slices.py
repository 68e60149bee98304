"""Runs long work in short slices, so that no request waits for all of it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

from kcore.process_logging import log_failure, log_name, next_step
from kcore.runtime.sliced import SlicedRequests

logger = logging.getLogger(__name__)


def until_settled(count: Callable[[], int]) -> Iterator[None]:
    """Waits, slice by slice, until `count` returns the same number in two consecutive slices.

    Work that reacts to changes begins with this wait, so that it runs once for all changes of a long request.
    """
    before = -1
    while before != (now := count()):
        before = now
        yield


class Slices:
    """The queue of long work: generators that run in turns. Each `step` runs one slice of one generator.

    A generator does a bounded piece of work between two `yield`s (a part of a load, some groups of an expiry run).
    The driver calls `step` between rounds, as long as it returns True.

    Attributes:
        requests: the long requests, which are decided in slices.
    """

    __slots__ = ("_work", "requests")

    def __init__(self) -> None:
        self._work: deque[tuple[Iterator[None], object]] = deque()
        self.requests = SlicedRequests(self)

    def __len__(self) -> int:
        return len(self._work)

    def add(self, work: Iterator[None], subject: object = None) -> None:
        """Queues `work`; its first slice runs at a later `step`.

        Args:
            work: the generator.
            subject: the object of the work for log lines, such as the partition that is recovered; None: log lines have
                only the name of the generator.
        """
        self._work.append((work, subject))

    def step(self) -> bool:
        """Runs one slice.

        Returns True if more work is queued. If work raises an exception, the exception is logged and the work is
        dropped.
        """
        queue = self._work
        if not queue:
            return False
        work, subject = queue[0]
        try:
            next(work)
        except StopIteration:
            queue.popleft()
        except Exception as error:
            queue.popleft()
            try:  # noqa: SIM105 - `suppress` would need memory
                log_failure(
                    logger,
                    error,
                    "background work: %s%s failed; kcore drops the rest of this work%s",
                    log_name(work),
                    "" if subject is None else f" of {subject}",
                    next_step(error),
                )
            except Exception:
                pass  # no memory for the name: other work must continue
        else:
            queue.rotate(-1)  # needs no memory: unfinished work is never lost
        return bool(queue)

    def finish(self) -> None:
        """Runs all work to its end, for a start that waits for all shards, and for tests."""
        while self.step():
            pass
