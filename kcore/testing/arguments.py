"""Checks the arguments of the testing kit, so that the call with a wrong value fails, and not a later request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

MAX_SECONDS = 366 * 86_400.0
"""Maximum time in seconds, for a fault and for one step of a clock. A longer step would fire too many timers."""


def check_type(name: str, value: object, *types: type, optional: bool = False) -> None:
    """Checks the type of an argument. A bool does not count as a number.

    Raises:
        TypeError: the argument has another type.
    """
    if (optional and value is None) or (isinstance(value, types) and (bool in types or not isinstance(value, bool))):
        return
    words = [each.__name__ for each in types] + (["None"] if optional else [])
    raise TypeError(f"{name}={value!r}: must be {' or '.join(words)}, not {type(value).__name__}")


def check_text(name: str, value: object, *, optional: bool = False) -> None:
    """Checks a string, which must be one that Kafka's protocol can encode.

    Raises:
        TypeError: the argument is not a string.
        ValueError: the string has half a surrogate pair.
    """
    check_type(name, value, str, optional=optional)
    if value is not None and any("\ud800" <= letter <= "\udfff" for letter in str(value)):
        raise ValueError(f"{name}={value!r} has half a surrogate pair, which UTF-8 cannot encode")


def check_count(name: str, value: object, minimum: int, *, optional: bool = False) -> None:
    """Checks an integer.

    Raises:
        TypeError: the argument is not an integer.
        ValueError: the argument is below the minimum.
    """
    check_type(name, value, int, optional=optional)
    if value is not None and value < minimum:  # type: ignore[operator]
        raise ValueError(f"{name}={value}: the minimum is {minimum}")


def check_seconds(name: str, value: object, minimum: float = 0.0, maximum: float = MAX_SECONDS) -> None:
    """Checks a time in seconds.

    Raises:
        TypeError: the argument is not a number.
        ValueError: the argument is not in the range.
    """
    check_type(name, value, int, float)
    if not minimum <= value <= maximum or math.isnan(value):  # type: ignore[operator, arg-type]
        raise ValueError(f"{name}={value} seconds: valid are {minimum:g} to {maximum:g}")


def check_function(name: str, value: object, *, optional: bool = False) -> None:
    """Checks a function.

    Raises:
        TypeError: the argument cannot be called.
    """
    if not callable(value) and not (optional and value is None):
        raise TypeError(f"{name}={value!r}: must be a function{' or None' if optional else ''}")


def topic_sizes(topics: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Returns the number of partitions of each topic; 1 for a topic without a number.

    Raises:
        TypeError: a name is not a string, a number is not an integer, or `topics` is a single string.
        ValueError: a number is below 1.
    """
    if isinstance(topics, str | bytes):
        raise TypeError(f"topics={topics!r}: must be a list of names or a dict; for one topic: topics=[{topics!r}]")
    sizes = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    for name, partitions in sizes.items():
        check_text("the name of a topic", name)
        check_count(f"topics[{name!r}]", partitions, 1)
    return sizes


def setting_texts(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns settings as texts, as in a properties file.

    Raises:
        TypeError: `settings` is not a mapping, a name is not a string, or a value cannot be written in a properties
            file.
    """
    check_type("settings", settings, Mapping, optional=True)
    texts = {}
    for name, value in (settings or {}).items():
        check_text("the name of a setting", name)
        check_type(name, value, str, bool, int, float)
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts
