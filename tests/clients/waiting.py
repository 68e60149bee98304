"""Waits for a condition with a deadline that fits slow machines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 40.0
_pause = threading.Event()  # never set


def eventually(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S, pause_s: float = 0.02) -> T:
    """Polls until the condition returns a true value, and returns this value.

    Args:
        condition: the condition; it may call a client's `poll`.
        what: a description of the condition, for the failure message.
        deadline_s: the time limit.
        pause_s: the time between two polls.
    """
    end = time.monotonic() + deadline_s
    while True:
        response = condition()
        if response:
            return response
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}; last answer: {response!r}"
        _pause.wait(pause_s)
