"""The signals that end a server in an orderly way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("kcore.serve")


def stop_at_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], Any]) -> None:
    """Calls `stop` at SIGTERM, SIGINT and SIGHUP, and logs the signal.

    SIGHUP arrives when the terminal is closed. It stays ignored if it is ignored already, as under `nohup`.
    """

    def stop_at(name: str) -> None:
        stop()  # first: logging may fail without memory
        logger.info("server: received %s, and ends in an orderly way", name)

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
            continue
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop_at, name)
