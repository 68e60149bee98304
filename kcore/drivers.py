"""Drivers: who gives an engine its time, its commits and its callers.

The engine decides; a driver reads clocks, calls `commit`, and lets timers fire. There is one for an event loop and
one for plain threads; with a manual clock the same drivers make the simulator.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.runtime import Pending

if TYPE_CHECKING:
    from kcore.coordinator import Engine
    from kcore.runtime import RequestContext

IDLE_WAIT_S = 3_600.0  # a thread that waits looks again after this, whatever the timers say


class AsyncDriver:
    """Runs an engine on an asyncio event loop.

    A round is one turn of the loop: every request that the turn brought is decided, then everything is committed at
    once and the answers go out. While nothing else is going on, a single request is committed alone and at once.

    Args:
        engine: the engine.
        loop: the event loop it belongs to from now on.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self._ends: list[Callable[[], None]] = []
        self._round = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = -1
        self._slicing = False
        self._closed = False
        engine.pipeline.when_dirty(self.round_is_open)

    def at_end_of_round(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after each commit: connections send what was answered."""
        self._ends.append(callback)

    def begin_round(self) -> None:
        """A turn of the loop brought requests: take the time for all of them."""
        self.engine.now.update()
        if not self._round:
            self.round_is_open()

    def round_is_open(self) -> None:
        """Something waits for the end of this round."""
        if not self._round:
            self._round = True
            self.loop.call_soon(self._end_round)

    def _end_round(self) -> None:
        if self._closed:
            return
        self._round = False
        self.engine.commit()
        for callback in self._ends:
            callback()
        if self.engine.pipeline.dirty:
            self.round_is_open()
        if self.engine.slices and not self._slicing:
            self._slicing = True
            self.loop.call_soon(self._slice)
        self._set_alarm()

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
        """Decides a request; the future has its response once it is durable."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self.begin_round()
        response = self.engine.submit(context, request)
        if isinstance(response, Pending):
            response.on_complete(lambda value: future.cancelled() or future.set_result(value))
        else:
            future.set_result(response)
        return future

    def start(self) -> None:
        """Begins to run slices and timers (loads that were queued before there was a loop)."""
        self.round_is_open()

    def close(self) -> None:
        """Commits what is there and stops."""
        self.engine.commit()
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()


class ThreadDriver:
    """Runs an engine for plain threads: one at a time is inside, others wait, parked callers sleep until answered.

    Timers fire on the thread that comes by, and while callers are parked one of them sleeps until the next deadline,
    so that theirs are on time. No thread of our own is needed.

    Args:
        engine: the engine.

    Attributes:
        inside: held by whoever is in the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inside = threading.Condition(threading.Lock())

    def submit(self, context: RequestContext, request: Any, timeout_s: float | None = None) -> Any:
        """Decides a request and returns its response once it is durable.

        Raises:
            TimeoutError: it is still parked after `timeout_s`; the operation goes on, its answer is thrown away.
        """
        with self.inside:
            engine = self.engine
            engine.turn()
            response = engine.submit(context, request)
            if engine.pipeline.dirty:
                self._commit()
            if not isinstance(response, Pending):
                return response
            if not response.done:
                self._wait(response, timeout_s)
            return response.response

    def start(self, context: RequestContext, request: Any) -> Any:
        """Decides a request without waiting for what it may be parked for; commits what it decided."""
        with self.inside:
            self.engine.turn()
            response = self.engine.submit(context, request)
            self._commit()
            return response.response if isinstance(response, Pending) and response.done else response

    def _commit(self) -> None:
        while self.engine.pipeline.dirty:
            self.engine.commit()
        self.inside.notify_all()

    def _wait(self, pending: Pending, timeout_s: float | None) -> None:
        monotonic_s = self.engine.clock.monotonic_ms
        until_ms = None if timeout_s is None else monotonic_s() + int(timeout_s * 1000)
        while not pending.done:
            now_ms = monotonic_s()
            if until_ms is not None and now_ms >= until_ms:
                pending.abandon()
                raise TimeoutError(f"no answer within {timeout_s} s")
            deadline_ms = self.engine.next_deadline_ms()
            wake_ms = min((ms for ms in (deadline_ms, until_ms) if ms is not None and ms >= 0), default=None)
            self.inside.wait(IDLE_WAIT_S if wake_ms is None else max(wake_ms - now_ms, 1) / 1000)
            self.turn()

    def turn(self) -> None:
        """Lets what is due happen: timers, slices, commits. The caller holds the lock."""
        self.engine.turn()
        self._commit()

    def run(self) -> None:
        """The same for a caller outside: after a manual clock was moved."""
        with self.inside:
            self.turn()

    def close(self) -> None:
        """Commits what is there."""
        with self.inside:
            self._commit()
