"""Checks of the arguments of the client API: names from a fixed set, and times in seconds."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import ConfigError, ImplausibleTimeWarning

if TYPE_CHECKING:
    from kcore.protocol.compression import CompressionType

MAX_TIME_S: Final = 0x7FFFFFFF / 1000
"""Maximum time in seconds that an argument may have: requests have times as 32-bit milliseconds."""

MAX_TEXT_BYTES: Final = 0x7FFF
"""Largest size in bytes of a name in a request or a record."""

MAX_PARTITION: Final = 0x7FFFFFFF
MAX_COUNT: Final = 0x7FFFFFFF
MAX_OFFSET: Final = 0x7FFFFFFFFFFFFFFF
"""Largest partition number, count and offset that a request can express."""

LONG_WAIT_S: Final = 600.0
"""Time in seconds above which the time limit of one call causes a warning: the caller probably passed milliseconds."""

LONG_MEMBERSHIP_S: Final = 21_600.0
"""Time in seconds above which the `timeout` of `Member.wait` causes a warning.

The caller probably passed milliseconds.
"""

GROUP_TYPES: Final = {name: name for name in ("classic", "consumer", "share", "streams")}
"""Group type in a caller's filter -> group type in the request."""

GROUP_STATES: Final = {
    "Empty": "Empty",
    "PreparingRebalance": "PreparingRebalance",
    "CompletingRebalance": "CompletingRebalance",
    "Assigning": "Assigning",
    "Reconciling": "Reconciling",
    "Stable": "Stable",
    "NotReady": "not_ready",
    "Dead": "Dead",
}
"""Group state in a caller's filter, for every type of group -> group state in the request."""

TRANSACTION_STATES: Final = {
    name: name for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
} | {"Dead": "Dead", "PrepareEpochFence": "PrepareEpochFence"}
"""Transaction state in a caller's filter -> transaction state in the request."""


def filters(argument: str, requested: str | Iterable[str], valid: Mapping[str, str]) -> list[str]:
    """Converts names in a filter, such as group states, to the names in a request. The case of letters does not matter.

    Args:
        argument: the argument's name, for the error.
        requested: one name, or several.
        valid: mapping from each valid name to the name in a request.

    Raises:
        ConfigError: a name is not valid. A server would return an empty list for it.
    """
    texts = {name.lower(): text for name, text in valid.items()}
    names = [requested] if isinstance(requested, str) else list(requested)
    for name in names:
        if not isinstance(name, str) or name.lower() not in texts:
            raise ConfigError(f"{argument}: {name!r} does not exist; valid: {', '.join(map(repr, valid))}")
    return [texts[name.lower()] for name in names]


def check_choice(argument: str, value: Any, valid: Iterable[Any]) -> None:
    """Checks that an argument has one of the valid values.

    Raises:
        ConfigError: the value is not valid.
    """
    choices = list(valid)
    if isinstance(value, bool) or value not in choices:  # True equals 1
        raise ConfigError(f"{argument}={value!r}; valid: {', '.join(map(repr, choices))}")


def codec_of(compression: str) -> CompressionType:
    """Returns the codec with a name.

    Raises:
        ConfigError: the codec does not exist.
    """
    from kcore.protocol.compression import CompressionType  # noqa: PLC0415 - only programs that write records need it

    check_choice("compression", compression, (codec.name.lower() for codec in CompressionType))
    return CompressionType.from_name(compression)


def check_seconds(argument: str, value: float, longest: float) -> None:
    """Checks a setting that is a time in seconds.

    Args:
        argument: the argument's name.
        value: the time to check, in seconds.
        longest: the longest plausible time; a longer time causes a warning.

    Raises:
        ConfigError: the value is negative, or longer than a request can express.
        TypeError: the value is not a number.
    """
    if not 0 <= _seconds(argument, value) <= MAX_TIME_S:  # also refuses NaN
        raise ConfigError(f"{argument}={value!r}; valid: seconds, from 0 to {MAX_TIME_S}")
    if value > longest:
        warn_about_seconds(argument, value)


def check_wait(argument: str, value: float | None, longest: float = LONG_WAIT_S) -> None:
    """Checks the time limit of one call; None is no limit, and a negative limit counts as 0.

    Args:
        argument: the argument's name.
        value: the time limit in seconds, or None.
        longest: the longest plausible time in seconds; a longer time causes a warning.

    Raises:
        ConfigError: the value is longer than a request can express, not finite, or NaN.
        TypeError: the value is neither a number nor None.
    """
    if value is None:
        return
    if not -math.inf < _seconds(argument, value) <= MAX_TIME_S:  # also refuses NaN: timers would not fire in order
        raise ConfigError(f"{argument}={value!r}; valid: seconds, up to {MAX_TIME_S}")
    if value > longest:
        warn_about_seconds(argument, value)


def check_span(argument: str, value: float, longest: float = LONG_WAIT_S) -> None:
    """Checks a time span as `check_wait` does, but refuses None.

    Raises:
        ConfigError: the value is longer than a request can express, or NaN.
        TypeError: the value is not a number.
    """
    check_wait(argument, _seconds(argument, value), longest)


def _seconds(argument: str, value: Any) -> Any:
    """Returns a time in seconds; raises TypeError if the value is not a number. A bool does not count as a number."""
    if isinstance(value, bool):
        raise TypeError(f"{argument}={value!r}; valid: a number of seconds")
    try:
        value >= 0  # noqa: B015 - numbers of other libraries are not instances of float
    except TypeError:
        raise TypeError(f"{argument}={value!r}; valid: a number of seconds") from None
    return value


