"""Drivers: who gives an engine its time, its commits and its callers.

The engine decides; a driver reads clocks, calls `commit`, and lets timers fire. There is one for an event loop and
one for plain threads; with a manual clock the same drivers make the simulator.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from kcore.errors import EngineClosedError
from kcore.metrics import RoundTimes
from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.coordinator import Engine
    from kcore.runtime import RequestContext

logger = logging.getLogger(__name__)

IDLE_WAIT_S = 3_600.0  # a thread that waits looks again after this, whatever the timers say
PATIENCE = 0.1  # requests; a thread costs a commit about 100 µs, a third of what one of these would wait


class AsyncDriver:
    """Runs an engine on an asyncio event loop.

    A round is one turn of the loop: every request that the turn brought is decided, then everything is committed at
    once and the answers go out. While nothing else is going on, a single request is committed alone and at once.

    A commit in place is the cheapest, and keeps the loop from everything else until the device has answered. Where
    that would be felt, a round that goes to the device is written on a thread: see `Bystanders`.

    Args:
        engine: the engine.
        loop: the event loop it belongs to from now on.
        patience: how many requests, on average, a commit in place may hold up that need none themselves.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, patience: float = PATIENCE) -> None:
        self.engine = engine
        self.loop = loop
        self._ends: list[Callable[[], None]] = []
        self._round = False
        self._timed = False  # the clock was read for this round
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = -1
        self._slicing = False
        self._closed = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._times: RoundTimes | None = None
        self._flies = engine.log.durability == "fsync"
        self._bystanders = Bystanders(patience)
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
        self._timed = True
        self.engine.now.update()
        if not self._round:
            if self._times is not None:
                self._times.began()
            self.round_is_open()

    def measure(self) -> RoundTimes:
        """Measures rounds from now on; they are not while nobody asked."""
        if self._times is None:
            self._times = RoundTimes(time.perf_counter)
        return self._times

    def round_is_open(self) -> None:
        """Something waits for the end of this round."""
        if not self._round:
            self._round = True
            self.loop.call_soon(self._end_round)

    def _end_round(self) -> None:
        if self._closed:
            return
        pipeline = self.engine.pipeline
        served = self._timed
        self._round = self._timed = False
        if pipeline.dirty:
            self._write_round()
        else:
            if served:
                self._bystanders.served()
            if self._times is not None:
                self._times.passed()
        for callback in self._ends:
            try:
                callback()
            except Exception:
                logger.exception("%r failed at the end of a round", callback)
        if pipeline.dirty and not pipeline.flying:
            self.round_is_open()
        if self.engine.slices and not self._slicing:
            self._slicing = True
            self.loop.call_soon(self._slice)
        self._set_alarm()

    def _write_round(self) -> None:
        """Commits the round, has it written on the thread, or leaves it open until the one before has landed."""
        pipeline = self.engine.pipeline
        if pipeline.flying and pipeline.overlaps:
            if self._times is not None:
                self._times.held()
            return
        now_s = time.perf_counter()
        if self._flies and self._bystanders.would_wait(now_s) and self._took_off(now_s):
            return
        if self._times is None:
            self.engine.commit()
        else:
            self._times.ended(pipeline.waiting, self.engine.commit)
        self._bystanders.wrote(time.perf_counter() - now_s)

    def _took_off(self, now_s: float) -> bool:
        """Has the round written on the thread, if it may be, and if there is a thread."""
        pipeline = self.engine.pipeline
        if self._writer is None:
            try:
                self._writer = Writer()
            except RuntimeError as error:
                logger.warning("rounds are written in place from now on, there is no thread for them: %s", error)
                self._flies = False
                return False
        flight = pipeline.take_off(threading.Lock())
        if flight is None:
            return False
        since_s = self._times.departed() if self._times is not None else None  # None: nobody measured then

        def landed() -> None:
            if self._closed:
                return
            try:
                pipeline.land(flight)
            finally:
                self.round_is_open()
            self._bystanders.wrote(time.perf_counter() - now_s)
            if self._times is not None and since_s is not None:
                # Those are counted, too, that joined while it was under way.
                self._times.landed(len(flight.answers), since_s)

        def fly() -> None:
            flight.write()
            try:
                self.loop.call_soon_threadsafe(landed)
            except RuntimeError:
                logger.debug("the loop was closed before a round landed")  # the engine's `close` lands it

        self._writer.do(fly)
        return True

    def _slice(self) -> None:
        """Long work, a slice a turn: requests that came meanwhile are served in between."""
        if self._closed:
            return
        self.engine.now.update()
        self._slicing = self.engine.slices.step()
        self.round_is_open()
        if self._slicing:
            self.loop.call_soon(self._slice)

    def _set_alarm(self) -> None:
        deadline_ms = self.engine.next_deadline_ms()
        if deadline_ms == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = deadline_ms
        if deadline_ms >= 0:
            delay_s = max(0, deadline_ms - self.engine.now.now_ms) / 1000
            self._alarm = self.loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_ms = -1
        if self._closed:
            return
        self.engine.fire_timers()
        self.round_is_open()

    def submit(self, context: RequestContext, request: Any) -> asyncio.Future[Any]:
        """Decides a request; the future has its response once it is durable.

        Raises:
            EngineClosedError: the engine was closed; a future that still waits then gets the same.
        """
        if self._closed:
            raise EngineClosedError("the engine is closed")
        future: asyncio.Future[Any] = self.loop.create_future()
        self.begin_round()
        response = self.engine.submit(context, request)
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

    def close(self) -> None:
        """Commits what is there and stops. Who is still parked gets an EngineClosedError."""
        if self._closed:
            return
        self.engine.commit()
        self._closed = True
        if self._writer is not None:
            self._writer.stop()
        if self._alarm is not None:
            self._alarm.cancel()
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(EngineClosedError("the engine was closed while this request was parked"))


