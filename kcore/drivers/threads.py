"""Runs an engine for plain threads."""

from __future__ import annotations

import threading
import time
from _thread import get_ident
from typing import TYPE_CHECKING, Any

from kcore.errors import EngineClosedError, EngineInterruptedError, ReentrantCallError
from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import RequestContext


# Marks of `ThreadDriver._inside`, beside the ident of the thread that is inside: idents are positive.
NOBODY = 0

CLOSED = -1

BROKEN = -2

IDLE_WAIT_S = 3_600.0  # a thread that waits looks again after this, whatever the timers say

HANDOVER_S = 5.0  # a thread that finds the mark of a broken engine holds the lock for much less


class ThreadDriver:
    """Runs an engine for plain threads: one at a time is inside, others wait, parked callers sleep until answered.

    Timers fire on the thread that comes by, and while callers are parked each of them sleeps until the next deadline
    at most, so that theirs are on time. No thread of our own is needed.

    `_inside` is set at the entry and cleared at the regular exit, both under the lock. An exception that leaves the
    engine anywhere in between, as a `KeyboardInterrupt` does, leaves the mark behind: memory may then hold half a
    change, so the engine refuses everything until it is opened again. Waiting happens outside: a caller that waits for
    the lock, or sleeps until its request is answered, may be interrupted without harm, and so may a commit while the
    log is written (it fails in order, and memory is read from the log).

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._inside = NOBODY
        self._wake_ms = -1  # the deadline that sleepers look forward to, -1: none
        self._sleepers: dict[Pending, threading.Lock] = {}  # a sleeper's lock is released to wake it

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Decides a request and returns its response once it is durable.

        Args:
            context: the client's context.
            request: the request.
            timeout_s: how long it may be parked, in real time whatever the engine's clock says; None: for ever.

        Raises:
            TimeoutError: it is still parked after `timeout_s`; the operation goes on, its answer is thrown away.
            EngineClosedError: the engine was closed, before or while this waited.
            EngineInterruptedError: an exception broke the engine off half way, before or while this waited.
            ReentrantCallError: this thread is inside the engine: it calls from a signal handler or from a watcher.
        """
        if self._inside:
            self._look_before_waiting()
        with self._lock:
            response = self._decide(context, request)
        if not isinstance(response, Pending):
            return response
        if not response.done:
            self._wait(response, timeout_s)
        return response.response

    def start(self, context: RequestContext, request: Any) -> Any:
        """Decides a request without waiting for what it may be parked for; commits what it decided.

        Raises:
            EngineClosedError, ReentrantCallError: see `submit`.
        """
        if self._inside:
            self._look_before_waiting()
        with self._lock:
            response = self._decide(context, request)
        return response.response if isinstance(response, Pending) and response.done else response

    def _look_before_waiting(self) -> None:
        """Raises instead of waiting for the lock for ever; see `_inside`."""
        if self._inside == get_ident() and self._lock.locked():
            # Held by this thread, unless another one has taken it just now to find the mark that this one left behind.
            if not self._lock.acquire(timeout=HANDOVER_S):
                raise ReentrantCallError
            self._lock.release()

    def _enter(self) -> None:
        """Marks the engine as entered by the caller, which holds the lock."""
        if self._inside:
            self._wake_all()
            raise EngineClosedError("the engine is closed") if self._inside == CLOSED else EngineInterruptedError
        if self.engine.pipeline.settling:
            self._inside = BROKEN
            self._wake_all()
            raise EngineInterruptedError
        self._inside = get_ident()

    def _decide(self, context: RequestContext, request: Any) -> Any:
        if self._inside:
            self._enter()
        engine = self.engine
        self._inside = get_ident()
        try:
            engine.turn()
            response = engine.submit(context, request)
        except Exception:
            self._commit()
            self._inside = NOBODY
            raise
        if engine.pipeline.dirty or self._sleepers:
            self._commit()
        self._inside = NOBODY
        return response

    def _commit(self) -> None:
        """Commits until nothing is left to commit: the last step before the exit. Sleepers hear of earlier deadlines.

        A commit that raises and has settled its round leaves nothing half done: that is a regular exit, too.
        """
        engine = self.engine
        try:
            while engine.pipeline.dirty:
                engine.commit()
        except BaseException:
            if not engine.pipeline.settling and not engine.pipeline.changing:
                self._inside = NOBODY
            self._wake_all()
            raise
        if self._sleepers:
            deadline_ms = engine.next_deadline_ms()
            if deadline_ms >= 0 and (self._wake_ms < 0 or deadline_ms < self._wake_ms):
                self._wake_all()

    def _wake_all(self) -> None:
        for sleeper in list(self._sleepers.values()):
            if sleeper.locked():
                sleeper.release()

    def _wait(self, pending: Pending, timeout_s: float | None) -> None:
        """Sleeps until `pending` is answered. The caller is outside: it takes the lock whenever it wakes up."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        sleeper = threading.Lock()
        sleeper.acquire()

        def wake(_: Any) -> None:
            if sleeper.locked():
                sleeper.release()

        try:
            with self._lock:
                self._sleepers[pending] = sleeper
                pending.on_complete(wake)
            while True:
                with self._lock:
                    wait_s = self._time_to_sleep(pending)
                if pending.done:
                    return
                if until_s is not None:
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise TimeoutError(f"no answer within {timeout_s} s")
                    wait_s = min(wait_s, left_s)
                sleeper.acquire(timeout=wait_s)
        except BaseException:
            pending.abandon()
            raise
        finally:
            self._sleepers.pop(pending, None)

    def _time_to_sleep(self, pending: Pending) -> float:
        """Lets what is due happen; returns for how many seconds a sleeper may then sleep. The caller holds the lock."""
        if pending.done:
            return 0
        if self._inside:
            if self._inside == CLOSED:
                raise EngineClosedError("the engine was closed while this request was parked")
            raise EngineInterruptedError
        self.turn()
        if pending.done:
            return 0
        self._wake_ms = deadline_ms = self.engine.next_deadline_ms()
        if deadline_ms < 0:
            return IDLE_WAIT_S
        return min(IDLE_WAIT_S, max(deadline_ms - self.engine.clock.monotonic_ms(), 1) / 1000)

    def turn(self) -> None:
        """Lets what is due happen: timers, slices, commits. The caller holds the lock."""
        self._enter()
        self.engine.turn()
        self._commit()
        self._inside = NOBODY

    def run(self) -> None:
        """Lets what is due happen, for a caller that does not hold the lock."""
        if self._inside:
            self._look_before_waiting()
        with self._lock:
            self.turn()

    def advance(self, ms: int) -> None:
        """Moves a manual clock, and wakes the callers that are answered by what then happens.

        Raises:
            EngineClosedError, ReentrantCallError: see `submit`.
        """
        if self._inside:
            self._look_before_waiting()
        with self._lock:
            self._enter()
            self.engine.advance(ms)
            self._inside = NOBODY
            self._wake_all()

    def close(self) -> None:
        """Commits what is there and closes the engine. Parked callers get an EngineClosedError.

        An engine that was broken off half way is closed without writing anything. If this raises, it may be called
        again; the data folder is released as soon as possible.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._inside:
            self._look_before_waiting()
        with self._lock:
            if self._inside == CLOSED:
                return
            if self._inside:
                self.engine.abandon()
            else:
                self._inside = get_ident()
                try:
                    self._commit()
                    self.engine.close()
                except BaseException:
                    self._inside = BROKEN
                    self.engine.abandon()
                    raise
            self._inside = CLOSED
            self._wake_all()
