"""Results of requests that nothing awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kcore.errors import ConnectionClosedError

OnDone = Callable[[Any, BaseException | None], None]
"""Gets the response of a request, or None and the error."""

_running: set[asyncio.Future[Any]] = set()


def report_result(task: asyncio.Future[Any], on_done: OnDone) -> None:
    """Calls a function with the response or the error of a request once its task ends."""

    def done(ended: asyncio.Future[Any]) -> None:
        _running.discard(ended)
        if ended.cancelled():
            on_done(None, ConnectionClosedError("the node was closed"))
        elif (error := ended.exception()) is not None:
            on_done(None, error)
        else:
            on_done(ended.result(), None)

    _running.add(task)  # asyncio itself holds tasks weakly
    task.add_done_callback(done)
