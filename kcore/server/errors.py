"""Counts the error codes in responses, and shortens the error messages.

A response has errors at its top level, or for each topic, partition, group or member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kcore.protocol.error_codes import ErrorCode

Counts = dict[int, int]
ErrorCounter = Callable[[Any, Counts], None]

MAX_MESSAGE = 1_000
"""Number of characters to which `shorten_messages` shortens error messages, if their response cannot be encoded."""

_KNOWN = {int(code): code.name for code in ErrorCode}


def error_counter(cls: Any) -> ErrorCounter | None:
    """Creates the function that counts the error codes other than NONE in messages of a class.

    Args:
        cls: a response class, or the class of a struct in a response.

    Returns:
        A function (message, counts by code) that increases the counts; None if the class has no error field.
    """
    own = any(spec.name == "error_code" for spec in cls.FIELDS)
    arrays: list[tuple[str, ErrorCounter]] = []
    singles: list[tuple[str, ErrorCounter]] = []
    for spec in cls.FIELDS:
        inner = error_counter(spec.struct) if spec.struct is not None else None
        if inner is not None:
            (arrays if spec.item else singles).append((spec.name, inner))
    if own and not arrays and not singles:
        return _count_own
    if not own and not arrays and not singles:
        return None

    def count_errors(message: Any, counts: Counts) -> None:
        if own and message.error_code:
            _count_own(message, counts)
        for name, inner in arrays:
            items = getattr(message, name) or ()
            if inner is _count_own:  # the many partitions of a response: no call for each
                for item in items:
                    if item.error_code:
                        _count_own(item, counts)
            else:
                for item in items:
                    inner(item, counts)
        for name, inner in singles:
            item = getattr(message, name)
            if item is not None:
                inner(item, counts)

    return count_errors


def _count_own(message: Any, counts: Counts) -> None:
    code = message.error_code
    if code:
        counts[code] = counts.get(code, 0) + 1


def error_name(code: int) -> str:
    """Returns Kafka's name of an error code.

    All unknown codes have the name "UNKNOWN", which limits the number of labels in the metrics.
    """
    return _KNOWN.get(code, "UNKNOWN")


def shorten_messages(message: Any) -> bool:
    """Shortens error messages.

    Args:
        message: a response, or a struct in it.

    Returns:
        True if any message was shortened.
    """
    any_cut = False
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if spec.struct is not None and value is not None:
            for inner in value if isinstance(value, list | tuple) else [value]:
                any_cut = shorten_messages(inner) or any_cut
        elif spec.name.endswith("error_message") and isinstance(value, str) and len(value) > MAX_MESSAGE:
            setattr(message, spec.name, value[:MAX_MESSAGE])
            any_cut = True
    return any_cut
