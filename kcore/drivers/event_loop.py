"""Runs an engine on an asyncio event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.drivers.alarm import Alarm, SpareHandle
from kcore.drivers.forks import refuse_in_child
from kcore.drivers.log_threads import LogThreads, WriteTask
from kcore.drivers.offload import (
    MAX_BLOCKED_REQUESTS,
    POLL_AGAIN,
    CommitOffloadPolicy,
    Gathering,
    OpenReason,
    call_beside,
)
from kcore.drivers.waiting_futures import WaitingFutures, complete_future
from kcore.errors import EngineClosedError, EngineInterruptedError, ReentrantCallError
from kcore.late_timers import LateTimers
from kcore.metrics import RoundTimes
from kcore.process_logging import log_failure, log_name, next_step
from kcore.runtime import Pending
from kcore_ext.runtime.clock import RoundClock
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.runtime import RequestContext
    from kcore.runtime.commit import BackgroundCommit

logger = logging.getLogger(__name__)

MAX_TIMERS_S = 0.02  # the maximum time for due timers in one turn of the loop


class AsyncDriver:
    """The driver that runs an engine on an asyncio event loop.

    A round is one turn of the loop, or two turns under load (`POLL_AGAIN`). The driver decides every request that
    arrived, commits all of them together and completes the responses. On an idle loop a single request is committed
    alone and immediately.

    An inline commit costs least, but it blocks the loop until the device has finished. If it would delay too many
    requests, a thread writes the round instead: `CommitOffloadPolicy` decides.

    On a shared loop a thread writes every round, because the driver does not know what else the loop has to do. If a
    component with records in the round forbids background commits, the driver *pauses*: requests, timers and slices
    wait until the round is written. For the engine, this is the same as an inline commit. A server's connections call
    the engine without the driver, so the server delays their requests during a pause (`when_paused`).

    Args:
        engine: the engine to run.
        loop: the event loop that runs the engine from now on.
        max_blocked_requests: the average number of read-only requests that an inline commit may delay.
        shared: True if other code uses the loop, too.

    Attributes:
        engine: the engine that the driver runs.
        loop: the event loop.
        round_clock: opens the round of a turn.
    """

    def __init__(
        self,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        max_blocked_requests: float = MAX_BLOCKED_REQUESTS,
        *,
        shared: bool = False,
    ) -> None:
        self.engine = engine
        self.loop = loop
        self._begins: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []
        self._pauses: list[Callable[[bool], None]] = []
        self._round = False
        self._spare_end = SpareHandle(loop, self._end_round)
        self.round_clock = RoundClock(engine.now, self.schedule_round_end)
        self._timers = LateTimers(loop, engine.clock, engine.now, self._fire_timers)
        self._alarm = Alarm(loop, engine, self._timers.ring)
        self._slicing = False
        self._closed = False
        self._refusal = "the engine is closed"
        self._inside = False  # a call is in the engine, or was interrupted there
        self._broken = False
        self._on_broken: list[Callable[[], None]] = []
        self._waiting = WaitingFutures()
        self._times: RoundTimes | None = None
        self._threads = LogThreads(engine.log, shared)
        self._offload_policy = CommitOffloadPolicy(max_blocked_requests, engine.log.name)
        self._gathering = Gathering()
        self._polled_again = False  # the open round has waited for one more turn
        self._shared = shared
        self._paused = False
        self._written: BackgroundCommit | None = None  # the background commit that is not finished yet
        self._closing = False
        self._backlog: list[Callable[[], None]] = []  # runs after the pause
        self._ended: asyncio.Future[None] | None = None  # completed at the end of a round or background commit
        engine.pipeline.when_dirty(self.schedule_round_end)
        engine.slices.requests.enabled = True
        engine.consumer_groups.background = self.compute_beside
        if self._threads.usable:
            engine.reclaim_beside = self._threads.reclaim_beside
        refuse_in_child(self)

    def hold_late_timers(self, unserved: Callable[[], bool]) -> None:
        """Makes timers wait, after a delay of the loop, until all received requests are served.

        `unserved` returns True while received requests are not served yet.
        """
        self._timers.unserved = unserved

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`."""
        self._closed = True
        self._refusal = reason

    def leave_loop(self) -> None:
        """Cancels the waiting futures of a loop that has ended. Only `close` may be called afterwards."""
        self._round = True  # no turn of the loop can end a round
        self._waiting.cancel()

    def compute_beside(self, compute: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs a long computation on a thread, and then calls `done(result)` in a round.

        The computation must not access the engine. If it raises, the driver passes the exception to `done`.
        """

        def arrived(result: Any) -> None:
            if self._paused:
                self._backlog.append(partial(arrived, result))
            elif not (self._closed or self._broken):
                self.begin_round()
                done(result)

        call_beside(self.loop, compute, arrived)

    def at_beginning_of_round(self, callback: Callable[[], None]) -> None:
        """Registers a callback that is called before a round that `begin_round` opens. The callback must not raise."""
        self._begins.append(callback)

    def at_end_of_round(self, callback: Callable[[], None]) -> None:
        """Registers a callback that is called after each round, for example to send the completed responses."""
        self._ends.append(callback)

    def when_paused(self, callback: Callable[[bool], None]) -> None:
        """Registers a callback, which is called with True before a pause and with False after the pause.

        During a pause, no code may call the engine.
        """
        self._pauses.append(callback)

    def after_pause(self, work: Callable[[], None]) -> None:
        """Calls `work` now, or after the pause. `work` must not raise."""
        if self._paused:
            self._backlog.append(work)
        else:
            work()

    @property
    def paused(self) -> bool:
        """True during a pause: a round is being written, and no component may call the engine."""
        return self._paused

    def begin_round(self) -> None:
        """Opens the round of this turn, and reads the clock once for all its requests."""
        if not self.round_clock.read:
            for callback in self._begins:
                callback()
        self.round_clock.begin()

    def measure(self) -> RoundTimes:
        """Starts to measure rounds, and returns the measurements. Before this call, rounds are not measured."""
        if self._times is None:
            self._times = RoundTimes(time.perf_counter)
            self.round_clock.open_round = partial(self._open_measured_round, self._times)
        return self._times

    def _open_measured_round(self, times: RoundTimes) -> None:
        times.began()  # also in a turn to which the previous turn has left its round
        self.schedule_round_end()

    def schedule_round_end(self) -> None:
        """Schedules the end of the open round for this turn of the loop."""
        if not self._round:
            self.loop.call_soon(self._end_round)
            self._round = True  # last: if scheduling raised, the next call tries again

    def _ensure_round_end(self) -> None:
        """Schedules the end of the open round, even if memory is exhausted: requests wait for it."""
        try:
            self.schedule_round_end()
        except Exception:
            self._round = self._spare_end.schedule()

    def when_broken(self, callback: Callable[[], None]) -> None:
        """Registers a callback that is called once, when an exception has interrupted a change of the engine's state.

        The engine can then only be closed. The callback must not raise.
        """
        self._on_broken.append(callback)

    def _enter(self) -> None:
        """Marks the engine as entered. After work in the engine without an error, the caller resets `self._inside`.

        Raises:
            ReentrantCallError: this thread is already inside the engine.
            EngineInterruptedError: an exception interrupted a change of the engine's state.
        """
        if self.engine.pipeline.interrupted or self._broken:
            raise EngineInterruptedError
        if self._inside:
            raise ReentrantCallError
        self._inside = True

    def _handle_engine_error(self, error: BaseException) -> None:
        """Handles an exception that left the engine.

        After an `Exception`, the engine usually continues, and the decided requests wait for the end of a later round.
        In two cases the driver refuses all later calls: the exception left a round without a result, or it is a
        `BaseException` such as `KeyboardInterrupt`, which may have interrupted the engine between two steps.
        """
        pipeline = self.engine.pipeline
        if isinstance(error, Exception) and not pipeline.interrupted:
            self._inside = False
            if pipeline.dirty or self._written is not None:
                self._ensure_round_end()
            return
        self._break()

    def _break(self) -> None:
        """Refuses every later call. Every waiting future fails with an EngineInterruptedError.

        If memory is exhausted, the end of the next round repeats this call.
        """
        self._broken = self.engine.pipeline.interrupted = True
        self._inside = False
        try:
            self._waiting.fail(EngineInterruptedError())
            self._report_end()
        except Exception:
            self._ensure_round_end()
            raise
        finally:
            while self._on_broken:
                self._on_broken[-1]()
                self._on_broken.pop()
        self._resume()  # later calls are refused, not queued

    def _has_ended(self) -> bool:
        """Returns True if the driver is closed or broken. Called first by callbacks of the loop: no commit runs then.

        If `pipeline.interrupted` is set, an earlier commit was interrupted, or it could not reset a participant.
        """
        if not self._closed and self.engine.pipeline.interrupted:
            self._break()
        return self._closed or self._broken

    def _end_round(self) -> None:
        """Ends the round of this turn: writes it, lets connections send the responses, and schedules further work."""
        self._round = False
        pipeline = self.engine.pipeline
        if (pipeline.interrupted and self._has_ended()) or self._closed:
            return
        if self._paused and pipeline.committing and self._written is None:  # the thread is writing the commit
            return
        self._enter()
        try:
            self._round = True  # the callbacks below send what the write completes: that needs no further turn
            served, self.round_clock.read = self.round_clock.read, False
            if self._written is not None:  # a lack of memory has interrupted `background_ended`
                pipeline.finish_background(self._written)
                self._written = None
            scheduled = False
            if pipeline.dirty:
                scheduled = self._write_round()
            else:
                self._polled_again = False
                if served:
                    self._offload_policy.served()
                if self._times is not None:
                    self._times.ended_without_commit()
            self._round = scheduled
            if self.round_clock.read:
                self.schedule_round_end()
            for callback in self._ends:
                try:
                    callback()
                except Exception as error:
                    log_failure(
                        logger,
                        error,
                        "driver: the callback %s raised an error after a round; the other callbacks still run%s",
                        log_name(callback),
                        next_step(error),
                    )
            if pipeline.dirty and not pipeline.committing:
                self.schedule_round_end()
            if self.engine.slices and not self._slicing:
                self.loop.call_soon(self._slice)
                self._slicing = True
            self._alarm.set()
            self._inside = False
        except BaseException as error:
            self._round = False
            self._handle_engine_error(error)
            self._report_end()
            raise
        if pipeline.interrupted:  # the commit failed, and it could not reset a participant
            self._break()
        elif self._ended is not None:
            self._report_end()
        if (self._backlog or self._paused) and not pipeline.committing:
            self._resume()

    def _report_end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)

    def _pause(self) -> None:
        """Begins a pause, if none is in progress. If a callback of `when_paused` raises, no pause begins."""
        if not self._paused:
            for callback in self._pauses:
                callback(True)
            self._paused = True

    def _resume(self) -> None:
        """Ends the pause, and runs the work that was queued during it.

        If some work or a callback raises an exception, the rest still runs. Then this method raises the first
        `BaseException` such as `KeyboardInterrupt`, or else the first exception.
        """
        backlog, self._backlog = self._backlog, []  # first: without memory, the pause continues
        paused, self._paused = self._paused, False
        failure: BaseException | None = None
        for work in backlog:
            try:
                work()
            except BaseException as error:
                failure = error if failure is None else _graver(failure, error)
        if paused:
            for callback in self._pauses:
                try:
                    callback(False)
                except BaseException as error:
                    failure = error if failure is None else _graver(failure, error)
        if failure is not None:
            raise failure

    def _write_round(self) -> bool:
        """Commits the round inline or on the thread, unless it stays open for a later turn.

        Returns:
            True if the end of the round is scheduled for the next turn.
        """
        reason = self._reason_to_stay_open()
        if reason is not None:
            if self._times is not None:
                self._times.ended_before_commit()
            return reason is OpenReason.NEXT_TURN
        self._polled_again = False
        pipeline, threads = self.engine.pipeline, self._threads
        now_s = time.perf_counter()
        should_offload = threads.usable and self._offload_policy.should_offload(now_s)
        if (should_offload or threads.write_every_round) and self._start_background(now_s):
            return False
        if self._times is None:
            pipeline.commit()
        else:
            self._times.commit_inline(pipeline.waiting, pipeline.commit)
        self._offload_policy.wrote(time.perf_counter() - now_s)
        return False

    def _reason_to_stay_open(self) -> OpenReason | None:
        """Returns the reason for which the round stays open; None: the round must be written now.

        If the reason is NEXT_TURN, the end of the round is already scheduled. A round does not wait for the next turn
        if it has waited before, or if requests can see its records before these are durable.
        """
        pipeline = self.engine.pipeline
        in_background, allows_background = self._threads.write_every_round, pipeline.allows_background_commit
        if pipeline.committing and (allows_background or in_background):
            if not allows_background:
                self._pause()
            self._polled_again = True  # the round waits for the background commit, and then for no further turn
            return OpenReason.BACKGROUND_COMMIT
        if in_background:
            limit_s = self._offload_policy.average_write_s
            waits = self._gathering.should_wait(pipeline.waiting, time.perf_counter(), limit_s)
            return OpenReason.CALLS if waits else None
        if pipeline.waiting not in POLL_AGAIN or self._polled_again or self._shared or not allows_background:
            return None
        try:
            self.loop.call_soon(self._end_round)
        except Exception:  # no memory, or the loop is closed: nothing else would end the round
            return None
        self._polled_again = True
        return OpenReason.NEXT_TURN

    def _start_background(self, now_s: float) -> bool:
        """Starts to write the round on the thread. Returns False if the round forbids this or no thread exists."""
        pipeline, threads = self.engine.pipeline, self._threads
        if threads.started_writer() is None:
            return False
        task = WriteTask(self, now_s)  # allocated before the commit starts: a started commit must be written
        task.background_commit = pipeline.start_background(Lock())
        if task.background_commit is None:
            if not threads.write_every_round:
                return False
            self._pause()  # first: a callback may raise, and a commit that was started must be written
            task.background_commit = pipeline.start_background(Lock(), exclusive=True)
            if task.background_commit is None:
                return False  # the round is written inline, and its end ends the pause
        failure = threads.write(task)
        if failure is not None:
            self._written = task.background_commit
            pipeline.finish_background(task.background_commit)
            self._written = None
            threads.log_inline_write(failure)
        elif self._times is not None:
            task.since_s = self._times.background_began()
        return True

    def background_ended(self, task: WriteTask) -> None:
        """Completes the responses of a round that the thread has written."""
        background_commit = task.background_commit
        if background_commit is None or self._has_ended():
            return
        pipeline = self.engine.pipeline
        self._enter()
        self._written = background_commit
        try:
            pipeline.finish_background(background_commit)
            self._written = None
            self._inside = False
        except BaseException as error:
            self._handle_engine_error(error)
            raise
        finally:
            self._ensure_round_end()
            self._report_end()
        if pipeline.interrupted:
            self._break()
        elif self._paused and pipeline.allows_background_commit:  # else the pause lasts until the open round is written
            self._resume()
        self._offload_policy.wrote(time.perf_counter() - task.began_s)
        if self._times is not None and task.since_s is not None:
            # The count includes responses that were added while the round was being written.
            self._times.background_ended(len(background_commit.responses), task.since_s)

    def _slice(self) -> None:
        """Runs one slice of long work in a turn of the loop, so that requests are served between slices."""
        self._slicing = False
        if self._has_ended() or self._closing or self._paused:
            return
        self.schedule_round_end()  # first: the end of the round schedules the next slice, even if this one raises
        self.engine.now.update()
        if self._run_inside(self.engine.slices.step):
            self.loop.call_soon(self._slice)
            self._slicing = True

    def _run_inside(self, work: Callable[[], Any]) -> Any:
        """Runs `work` inside the engine. Returns its result."""
        self._enter()
        try:
            result = work()
            self._inside = False
        except BaseException as error:
            self._handle_engine_error(error)
            raise
        if self.engine.pipeline.interrupted:
            self._break()
        return result

    def _fire_timers(self) -> None:
        """Fires due timers, in a separate round.

        Many transactions or sessions may time out together. So one turn fires timers for at most `MAX_TIMERS_S`, and
        the next turn fires the others.
        """
        if self._has_ended() or self._closing or self._paused:  # the round after a pause sets the alarm
            return
        self.schedule_round_end()  # first: the end of the round sets the next alarm, even if a timer raises
        end_s = time.perf_counter() + MAX_TIMERS_S
        self._run_inside(lambda: self.engine.fire_timers(lambda: time.perf_counter() >= end_s))

    def submit(self, context: RequestContext, request: Any) -> asyncio.Future[Any]:
        """Processes a request. Returns a future, which completes when the response exists and its records are durable.

        Raises:
            EngineClosedError: the engine was closed. Futures that wait at that time fail with the same error.
            EngineInterruptedError: an exception interrupted a change of the engine's state. Waiting futures fail with
                the same error.
        """
        if self._closed or self._closing:
            raise EngineClosedError(self._refusal)
        future: asyncio.Future[Any] = self.loop.create_future()
        if self._paused:
            self._waiting.add(future)
            self._backlog.append(partial(self._decide_late, context, request, future))
            return future
        self._decide(context, request, future)
        return future

    def _decide(self, context: RequestContext, request: Any, future: asyncio.Future[Any]) -> None:
        self._enter()
        try:
            self.begin_round()
            response = self.engine.submit(context, request)
            self._inside = False
        except BaseException as error:
            self._handle_engine_error(error)
            raise
        if isinstance(response, Pending):
            response.on_complete(partial(complete_future, future))
        elif not self.engine.pipeline.allows_background_commit and self._threads.write_every_round:
            self._backlog.append(partial(complete_future, future, response))  # it may show what is durable later
        else:
            complete_future(future, response)
            return
        self._waiting.add(future)

    def wait_for(self, pending: Pending) -> asyncio.Future[Any]:
        """Returns a future for the response of a request that a previous driver of the engine has processed."""
        if self._closed or self._closing:
            raise EngineClosedError(self._refusal)
        return self._waiting.redirect(pending, self.loop)

    def _decide_late(self, context: RequestContext, request: Any, future: asyncio.Future[Any]) -> None:
        """Processes a request that has waited for the end of a pause."""
        if self._paused:
            self._backlog.append(partial(self._decide_late, context, request, future))
        elif not self._closed:
            try:
                self._decide(context, request, future)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)

    def start(self) -> None:
        """Starts to run timers and slices, including the slices of loads that were queued before this call."""
        self.schedule_round_end()

    def advance(self, ms: int) -> None:
        """Moves a manual clock, fires the due timers, and commits their decisions."""
        if self._closed:
            raise EngineClosedError(self._refusal)
        if self._paused:
            self.engine.commit()
            self._resume()
        self._run_inside(partial(self.engine.advance, ms))

    async def wait_for_rounds(self) -> None:
        """Waits until all earlier decisions are durable or have failed. If other code uses the loop, the wait does not
        block it.
        """
        pipeline = self.engine.pipeline
        if not self._threads.write_every_round:
            if not pipeline.interrupted:
                self.engine.commit()
            if pipeline.interrupted and not self._closed:
                self._break()
            return
        until = pipeline.rounds + pipeline.failures + 2  # the round that is being written, and the one after it
        while not (self._closed or self._broken) and pipeline.has_uncommitted:
            if pipeline.rounds + pipeline.failures >= until:
                return
            await self._next_end()

    async def _next_end(self) -> None:
        """Waits for the end of a round or of a background commit."""
        if not self.engine.pipeline.committing:
            self.schedule_round_end()
        self._ended = self._ended or self.loop.create_future()
        await asyncio.shield(self._ended)

    async def finish_rounds(self) -> None:
        """Refuses later requests, and waits until all decisions are durable. `close` then has nothing to write."""
        self._closing = True
        while not (self._closed or self._broken) and self.engine.pipeline.has_uncommitted:
            await self._next_end()
        await self._threads.stop_beside()

    def close(self) -> None:
        """Commits the open round and stops. Parked requests fail with an EngineClosedError.

        The open round of a broken engine is not committed. The driver is closed even if this method raises.

        Raises:
            ReentrantCallError: this thread is inside the engine.
        """
        if self._closed:
            return
        if self._inside:
            raise ReentrantCallError
        self._inside = True
        try:
            pipeline = self.engine.pipeline
            if not pipeline.interrupted:
                self.engine.commit()
                if pipeline.interrupted:
                    self._break()
        finally:
            self._closed = True
            self._inside = False
            self._waiting.fail(EngineClosedError("the engine was closed while this request waited for its response"))
            self._alarm.cancel()
            self._threads.stop()


def _graver(first: BaseException, second: BaseException) -> BaseException:
    """Returns the error to raise of two: the first, unless only the second is an interrupt."""
    return second if isinstance(first, Exception) and not isinstance(second, Exception) else first
