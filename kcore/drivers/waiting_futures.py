"""The futures of an event loop that wait for the responses of an engine."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.runtime import Pending


class WaitingFutures:
    """The incomplete futures of a driver, which fail when the engine ends."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[Any]] = set()

    def add(self, future: asyncio.Future[Any]) -> None:
        """Adds a future until it is done."""
        if not future.done() and future not in self._futures:
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    def redirect(self, pending: Pending, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Adds and returns a future that `pending` completes, in place of its present callback."""
        future: asyncio.Future[Any] = loop.create_future()
        pending.redirect(partial(complete_future, future))
        self.add(future)
        return future

    def fail(self, error: Exception) -> None:
        """Completes every future with an error. If memory is exhausted, the caller may repeat the call."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(error)

    def cancel(self) -> None:
        """Cancels every future after the end of its event loop."""
        for future in self._futures:
            with contextlib.suppress(RuntimeError):  # a closed loop does not call the future's callbacks
                future.cancel()
        self._futures = set()


def complete_future(future: asyncio.Future[Any], response: Any) -> None:
    """Completes a future with a response, unless it is done.

    If the response is an exception, because there was no memory for an error response, the future fails.
    """
    if future.done():
        return
    if isinstance(response, BaseException):
        future.set_exception(response)
    else:
        future.set_result(response)