def check_text(argument: str, value: Any) -> None:
    """Checks that an argument is a text that fits in requests and records.

    Raises:
        ConfigError: the text is too long, or has a character that UTF-8 cannot encode, such as a lone surrogate.
        TypeError: the argument has another type.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument}: {value!r} is not a string")
    if value.isascii():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            shown = value[max(error.start - 10, 0) : error.end + 10]
            raise ConfigError(f"{argument} has a character that UTF-8 cannot encode: {shown!r}") from None
    if size > MAX_TEXT_BYTES:
        raise ConfigError(f"{argument} has {size} bytes ({value[:20]!r}…); valid: at most {MAX_TEXT_BYTES} bytes")


def check_texts(**texts: str | None) -> None:
    """Checks arguments, by name, as `check_text` does, but accepts None.

    Raises:
        ConfigError: a text is too long, or UTF-8 cannot encode it.
        TypeError: an argument is neither a text nor None.
    """
    for argument, text in texts.items():
        if text is not None:
            check_text(argument, text)


def check_numbers(argument: str, value: Any) -> list[int]:
    """Returns the whole numbers in an argument.

    Raises:
        TypeError: the argument has another type.
        ValueError: a number is too large.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{argument}: {value!r}; valid: a list of whole numbers")
    numbers = list(value)
    for number in numbers:
        check_number(f"a number of {argument}", number)
    return numbers


def check_mapping(argument: str, value: Any) -> None:
    """Checks that an argument is a mapping from texts.

    Raises:
        TypeError: the argument has another type, or a key that is not a text.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{argument}: {value!r} is not a mapping")
    for key in value:
        check_text(f"a key of {argument}", key)


def check_name(argument: str, value: Any) -> str:
    """Returns an argument that is a name: a text, not empty.

    Raises:
        ConfigError: the text is empty.
        TypeError: the argument has another type.
    """
    check_text(argument, value)
    if not value:
        raise ConfigError(f"{argument} is empty; valid: a name")
    return str(value)


def names_of(argument: str, value: str | Iterable[str]) -> list[str]:
    """Returns the names in an argument: one name, or several.

    Raises:
        TypeError: the argument has another type, or a name is not a text.
    """
    if isinstance(value, str):
        check_text(argument, value)
        return [value]
    if isinstance(value, bytes | bytearray) or not isinstance(value, Iterable):
        raise TypeError(f"{argument}: {value!r}; valid: one string, or several")
    names = list(value)
    for name in names:
        check_text(argument, name)
    return names


def is_whole(value: object) -> bool:
    """Returns True if the value is a whole number. A bool does not count as a number."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_offset(value: Any) -> None:
    """Checks an offset from which to read.

    Raises:
        TypeError: the argument is not a whole number.
        ValueError: the number is negative, or larger than a request can express.
    """
    check_number("offset", value)
    if value < 0:
        raise ValueError(f"offset={value}; valid: 0 or more")


def check_partition_number(value: Any) -> None:
    """Checks that an argument is the number of a partition.

    Raises:
        TypeError: the argument has another type.
        ValueError: the number is negative, or larger than a request can express.
    """
    if not is_whole(value):
        raise TypeError(f"the partition is {value!r}; valid: a number")
    if not 0 <= value <= MAX_PARTITION:
        raise ValueError(f"the partition is {value}; valid: 0 to {MAX_PARTITION}")


def check_number(argument: str, value: Any, maximum: int = MAX_OFFSET) -> None:
    """Checks that an argument is a whole number that a request can express.

    Args:
        argument: the argument's name.
        value: the number to check.
        maximum: the largest number, and the largest absolute value of a negative number.

    Raises:
        TypeError: the argument has another type.
        ValueError: the number is too large.
    """
    if not is_whole(value):
        raise TypeError(f"{argument}={value!r}; valid: a whole number")
    if not -maximum <= value <= maximum:
        raise ValueError(f"{argument}={value}; valid: at most {maximum}")


def check_count(argument: str, value: Any) -> None:
    """Checks that an argument is a whole number of at least 1.

    Raises:
        ConfigError: the number is below 1, or larger than a request can express.
        TypeError: the argument has another type.
    """
    if not is_whole(value):
        raise TypeError(f"{argument}={value!r}; valid: a whole number, 1 or more")
    if not 1 <= value <= MAX_COUNT:
        raise ConfigError(f"{argument}={value}; valid: 1 to {MAX_COUNT}")


def check_offsets(value: Any) -> None:
    """Checks that an argument is a mapping from partitions to offsets. Does not check its keys and values.

    Raises:
        TypeError: the argument has another type.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"offsets: {value!r} is not a mapping; valid: partition -> offset")


def warn_about_seconds(argument: str, value: float) -> None:
    """Warns the caller of the API that the unit of a time is the second."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("kcore."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        f"{argument}={value:g} is in seconds: {duration(value)}; for {value:g} milliseconds, pass {value / 1000:g}",
        ImplausibleTimeWarning,
        stacklevel=depth,
    )


def duration(seconds: float) -> str:
    """Renders a time in the largest unit that does not exceed it: 5000 seconds are "1.39 h"."""
    for name, unit_s in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {name}"
    return f"{seconds:.3g} s"
