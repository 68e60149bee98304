"""Runs an engine on an asyncio event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.drivers.offload import MAX_BLOCKED_REQUESTS, CommitOffloadPolicy, Writer
from kcore.errors import EngineClosedError, EngineInterruptedError, ReentrantCallError
from kcore.late_timers import LateTimers
from kcore.metrics import RoundTimes
from kcore.process_logging import log_failure
from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import RequestContext
    from kcore.runtime.commit import BackgroundCommit

logger = logging.getLogger(__name__)

MEMORY_WAIT_S = 0.1  # between two tries to tell the loop of a written round, while there is no memory for it


class AsyncDriver:
    """Runs an engine on an asyncio event loop.

    A round is one turn of the loop: every request that the turn brought is decided, then everything is committed at
    once and the answers go out. While nothing else is going on, a single request is committed alone and at once.

    A commit in place is the cheapest, and keeps the loop from everything else until the device has answered. Where
    that would be felt, a round that goes to the device is written on a thread: see `CommitOffloadPolicy`.

    Args:
        engine: the engine.
        loop: the event loop it belongs to from now on.
        patience: how many requests, on average, a commit in place may hold up that need none themselves.
    """

    def __init__(
        self, engine: Engine, loop: asyncio.AbstractEventLoop, max_blocked_requests: float = MAX_BLOCKED_REQUESTS
    ) -> None:
        self.engine = engine
        self.loop = loop
        self._ends: list[Callable[[], None]] = []
        self._round = False
        self._timed = False  # the clock was read for this round
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = -1
        self._timers = LateTimers(loop, engine.clock, engine.now, self._fire_timers)
        self._slicing = False
        self._closed = False
        self._inside = False  # a call is in the engine, or was broken off there
        self._broken = False
        self._on_broken: Callable[[], None] | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._times: RoundTimes | None = None
        self._may_use_thread = engine.log.durability == "fsync"
        self._offload_policy = CommitOffloadPolicy(max_blocked_requests)
        self._writer: Writer | None = None
        engine.pipeline.when_dirty(self.round_is_open)
        engine.slices.requests.enabled = True
        engine.consumer_groups.background = self.compute_beside

    def compute_beside(self, compute: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs a long computation that touches nothing of the engine on a thread; then, in a round, `done(result)`.

        `done` gets the exception if it raised one.
        """

        def arrived(future: asyncio.Future[Any]) -> None:
            if self._closed or future.cancelled():
                return
            self.begin_round()
            error = future.exception()
            done(future.result() if error is None else error)

        self.loop.run_in_executor(None, compute).add_done_callback(arrived)

    def at_end_of_round(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after each commit: connections send what was answered."""
        self._ends.append(callback)

    def begin_round(self) -> None:
        """A turn of the loop brought requests: take the time for all of them."""
        if self._timed:
            return
        self.engine.now.update()
        if not self._round:
            if self._times is not None:
                self._times.began()
            self.round_is_open()
        self._timed = True

    def measure(self) -> RoundTimes:
        """Measures rounds from now on; they are not while nobody asked."""
        if self._times is None:
            self._times = RoundTimes(time.perf_counter)
        return self._times

    def round_is_open(self) -> None:
        """Has the round end in this turn of the loop."""
        if not self._round:
            self.loop.call_soon(self._end_round)
            self._round = True  # last: a round whose end could not be scheduled may still be opened

    def when_broken(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when an exception has broken the engine off half way: it can only be closed then."""
        self._on_broken = callback

    def _enter(self) -> None:
        """Marks the engine as entered; `self._inside = False` is the regular way out.

        Raises:
            ReentrantCallError: this thread is inside already.
            EngineInterruptedError: the engine was broken off half way.
        """
        if self.engine.pipeline.settling or self._broken:
            raise EngineInterruptedError
        if self._inside:
            raise ReentrantCallError
        self._inside = True

    def _came_out(self, error: BaseException) -> None:
        """Handles an exception that came out of the engine.

        After an ordinary one the engine goes on, unless a round was left unsettled: whatever was decided waits for the
        end of a later round. An interrupt can have come between any two steps, so the engine is broken.
        """
        pipeline = self.engine.pipeline
        if isinstance(error, Exception) and not pipeline.settling:
            self._inside = False
            if pipeline.dirty:
                with contextlib.suppress(Exception):  # without memory for it: the next request or timer does it
                    self.round_is_open()
            return
        self._break()

    def _break(self) -> None:
        """Refuses everything from now on: every waiting future gets an EngineInterruptedError."""
        pipeline = self.engine.pipeline
        self._broken = pipeline.settling = True
        self._inside = False
        self._fail_waiting(EngineInterruptedError())
        callback, self._on_broken = self._on_broken, None
        if callback is not None:
            callback()

    def _fail_waiting(self, error: Exception) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _end_round(self) -> None:
        self._round = False
        if self._closed or self._broken:
            return
        self._enter()
        try:
            self._finish_round()
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise

    def _finish_round(self) -> None:
        pipeline = self.engine.pipeline
        served, self._timed = self._timed, False
        if pipeline.dirty:
            self._write_round()
        else:
            if served:
                self._offload_policy.served()
            if self._times is not None:
                self._times.passed()
        for callback in self._ends:
            try:
                callback()
            except Exception as error:
                log_failure(logger, error, "%r failed at the end of a round", callback)
        if pipeline.dirty and not pipeline.committing:
            self.round_is_open()
        if self.engine.slices and not self._slicing:
            self.loop.call_soon(self._slice)
            self._slicing = True
        self._set_alarm()

    def _write_round(self) -> None:
        """Commits the round, has it written on the thread, or leaves it open until the one before is written."""
        pipeline = self.engine.pipeline
        if pipeline.committing and pipeline.allows_background_commit:
            if self._times is not None:
                self._times.held()
            return
        now_s = time.perf_counter()
        if self._may_use_thread and self._offload_policy.should_offload(now_s) and self._start_background(now_s):
            return
        if self._times is None:
            self.engine.commit()
        else:
            self._times.ended(pipeline.waiting, self.engine.commit)
        self._offload_policy.wrote(time.perf_counter() - now_s)

    def _start_background(self, now_s: float) -> bool:
        """Has the round written on the thread, if it may be, and if there is a thread."""
        pipeline = self.engine.pipeline
        if self._writer is None:
            try:
                self._writer = Writer()
            except RuntimeError as error:
                logger.warning("rounds are written in place from now on, there is no thread for them: %s", error)
                self._may_use_thread = False
                return False
        trip = _Trip(self, now_s)  # before the round takes off: one that did must come to be written
        trip.background_commit = pipeline.start_background(threading.Lock())
        if trip.background_commit is None:
            return False
        try:
            self._writer.do(trip.write_in_background)
        except Exception as error:
            log_failure(logger, error, "a round is written in place: it could not be handed to the thread")
            trip.background_commit.write()
            pipeline.finish_background(trip.background_commit)
            return True
        if self._times is not None:
            trip.since_s = self._times.background_began()
        return True

    def background_ended(self, trip: _Trip) -> None:
        """Gives the answers of a round out that the thread has written."""
        background_commit = trip.background_commit
        if self._closed or self._broken or background_commit is None:
            return
        self._enter()
        try:
            self.engine.pipeline.finish_background(background_commit)
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise
        finally:
            self.round_is_open()
        self._offload_policy.wrote(time.perf_counter() - trip.began_s)
        if self._times is not None and trip.since_s is not None:
            # Answers are counted, too, that joined while the round was under way.
            self._times.background_ended(len(background_commit.answers), trip.since_s)

    def _slice(self) -> None:
        """Runs a slice of long work a turn: requests that came meanwhile are served in between."""
        self._slicing = False
        if self._closed or self._broken:
            return
        self.round_is_open()  # first: the end of the round asks for the next slice, whatever becomes of this one
        self._enter()
        try:
            self.engine.now.update()
            more = self.engine.slices.step()
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise
        if more:
            self.loop.call_soon(self._slice)
            self._slicing = True

    def _set_alarm(self) -> None:
        deadline_ms = self.engine.next_deadline_ms()
        if deadline_ms == self._alarm_ms:
            return
        alarm = None
        if deadline_ms >= 0:
            delay_s = max(0, deadline_ms - self.engine.now.now_ms) / 1000
            alarm = self.loop.call_later(delay_s, self._ring)
        before, self._alarm = self._alarm, alarm
        self._alarm_ms = deadline_ms
        if before is not None:
            before.cancel()

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_ms = -1
        if not (self._closed or self._broken):
            self._timers.ring()

    def _fire_timers(self) -> None:
        """Fires every timer that is due, in a round of its own."""
        if self._closed or self._broken:
            return
        self.round_is_open()  # first: the end of the round sets the next alarm, whatever becomes of these timers
        self._enter()
        try:
            self.engine.fire_timers()
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise

    def submit(self, context: RequestContext, request: Any) -> asyncio.Future[Any]:
        """Decides a request; the future has its response once it is durable.

        Raises:
            EngineClosedError: the engine was closed; a future that still waits then gets the same.
            EngineInterruptedError: an exception broke the engine off half way; waiting futures get the same.
        """
        if self._closed:
            raise EngineClosedError("the engine is closed")
        future: asyncio.Future[Any] = self.loop.create_future()
        self._enter()
        try:
            self.begin_round()
            response = self.engine.submit(context, request)
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise
        if not isinstance(response, Pending):
            future.set_result(response)
            return future

        def arrived(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        response.on_complete(arrived)
        if not future.done():
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        return future

    def start(self) -> None:
        """Begins to run slices and timers (loads that were queued before there was a loop)."""
        self.round_is_open()

    def advance(self, ms: int) -> None:
        """Moves a manual clock; timers fire, and what they decide is committed."""
        if self._closed:
            raise EngineClosedError("the engine is closed")
        self._enter()
        try:
            self.engine.advance(ms)
            self._inside = False
        except BaseException as error:
            self._came_out(error)
            raise

    def close(self) -> None:
        """Commits what is there and stops. Parked requests get an EngineClosedError.

        A broken engine is not committed. The driver is closed also if this raises.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._closed:
            return
        if self._inside:
            raise ReentrantCallError
        self._inside = True
        try:
            if not self.engine.pipeline.settling:
                self.engine.commit()
        finally:
            self._closed = True
            self._inside = False
            self._fail_waiting(EngineClosedError("the engine was closed while this request was parked"))
            if self._alarm is not None:
                self._alarm.cancel()
            if self._writer is not None:
                self._writer.stop()


class _Trip:
    """A background commit on its way to the writing thread and back to the loop."""

    __slots__ = ("_driver", "_land", "background_commit", "began_s", "since_s")

    def __init__(self, driver: AsyncDriver, began_s: float) -> None:
        self._driver = driver
        self._land = partial(driver.background_ended, self)
        self.began_s = began_s
        self.background_commit: BackgroundCommit | None = None
        self.since_s: float | None = None  # None: nobody measured then

    def write_in_background(self) -> None:
        """Writes the round, on the writing thread, and has the loop land it."""
        assert self.background_commit is not None, "only a round that took off is written"
        self.background_commit.write()
        while True:
            try:
                self._driver.loop.call_soon_threadsafe(self._land)
                return
            except MemoryError:
                time.sleep(MEMORY_WAIT_S)  # nobody else tells the loop, and every later round waits for this one
            except RuntimeError:
                logger.debug("the loop was closed before a round landed")  # the engine's `close` lands it
                return
