"""Work beside an event loop: the policy that offloads commits, and functions that run a call on another thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, TypeVar

from kcore.process_logging import limited_logger

T = TypeVar("T")

logger = limited_logger(__name__)

MAX_BLOCKED_REQUESTS = 0.1  # a thread adds about 100 µs to a commit, a third of the time that a blocked request waits

POLL_AGAIN = range(32, 256)
"""Numbers of waiting responses for which a server's loop runs one more turn before it commits the round.

While the loop processes the requests of one turn, other clients send their next requests. The next turn finds these
requests, and one commit serves both turns. With 128 requests in flight, a commit takes about a tenth less CPU time.
In a smaller round, the additional turn would cost more than it saves. A larger round would gain little.
"""

SLOW_WRITE_S = 1.0
"""Duration of a commit above which a log line with the level INFO reports the commit."""

VERY_SLOW_WRITE_S = 5.0
"""Duration of a commit above which the log line about the commit has the level WARNING."""

GATHER_TURNS = 2
"""Number of consecutive turns without a new call after which the driver ends a round, on a loop that other code also
uses.
"""


class CommitOffloadPolicy:
    """The rule that passes a commit to a thread if an inline commit would delay too many read-only requests.

    The policy estimates the number of delayed requests: the number of read-only rounds that fit into the time of a
    write. If every round writes, an inline commit delays no read-only request. A single client that reads and then
    commits delays no other request. Its commits stay inline, unless the client is very fast.

    Args:
        max_blocked_requests: the average number of delayed requests above which commits are offloaded.
        log_name: the name of the log, for log lines.

    Attributes:
        average_write_s: the moving average of the duration of a write.
    """

    __slots__ = ("_log_name", "_max_blocked_requests", "_served", "_since_s", "average_write_s")

    def __init__(self, max_blocked_requests: float, log_name: str = "") -> None:
        self._max_blocked_requests = max_blocked_requests
        self._log_name = log_name
        self._served = 0
        self._since_s = 0.0
        self.average_write_s = 0.0

    def served(self) -> None:
        """Counts a round that served requests and wrote nothing."""
        self._served += 1

    def should_offload(self, now_s: float) -> bool:
        """Returns True if an inline commit of the round at `now_s` (of any clock) would delay too many requests."""
        too_many = self._served * self.average_write_s > self._max_blocked_requests * (now_s - self._since_s)
        self._served = 0
        self._since_s = now_s
        return too_many

    def wrote(self, took_s: float) -> None:
        """Adds the duration of a write to the moving average, in which a single slow write has little weight. Logs a
        slow write.
        """
        self.average_write_s += (took_s - self.average_write_s) / 8
        if took_s >= SLOW_WRITE_S:
            with contextlib.suppress(Exception):  # no memory for the line
                logger.log(
                    logging.WARNING if took_s >= VERY_SLOW_WRITE_S else logging.INFO,
                    "commit: the log %s took %.1f s for a commit, and clients waited; if this repeats, check "
                    "the disk or the database of the log, and the load of the machine; a pause of the process also "
                    "causes this message",
                    self._log_name,
                    took_s,
                )


class OpenReason(Enum):
    """The reason for which a turn of the loop leaves its round open, so that a later turn writes it."""

    BACKGROUND_COMMIT = auto()
    """A thread is writing the previous round. When it is done, the driver schedules the end of the open round."""
    CALLS = auto()
    """Other code uses the loop, too, and will probably make further calls in the next turns; see `Gathering`."""
    NEXT_TURN = auto()
    """Many responses wait, and one commit can serve the requests of the next turn, too; see `POLL_AGAIN`."""


class Gathering:
    """The rule that decides how long an open round waits for more calls, on a loop that other code also uses.

    The tasks that a commit has woken call again in the next turns of the loop, some later than others. If the first of
    these calls were committed alone, the other calls would have to wait for the next flush. So a round waits for as
    many calls as the last round had, but only while calls arrive, and at most for the duration of a write.
    """

    __slots__ = ("_idle_turns", "_likely", "_since_s", "_waiting")

    def __init__(self) -> None:
        self._likely = 1
        self._waiting = 0  # the number of calls at the end of the last turn
        self._idle_turns = 0  # the number of turns without another call
        self._since_s = 0.0

    def should_wait(self, waiting: int, now_s: float, limit_s: float) -> bool:
        """Returns True if the round should be ended in a later turn, False if it should be ended now.

        After False, the next call of this method is about a new round.

        Args:
            waiting: the number of calls in the round.
            now_s: the time of any clock.
            limit_s: the maximum time for which the round waits.
        """
        if waiting < self._likely:
            if waiting > self._waiting:
                if not self._waiting:
                    self._since_s = now_s
                self._waiting = waiting
                self._idle_turns = 0
            else:
                self._idle_turns += 1
            if self._idle_turns < GATHER_TURNS and now_s - self._since_s < limit_s:
                return True
        self._likely = max(waiting, 1)  # the next round waits for as many calls as this one
        self._waiting = self._idle_turns = 0
        return False


def call_beside(loop: asyncio.AbstractEventLoop, call: Callable[[], object], done: Callable[[Any], None]) -> None:
    """Calls a function on a thread of the loop's executor. The loop then calls `done` with the result or the exception.

    `done` is not called if the call is cancelled at the end of the loop.
    """

    def arrived(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            error = future.exception()  # also if `done` ignores it: asyncio logs an exception that no code retrieves
            done(future.result() if error is None else error)

    try:
        future: asyncio.Future[Any] = loop.run_in_executor(None, call)
    except RuntimeError as error:  # no thread can be started
        future = loop.create_future()
        future.set_exception(error)
    future.add_done_callback(arrived)


async def call_on_thread(call: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
    """Calls a function on a separate thread.

    If the await is cancelled, the call continues.

    Args:
        call: the function.
        discard: called with the result of `call` if the await was cancelled. It may be called on any thread.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="kcore-call")
    future: Future[T] = pool.submit(call)
    pool.shutdown(wait=False)

    def discard_result(done: Future[T]) -> None:
        if discard is not None and done.exception() is None:
            discard(done.result())

    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        future.add_done_callback(discard_result)
        raise
