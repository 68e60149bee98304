"""Runs an engine for callers on threads."""

from __future__ import annotations

import time
from _thread import get_ident
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from kcore.drivers.forks import refuse_in_child
from kcore.drivers.log_threads import JournalMover
from kcore.errors import EngineClosedError, EngineInterruptedError, ReentrantCallError
from kcore.runtime import Pending
from kcore_ext.util.lock import Lock, RLock

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import RequestContext


# Values of `ThreadDriver._inside` besides the ident of the thread that is inside, which is positive.
NOBODY = 0

CLOSED = -1

BROKEN = -2

FORKED = -3

HANDED_OVER = -4

IDLE_WAIT_S = 3_600.0  # maximum sleep of a waiting thread, even if no timer is armed

GRACE_S = 0.0002  # time for which a round waits for the next of the threads that were in the previous round

# time after which a follower commits its round, because an exception has ended the threads that it relied on
FOLLOWER_WAIT_S = 0.05


class _HandedOverError(Exception):
    """A call of a `ThreadDriver` began after the driver handed its engine over, so the successor serves the call."""


class Successor(Protocol):
    """A driver that runs the engine of a `ThreadDriver` from now on. Its methods are those of `ThreadDriver`."""

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Processes a request; see `ThreadDriver.submit`."""
        ...

    def start(self, context: RequestContext, request: Any) -> Any:
        """Processes a request without waiting; see `ThreadDriver.start`."""
        ...

    def advance(self, ms: int) -> None:
        """Moves a manual clock; see `ThreadDriver.advance`."""
        ...

    def wait_for(self, pending: Pending, timeout_s: float | None) -> Any:
        """Waits for the response of a request that the previous driver has processed.

        Args:
            pending: the response, whose callback this driver replaces.
            timeout_s: the maximum time of the wait in seconds; None: no limit.

        Raises:
            TimeoutError, EngineClosedError, EngineInterruptedError: see `ThreadDriver.submit`.
        """
        ...


class ThreadDriver:
    """The driver for callers on threads. One thread at a time is inside the engine; the other threads wait.

    Parked callers sleep until their response is complete. Timers fire on any calling thread. A parked caller sleeps at
    most until the next deadline, so that timers fire in time although the driver has no thread of its own.

    `_inside` is set at the entry and cleared at the normal exit, both under the lock. An exception that leaves the
    engine in between, such as a `KeyboardInterrupt`, leaves `_inside` set. Memory may then hold half a change, so the
    engine refuses every call until it is opened again. A caller that waits for the lock or for its response is outside
    the engine, so it may be interrupted without harm. An interrupt while the log is written is harmless, too: the
    commit fails, and memory is read from the log again.

    Threads share flushes. A thread that leaves the engine commits the open round, unless more threads are likely to
    join it: the threads that wait for the lock, and as many further threads as joined the previous round. If the
    thread does not commit, it becomes a follower, which sleeps until a later thread has committed the round. The first
    follower of a round is its opener: if no thread joins for `GRACE_S`, the opener commits. `_expected` lists threads
    that waited for the lock when the last commit ended. The round stays open until these threads have entered, so a
    call waits for two flushes at most. A thread whose request is parked commits the round earlier; other calls may then
    wait longer. If exceptions interrupt the threads that a round relies on, its followers commit it after
    `FOLLOWER_WAIT_S`.

    After `hand_over`, another driver runs the engine. Calls that were waiting for the lock, and callers that sleep,
    continue in the other driver.

    Args:
        engine: the engine to run.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # Reentrant: a signal handler may call while this thread holds the lock and has not entered the engine yet, or
        # has left it. That call is served; only a call from inside the engine is refused.
        self._lock = RLock()
        self._inside = NOBODY
        self._wake_ms = -1  # the deadline at which sleepers wake up; -1: none
        self._sleepers: dict[Pending, Lock] = {}  # locks of the sleepers; releasing one wakes its sleeper
        self._queue: dict[int, None] = {}  # the idents of the threads that wait for the lock to send a request
        self._expected: dict[int, None] = {}  # the idents of the queued threads that must join the open round
        # locks of the open round's followers, released after its commit
        self._followers: dict[Pending, Lock] = {}
        self._opener: Lock | None = None  # the first follower of the open round
        self._joined = 0  # the number of calls in the open round
        self._likely = 1  # the number of calls after which the open round is committed
        self._refusal: str | None = None  # in a forked child: the text of its errors
        self._successor: Successor | None = None  # the driver that runs the engine after `hand_over`
        self._mover = JournalMover(engine.log)
        refuse_in_child(self)

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`.

        The thread that forked may be inside the engine. It can still leave the engine, but every later call fails.
        """
        self._lock = RLock()
        self._sleepers = {}
        self._queue, self._expected, self._followers = {}, {}, {}
        self._inside = FORKED
        self._refusal = reason
        self.turn = self._refuse  # type: ignore[method-assign]
        self._decide = self._refuse  # type: ignore[method-assign, assignment]

    def _refuse(self, *_: object) -> NoReturn:
        raise EngineClosedError(self._refusal)

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Processes a request, and returns its response once its records are durable.

        Args:
            context: the client's context.
            request: the decoded request.
            timeout_s: the maximum time in seconds for which the request may be parked, in real time independent of the
                engine's clock; None: no limit.

        Raises:
            TimeoutError: the request is still parked after `timeout_s`; the operation continues, and its response is
                discarded.
            EngineClosedError: the engine was closed before or during the wait.
            EngineInterruptedError: an exception interrupted a change of the engine's state, before or during the wait.
            ReentrantCallError: this thread is inside the engine already: a signal handler, or a callback of the engine,
                makes the call.
        """
        try:
            if self._inside or self._queue:  # or a queued thread has the lock, but does not run yet
                response = self._decide_in_turn(context, request)
            else:
                with self._lock:
                    response = self._decide(context, request)
        except _HandedOverError:
            return self._handed_over().submit(context, request, timeout_s)
        if not isinstance(response, Pending):
            return result_of(response)
        if not response.done:
            follower = self._followers.get(response)
            if follower is not None:
                self._await_commit(response, follower)
            if not response.done:
                self._wait(response, timeout_s)
        return result_of(response)

    def _handed_over(self) -> Successor:
        assert self._successor is not None, "hand_over sets it"
        return self._successor

    def _decide_in_turn(self, context: RequestContext, request: Any) -> Any:
        """Processes a request after the threads that are inside the engine or wait for it."""
        self._check_before_waiting()
        self._queue[get_ident()] = None
        try:
            with self._lock:
                self._leave_queue()
                return self._decide(context, request)
        except BaseException:
            self._leave_queue()
            if not self._queue:
                self._wake_all()  # the followers may have relied on this thread to commit their round
            raise

    def _leave_queue(self) -> None:
        ident = get_ident()
        self._queue.pop(ident, None)
        self._expected.pop(ident, None)

    def _stays_open(self, response: Any) -> bool:
        """Returns True if a thread that leaves the engine may leave the commit of the open round to another thread.

        If its response waits for that commit, the thread becomes a follower.
        """
        if not isinstance(response, Pending):
            return bool(self._followers)
        self._joined += 1
        if response.parked or response.done or not (self._expected or self._joined < self._likely):
            return False
        follower = Lock()
        follower.acquire()
        if not self._followers:
            self._opener = follower
        self._followers[response] = follower
        return True

    def _await_commit(self, response: Pending, follower: Lock) -> None:
        """Sleeps until the round of `response` is committed; commits it if no other thread does."""
        try:
            if self._sleep_through_round(follower):
                return
        except BaseException:
            self._wake_all()  # another thread must commit the round
            raise
        with self._lock:
            if not (response.done or self._inside):
                self.turn()

    def _sleep_through_round(self, follower: Lock) -> bool:
        """Sleeps until the round is committed. Returns False if the caller should commit the round instead."""
        until_s = time.monotonic() + FOLLOWER_WAIT_S
        joined = 0
        opener = self._opener is follower
        while not follower.acquire(timeout=GRACE_S if opener else FOLLOWER_WAIT_S):
            if time.monotonic() >= until_s:
                self._queue, self._expected = {}, {}  # an exception may have left an entry behind
                return False
            if self._joined == joined and not self._expected:
                return False
            joined = self._joined
        return True

    def start(self, context: RequestContext, request: Any) -> Any:
        """Processes a request and commits its records, without waiting for a parked response.

        Raises:
            EngineClosedError, EngineInterruptedError, ReentrantCallError: as in `submit`.
        """
        if self._inside:
            self._check_before_waiting()
        try:
            with self._lock:
                response = self._decide(context, request)
                if self._followers:
                    self.turn()
        except _HandedOverError:
            return self._handed_over().start(context, request)
        return response if isinstance(response, Pending) and not response.done else result_of(response)

    def _check_before_waiting(self) -> None:
        """Raises ReentrantCallError if this thread would wait for itself forever.

        Raises _HandedOverError after `hand_over`: the lock may be held until the successor has started.
        """
        if self._inside == HANDED_OVER:
            raise _HandedOverError
        # If the lock is free, an interrupted call of this thread has left `_inside` set.
        if self._inside == get_ident() and self._lock.is_owned():
            raise ReentrantCallError

    def _enter(self) -> None:
        """Marks the engine as entered by the calling thread, which holds the lock."""
        if self._inside:
            self._wake_all()
            if self._inside == FORKED:
                self._refuse()
            if self._inside == HANDED_OVER:
                raise _HandedOverError
            raise EngineClosedError("the engine is closed") if self._inside == CLOSED else EngineInterruptedError
        if self.engine.pipeline.interrupted:
            self._inside = BROKEN
            self._wake_all()
            raise EngineInterruptedError
        self._inside = get_ident()

    def _decide(self, context: RequestContext, request: Any) -> Any:
        """Processes a request, and commits the open round unless more threads are likely to join it."""
        engine = self.engine
        if self._inside or engine.pipeline.interrupted:
            self._enter()
        self._inside = get_ident()
        try:
            engine.turn()
            response = engine.submit(context, request)
        except Exception:
            self._commit()
            self._inside = NOBODY
            raise
        if engine.pipeline.dirty:
            if not ((self._likely > 1 or self._queue) and self._stays_open(response)):
                self._commit()
        elif self._sleepers:
            self._commit()
        self._inside = NOBODY
        return response

    def _commit(self) -> None:
        """Commits until no decision is left to commit, and wakes sleeping threads if the next deadline is now earlier.

        This is the last step before a thread leaves the engine. If a commit raises an exception after all
        components and responses have received the result of the round, the thread still leaves the engine normally.
        """
        engine = self.engine
        try:
            while engine.pipeline.dirty:
                engine.commit()
        except BaseException:
            if not engine.pipeline.interrupted and not engine.pipeline.changing:
                self._inside = NOBODY
            self._wake_all()
            raise
        if self._followers or self._queue or self._likely > 1:
            self._begin_shared_round()
        if engine.pipeline.interrupted:  # a participant could not be reset after a failed commit
            self._wake_all()
        elif self._sleepers:
            deadline_ms = engine.next_deadline_ms()
            if deadline_ms >= 0 and (self._wake_ms < 0 or deadline_ms < self._wake_ms):
                self._wake_all()

    def _begin_shared_round(self) -> None:
        """Wakes the followers of the committed round, and estimates how many calls join the next round."""
        followers, self._followers = self._followers, {}
        self._expected = dict(self._queue)
        self._likely = max(self._joined, 1) + len(self._expected)
        self._joined = 0
        for follower in followers.values():
            _wake(follower)

    def _wake_all(self) -> None:
        for sleeper in [*self._sleepers.values(), *self._followers.values()]:
            _wake(sleeper)

    def _wait(self, pending: Pending, timeout_s: float | None) -> None:
        """Sleeps outside the engine until `pending` is completed.

        At each wake-up, takes the lock and runs due timers, slices and commits.
        """
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        sleeper = Lock()
        sleeper.acquire()

        def wake(_: Any) -> None:
            _wake(sleeper)

        try:
            with self._lock:
                if self._inside != HANDED_OVER:  # otherwise the successor may be completing the response just now
                    self._sleepers[pending] = sleeper
                    pending.on_complete(wake)
            while True:
                with self._lock:
                    wait_s = self._time_to_sleep(pending)
                if pending.done:
                    return
                if self._inside == HANDED_OVER:
                    left_s = None if until_s is None else max(until_s - time.monotonic(), 0)
                    self._handed_over().wait_for(pending, left_s)
                    return
                if until_s is not None:
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise TimeoutError(f"the request got no response within {timeout_s} s")
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
        if pending.done or self._inside == HANDED_OVER:
            return 0
        if self._inside:
            if self._inside == CLOSED:
                raise EngineClosedError("the engine was closed while this request waited for its response")
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
        """Moves a manual clock, and wakes the callers whose requests are completed by then.

        Raises:
            EngineClosedError, EngineInterruptedError, ReentrantCallError: as in `submit`.
        """
        try:
            if self._inside:
                self._check_before_waiting()
            with self._lock:
                if self._refusal is not None:
                    self._refuse()
                self._enter()
                self.engine.advance(ms)
                self._inside = NOBODY
                self._wake_all()
        except _HandedOverError:
            self._handed_over().advance(ms)

    def hold(self) -> RLock:
        """Returns a lock for `with`, in which the calls of other threads wait.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._inside not in (NOBODY, HANDED_OVER):
            self._check_before_waiting()
        return self._lock

    def hand_over(self, successor: Successor) -> None:
        """Commits the open round and ends this driver; `successor` runs the engine from now on.

        Callers that sleep until their response is complete, and calls that wait for the lock, continue in the
        successor. The caller holds the lock (`hold`) until the successor has started.

        Raises:
            EngineClosedError, EngineInterruptedError: as in `submit`. This driver still has the engine.
        """
        self._enter()
        self._commit()
        self._mover.stop()
        self._wake_all()  # the sleepers wait for the lock then
        self._successor = successor
        self._inside = HANDED_OVER  # last: after an exception before, `close` closes the engine here

    def close(self) -> None:
        """Commits the open round and closes the engine. Calls of parked callers raise EngineClosedError.

        If an exception has interrupted a change of the engine's state, the engine is closed without a commit. If
        `close` raises, it may be called again; the data folder is released as soon as possible. After `hand_over`,
        `close` does nothing, because the engine belongs to the successor.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._inside == HANDED_OVER:
            return
        if self._inside:
            self._check_before_waiting()
        with self._lock:
            if self._inside in (CLOSED, HANDED_OVER) or self._refusal is not None:
                return
            if self._inside or self.engine.pipeline.interrupted:
                self.engine.abandon()
                self._mover.stop()
            else:
                self._inside = get_ident()
                try:
                    self._commit()
                    self._mover.stop()
                    self.engine.close()
                except BaseException:
                    self._inside = BROKEN
                    self.engine.abandon()
                    raise
            self._inside = CLOSED
            self._wake_all()


def _wake(sleeper: Lock) -> None:
    # No context manager: entering it needs memory, and without memory the thread would not be woken.
    try:
        sleeper.release()
    except RuntimeError:  # it was released before
        return


def result_of(response: Any) -> Any:
    """Returns the response in a completed `Pending`, or the response itself if it was not pending.

    Raises the response if it is an exception: there was no memory for an error response.
    """
    if isinstance(response, Pending):
        response = response.response
    if isinstance(response, BaseException):
        raise response
    return response
