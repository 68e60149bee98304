"""Callbacks of an event loop: the timer for the next deadline of an engine, and a callback that needs no memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.engine import Engine


class Alarm:
    """A timer of the loop for the earliest deadline of the engine's timers.

    Args:
        loop: the event loop.
        engine: the engine whose timers fire.
        ring: called at the deadline.
    """

    __slots__ = ("_deadline_ms", "_engine", "_loop", "_ring", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: Engine, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._engine = engine
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms = -1  # -1: the timer does not run

    def set(self) -> None:
        """Sets the timer to the engine's next deadline. If this raises, the previous timer is still set."""
        deadline_ms = self._engine.next_deadline_ms()
        if deadline_ms == self._deadline_ms:
            return
        timer = None
        if deadline_ms >= 0:
            delay_s = max(0, deadline_ms - self._engine.now.now_ms) / 1000
            timer = self._loop.call_later(delay_s, self._fire)
        previous, self._timer = self._timer, timer
        self._deadline_ms = deadline_ms
        if previous is not None:
            previous.cancel()

    def cancel(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._deadline_ms = -1
        self._ring()


class SpareHandle:
    """A callback that an event loop runs in its next turn, even if there is no memory to schedule it.

    `AbstractEventLoop.call_soon` needs memory for a new handle. The handle of this class exists in advance. Loops that
    are no `asyncio.BaseEventLoop` do not accept it.

    Args:
        loop: the event loop.
        callback: the function to run.
    """

    __slots__ = ("_handle", "_ready")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._handle = asyncio.Handle(callback, (), loop)
        self._ready = getattr(loop, "_ready", None)

    def schedule(self) -> bool:
        """Schedules the callback for the next turn. Returns False if the loop does not accept the handle."""
        if self._ready is None:
            return False
        self._ready.append(self._handle)
        return True
