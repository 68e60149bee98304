"""Runs an engine for callers on threads."""

from __future__ import annotations

import threading
import time
from _thread import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from kcore.drivers.forks import refuse_in_child
from kcore.errors import EngineClosedError, EngineInterruptedError, KcoreError, ReentrantCallError
from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import RequestContext


# Values of `ThreadDriver._inside` besides the ident of the thread that is inside, which is positive.
NOBODY = 0

CLOSED = -1

BROKEN = -2

FORKED = -3

IDLE_WAIT_S = 3_600.0  # maximum sleep of a waiting thread, even if no timer is armed


class ThreadDriver:
    """Runs an engine for callers on threads: one thread at a time is inside the engine, the others wait.

    Parked callers sleep until their response is complete. Timers fire on any calling thread. A parked caller sleeps at
    most until the next deadline, so that timers fire in time without a thread of the driver's own.

    `_inside` is set at the entry and cleared at the normal exit, both under the lock. An exception that leaves the
    engine in between, such as a `KeyboardInterrupt`, leaves the mark set: memory may then hold half a change, so the
    engine refuses every call until it is opened again. Waiting happens outside the engine: a caller that waits for the
    lock or for its response may be interrupted without harm. An interrupt while the log is written is harmless too:
    the commit fails in order, and memory is read from the log.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # Reentrant: a signal handler may call while this thread holds the lock and has not entered the engine yet, or
        # has left it. That call is served; only a call from inside the engine is refused.
        self._lock = threading.RLock()
        self._inside = NOBODY
        self._wake_ms = -1  # the deadline at which sleepers wake up; -1: none
        self._sleepers: dict[Pending, threading.Lock] = {}  # a sleeper's lock is released to wake it
        self._refusal: str | None = None  # in a forked child: the text of its errors
        refuse_in_child(self)

    def leave_to_parent(self, reason: str) -> None:
        """See `ForkedDriver`. The thread that forked may be inside the engine; it leaves it, and later calls fail."""
        self._lock = threading.RLock()
        self._sleepers = {}
        self._inside = FORKED
        self._refusal = reason
        self.turn = self._refuse  # type: ignore[method-assign]
        self._decide = self._refuse  # type: ignore[method-assign, assignment]

    def _refuse(self, *_: object) -> NoReturn:
        raise EngineClosedError(self._refusal)

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Decides a request and returns its response once it is durable.

        Args:
            context: the client's context.
            request: the request.
            timeout_s: the maximum time for which it may be parked, in real time independent of the engine's clock;
                None: no limit.

        Raises:
            TimeoutError: it is still parked after `timeout_s`; the operation continues, and its response is discarded.
            EngineClosedError: the engine was closed before or during the wait.
            EngineInterruptedError: an exception interrupted the engine within a change, before or during the wait.
            ReentrantCallError: this thread is inside the engine: it calls from a signal handler or from a watcher.
        """
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            response = self._decide(context, request)
        if not isinstance(response, Pending):
            return response
        if not response.done:
            self._wait(response, timeout_s)
        return response.response

    def start(self, context: RequestContext, request: Any) -> Any:
        """Decides a request and commits its records, without waiting for a parked response.

        Raises:
            EngineClosedError, EngineInterruptedError, ReentrantCallError: as in `submit`.
        """
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            response = self._decide(context, request)
        return response.response if isinstance(response, Pending) and response.done else response

    def _check_before_waiting(self) -> None:
        """Raises ReentrantCallError if this thread would wait for itself for ever."""
        # Without the lock, the mark is one that an interrupted call of this thread has left behind.
        if self._inside == get_ident() and self._lock._is_owned():  # type: ignore[attr-defined]
            raise ReentrantCallError

    def _enter(self) -> None:
        """Marks the engine as entered by the calling thread, which holds the lock."""
        if self._inside:
            self._wake_all()
            if self._inside == FORKED:
                self._refuse()
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
        """Commits until nothing is left to commit, and wakes sleepers if a deadline is now earlier.

        This is the last step before the exit. A commit that raises but has settled its round is also a normal exit.
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
        """Sleeps until `pending` is completed. The caller is outside the engine and takes the lock when it wakes up."""
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
                        raise TimeoutError(f"the request is still parked after {timeout_s} s")
                    wait_s = min(wait_s, left_s)
                sleeper.acquire(timeout=wait_s)
        except BaseException:
            pending.abandon()
            raise
        finally:
            self._sleepers.pop(pending, None)

    def _time_to_sleep(self, pending: Pending) -> float:
        """Runs due timers, slices and commits; returns the seconds for which a sleeper may sleep.

        The caller holds the lock.
        """
        if pending.done:
            return 0
        if self._inside:
            if self._inside == CLOSED:
                raise EngineClosedError("the engine was closed while this request was parked")
            if self._inside == FORKED:
                self._refuse()
            raise EngineInterruptedError
        self.turn()
        if pending.done:
            return 0
        self._wake_ms = deadline_ms = self.engine.next_deadline_ms()
        if deadline_ms < 0:
            return IDLE_WAIT_S
        return min(IDLE_WAIT_S, max(deadline_ms - self.engine.clock.monotonic_ms(), 1) / 1000)

    def turn(self) -> None:
        """Runs due timers, slices and commits. The caller holds the lock."""
        self._enter()
        self.engine.turn()
        self._commit()
        self._inside = NOBODY

    def run(self) -> None:
        """Runs due timers, slices and commits, for a caller that does not hold the lock."""
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            self.turn()

    def advance(self, ms: int) -> None:
        """Moves a manual clock, and wakes the callers whose requests complete by that.

        Raises:
            EngineClosedError, EngineInterruptedError, ReentrantCallError: as in `submit`.
        """
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            if self._refusal is not None:
                self._refuse()
            self._enter()
            self.engine.advance(ms)
            self._inside = NOBODY
            self._wake_all()

    def hand_over(self) -> None:
        """Commits the open round and ends this driver; another driver runs the engine from now on.

        Raises:
            KcoreError: a request is parked: its caller sleeps in this driver.
            ReentrantCallError: this thread is inside the engine.
        """
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            if self._sleepers:
                raise KcoreError("a request is parked: listen before members join and before records are awaited")
            self._enter()
            self._commit()
            self._inside = CLOSED

    def close(self) -> None:
        """Commits the open round and closes the engine. Parked callers get an EngineClosedError.

        An engine that was interrupted within a change is closed without a commit. If this raises, it may be called
        again; the data folder is released as soon as possible.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            if self._inside == CLOSED or self._refusal is not None:
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
