"""Waiting for something to become true, with a deadline that a slow machine keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 40.0
_pause = threading.Event()  # never set


def eventually(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S, pause_s: float = 0.02) -> T:
    """Asks again and again until the answer is true, and returns it.

    Args:
        condition: what is asked; a client's `poll` may be part of it.
        what: for the failure's message.
        deadline_s: after this long it fails.
        pause_s: between two questions.
    """
    end = time.monotonic() + deadline_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}; last answer: {answer!r}"
        _pause.wait(pause_s)
