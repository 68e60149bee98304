"""The simulation's event queue, virtual time, and coroutines that wait for events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any


class Suspension:
    """An awaitable that starts an operation and resumes its coroutine with the operation's result.

    Args:
        start: starts the operation. Its argument `resume` is a function, which the operation calls once with its
            result. If the result is an exception, the coroutine raises it.
    """

    __slots__ = ("start",)

    def __init__(self, start: Callable[[Callable[[Any], None]], None]) -> None:
        self.start = start

    def __await__(self) -> Generator[Suspension, Any, Any]:
        result = yield self
        if isinstance(result, BaseException):
            raise result
        return result


class Task:
    """A running coroutine.

    Attributes:
        done: True once the coroutine has ended or was stopped.
    """

    def __init__(self, kernel: Kernel, coroutine: Coroutine[Suspension, Any, Any]) -> None:
        self._kernel = kernel
        self._coroutine = coroutine
        self._waits = 0
        self.done = False
        kernel.after(0, self._step, None)

    def _step(self, value: Any) -> None:
        if self.done:
            return
        self._waits += 1
        wait = self._waits
        try:
            suspension = self._coroutine.send(value)
        except StopIteration:
            self.done = True
            return
        except BaseException:
            self.done = True
            raise

        def resume(result: Any) -> None:
            if wait == self._waits and not self.done:
                self._waits += 1
                self._kernel.after(0, self._step, result)

        suspension.start(resume)

    def stop(self) -> None:
        """Ends the coroutine where it waits."""
        if not self.done:
            self.done = True
            self._coroutine.close()


class Kernel:
    """The event queue: runs events in the order of their times.

    Events with the same time run in the order in which they were added.

    Attributes:
        now_ms: the virtual time.
        steps: the number of events so far.
    """

    __slots__ = ("_count", "_heap", "now_ms", "steps")

    def __init__(self) -> None:
        self.now_ms = 0
        self.steps = 0
        self._count = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def at(self, when_ms: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls `callback` at a virtual time, or now if that time has passed."""
        self._count += 1
        heappush(self._heap, (max(when_ms, self.now_ms), self._count, callback, arguments))

    def after(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls `callback` after a delay."""
        self._count += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._count, callback, arguments))

    def run(self, until_ms: int, max_steps: int) -> None:
        """Runs events up to a time (inclusive), or until `steps` has reached `max_steps`."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms and self.steps < max_steps:
            self.now_ms, _, callback, arguments = heappop(heap)
            self.steps += 1
            callback(*arguments)
        if self.steps < max_steps:
            self.now_ms = max(self.now_ms, until_ms)

    def sleep(self, delay_ms: int) -> Suspension:
        """Suspends a coroutine for a time."""
        return Suspension(lambda resume: self.after(delay_ms, resume, None))

    def spawn(self, coroutine: Coroutine[Suspension, Any, Any]) -> Task:
        """Starts a coroutine."""
        return Task(self, coroutine)
