"""Checks of the arguments of the client API: names from a fixed set, and times in seconds."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import ConfigError, ImplausibleTimeWarning

if TYPE_CHECKING:
    from kcore.protocol.compression import CompressionType

MOST_S: Final = 0x7FFFFFFF / 1000
"""The longest time: requests have times as 32-bit milliseconds."""

LONG_WAIT_S: Final = 600.0
"""A longer wait in one call is probably meant in milliseconds."""

LONG_LIFE_S: Final = 21_600.0
"""A longer wait for the end of a member is probably meant in milliseconds."""

GROUP_TYPES: Final = {name: name for name in ("classic", "consumer", "share", "streams")}
"""The types of groups, and the text by which a server filters for each."""

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
"""The states of groups of every type, and the text by which a server filters for each."""

TRANSACTION_STATES: Final = {
    name: name for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
} | {"Dead": "Dead", "PrepareEpochFence": "PrepareEpochFence"}
"""The states of transactional ids, and the text by which a server filters for each."""


def filters(argument: str, given: str | Iterable[str], valid: Mapping[str, str]) -> list[str]:
    """Converts the names of a filter to the texts of a request. The case of letters does not matter.

    Args:
        argument: the argument's name, for the error.
        given: one name, or several.
        valid: the valid names, and the text of each.

    Raises:
        ConfigError: a name is not valid. A server would return an empty list for it.
    """
    known = {name.lower(): text for name, text in valid.items()}
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if not isinstance(name, str) or name.lower() not in known:
            raise ConfigError(f"{argument}: {name!r} does not exist; valid: {', '.join(map(repr, valid))}")
    return [known[name.lower()] for name in names]


def check_choice(argument: str, given: Any, valid: Iterable[Any]) -> None:
    """Checks an argument that takes one of some values.

    Raises:
        ConfigError: the value is none of them.
    """
    listed = list(valid)
    if given not in listed:
        raise ConfigError(f"{argument}={given!r}; valid: {', '.join(map(repr, listed))}")


def codec_of(compression: str) -> CompressionType:
    """Returns the codec of a name.

    Raises:
        ConfigError: the codec does not exist.
    """
    from kcore.protocol.compression import CompressionType  # noqa: PLC0415 - only programs that write records need it

    check_choice("compression", compression, (codec.name.lower() for codec in CompressionType))
    return CompressionType.from_name(compression)


def check_seconds(argument: str, given: float, longest: float) -> None:
    """Checks a setting that is a time in seconds.

    Args:
        argument: the argument's name.
        given: its value.
        longest: the longest plausible time; a warning reports a longer one.

    Raises:
        ConfigError: the value is negative, or longer than a request can express.
    """
    if not 0 <= given <= MOST_S:  # also refuses NaN
        raise ConfigError(f"{argument}={given!r}; valid: seconds, from 0 to {MOST_S}")
    if given > longest:
        warn_of_seconds(argument, given)


def check_wait(argument: str, given: float | None, longest: float = LONG_WAIT_S) -> None:
    """Warns of a wait in one call that is implausibly long; None is no limit."""
    if given is not None and given > longest:
        warn_of_seconds(argument, given)


def warn_of_seconds(argument: str, given: float) -> None:
    """Warns the code that called the API that a time is in seconds."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("kcore."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        f"{argument}={given:g} is in seconds: {duration(given)}; for {given:g} milliseconds, pass {given / 1000:g}",
        ImplausibleTimeWarning,
        stacklevel=depth,
    )


def duration(seconds: float) -> str:
    """Renders a time in its largest unit: 5000 is "1.39 h"."""
    for name, unit_s in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {name}"
    return f"{seconds:.3g} s"