class Bystanders:
    """Who is served without a commit, and how many of them a commit in place would hold up.

    That is how many come in the time of a write. Where every round writes, nobody is there who could be served
    meanwhile; one client that reads and then commits is not held up by itself, unless it is very fast.

    Args:
        patience: how many are too many.
    """

    __slots__ = ("_patience", "_served", "_since_s", "_write_s")

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._served = 0
        self._since_s = 0.0
        self._write_s = 0.0

    def served(self) -> None:
        """A round passed that served somebody and wrote nothing."""
        self._served += 1

    def would_wait(self, now_s: float) -> bool:
        """A round is to be written, at this time of any clock: whether too many would wait for it."""
        many = self._served * self._write_s > self._patience * (now_s - self._since_s)
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


class ThreadDriver:
    """Runs an engine for plain threads: one at a time is inside, others wait, parked callers sleep until answered.

    Timers fire on the thread that comes by, and while callers are parked each of them sleeps until the next deadline
    at most, so that theirs are on time. No thread of our own is needed.

    Args:
        engine: the engine.

    Attributes:
        inside: held by whoever is in the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        lock = threading.Lock()
        self.inside = threading.Condition(lock)
        self._lock = lock  # the condition's own: entered directly it costs nothing
        self._asleep = 0
        self._wake_ms = -1  # the deadline that sleepers look forward to, -1: none
        self._closed = False

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Decides a request and returns its response once it is durable.

        Args:
            context: who asks.
            request: the request.
            timeout_s: how long it may be parked, in real time whatever the engine's clock says; None: for ever.

        Raises:
            TimeoutError: it is still parked after `timeout_s`; the operation goes on, its answer is thrown away.
            EngineClosedError: the engine was closed, before or while this waited.
        """
        with self._lock:
            response = self._decide(context, request)
            if not isinstance(response, Pending):
                return response
            if not response.done:
                self._wait(response, timeout_s)
            return response.response

    def start(self, context: RequestContext, request: Any) -> Any:
        """Decides a request without waiting for what it may be parked for; commits what it decided."""
        with self._lock:
            response = self._decide(context, request)
            return response.response if isinstance(response, Pending) and response.done else response

    def _decide(self, context: RequestContext, request: Any) -> Any:
        if self._closed:
            raise EngineClosedError("the engine is closed")
        engine = self.engine
        engine.turn()
        try:
            response = engine.submit(context, request)
        except BaseException:
            self._commit()
            raise
        if engine.pipeline.dirty or self._asleep:
            self._commit()
        return response

    def _commit(self) -> None:
        """Commits until nothing is left to commit. Sleepers hear of a deadline that is earlier than they know."""
        while self.engine.pipeline.dirty:
            self.engine.commit()
        if self._asleep:
            deadline_ms = self.engine.next_deadline_ms()
            if deadline_ms >= 0 and (self._wake_ms < 0 or deadline_ms < self._wake_ms):
                self.inside.notify_all()

    def _wake(self, _: Any) -> None:
        self.inside.notify_all()

    def _wait(self, pending: Pending, timeout_s: float | None) -> None:
        """Sleeps until `pending` is answered; whoever answers it holds the lock."""
        pending.on_complete(self._wake)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._asleep += 1
        try:
            while not pending.done:
                if self._closed:
                    raise EngineClosedError("the engine was closed while this request was parked")
                wait_s = IDLE_WAIT_S
                self._wake_ms = deadline_ms = self.engine.next_deadline_ms()
                if deadline_ms >= 0:
                    wait_s = min(wait_s, max(deadline_ms - self.engine.clock.monotonic_ms(), 1) / 1000)
                if until_s is not None:
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise TimeoutError(f"no answer within {timeout_s} s")
                    wait_s = min(wait_s, left_s)
                self.inside.wait(wait_s)
                if not (pending.done or self._closed):
                    self.turn()
        except BaseException:
            pending.abandon()
            raise
        finally:
            self._asleep -= 1

    def turn(self) -> None:
        """Lets what is due happen: timers, slices, commits. The caller holds the lock."""
        self.engine.turn()
        self._commit()

    def run(self) -> None:
        """The same for a caller outside."""
        with self._lock:
            self.turn()

    def pass_ms(self, ms: int) -> None:
        """Moves a manual clock; who is answered by what then happens wakes up."""
        with self._lock:
            if self._closed:
                raise EngineClosedError("the engine is closed")
            self.engine.pass_ms(ms)
            self.inside.notify_all()

    def close(self) -> bool:
        """Commits what is there and stops. Who is still parked gets an EngineClosedError. False if it was closed."""
        with self._lock:
            if self._closed:
                return False
            self._commit()
            self._closed = True
            self.inside.notify_all()
            return True
