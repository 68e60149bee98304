"""Names of a client's background tasks and threads in log lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kcore.process_logging import log_name


def described_owner(function: Callable[..., Any]) -> str | None:
    """Returns the description of the object whose method `function` is, or None if the object has no description.

    The description is the attribute `_described`, for example "a member of group 'g'".
    """
    described = getattr(getattr(function, "__self__", None), "_described", None)
    return described if isinstance(described, str) else None


def task_name(function: Callable[..., Any]) -> str:
    """Returns the name of the function that a task or thread runs, and the client object to which it belongs.

    It never raises an `Exception`, because handlers of errors call it.
    """
    with contextlib.suppress(Exception):
        function = getattr(function, "function", function)  # the function of a `SingleTask`
        owner = described_owner(function)
        if owner is not None:
            return f"{log_name(function)} of {owner}"
    return log_name(function)
