"""Callbacks that receive the results of requests, for callers that do not await the results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kcore.errors import ConnectionClosedError
from kcore.process_logging import log_name

logger = logging.getLogger(__name__)

OnDone = Callable[[Any, BaseException | None], None]
"""A callback that receives the response of a request and None, or None and the error."""

_running: set[asyncio.Future[Any]] = set()


def report_result(task: asyncio.Future[Any], on_done: OnDone) -> None:
    """Calls a function with the response or the error of a request once its task ends."""

    def done(ended: asyncio.Future[Any]) -> None:
        _running.discard(ended)
        if ended.cancelled():
            call_with_result(on_done, None, ConnectionClosedError("the node was closed"))
        elif (error := ended.exception()) is not None:
            call_with_result(on_done, None, error)
        else:
            call_with_result(on_done, ended.result(), None)

    _running.add(task)  # asyncio itself holds tasks weakly
    task.add_done_callback(done)


def call_with_result(on_done: OnDone, response: Any, error: BaseException | None) -> None:
    """Calls a function with a result.

    Logs an exception of the function instead of raising it, because the connection has other requests to complete.
    """
    try:
        on_done(response, error)
    except Exception:
        logger.exception(
            "client: the handler %s raised an error when it received %s; the connection continues; please report the "
            "error",
            log_name(on_done),
            type(response if error is None else error).__name__,
        )
