"""Parsing and formatting of settings by the rules of Kafka's `ConfigDef`, which are stricter than the rules for kcore's
own files.
"""

from __future__ import annotations

import math
import re
from typing import Any

from kcore.config.setting import ANY_TEXT, WIDTHS, Setting, SettingType, unit_hint

MAX_VALUE_LENGTH = 32_767
"""Longest accepted value of a setting, in UTF-16 code units."""

_JAVA_BLANKS = "".join(map(chr, range(33)))  # the characters that Java's trim() removes
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[dDfF]?")
_INFINITY = re.compile(r"[+-]?Infinity")


KEEP_REPEATED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Lists whose repeated elements Kafka keeps."""


class InvalidValueError(ValueError):
    """A value cannot be parsed, or is not allowed for the setting. The message contains the reason."""


def read_value(setting: Setting, text: str) -> Any:
    """Parses and checks a value.

    Args:
        setting: the value's setting.
        text: the value as the client sent it.

    Returns:
        bool, int, float, str or a tuple of str.

    Raises:
        InvalidValueError: the value cannot be parsed, or the setting does not allow it.
    """
    value = _parse(setting, text.strip(_JAVA_BLANKS))
    fault = _range_fault(setting, value)
    if fault is None and setting.check is not None:
        fault = setting.check(value)
    if fault is not None:
        # If the setting declares no valid values, the text of the fault names them.
        valid = "" if setting.valid == ANY_TEXT else f"; valid: {setting.valid}"
        raise InvalidValueError(f"{setting.name}={text!r}: {fault}{valid}")
    return value


MAX_DIGITS = 19  # of the largest int64


def _parse(setting: Setting, text: str) -> Any:
    kind = setting.type
    if kind is SettingType.BOOLEAN:
        if text.lower() not in {"true", "false"}:
            raise InvalidValueError(f"{setting.name}={text!r}: neither true nor false")
        return text.lower() == "true"
    if kind in WIDTHS:
        if _WHOLE.fullmatch(text) is None:
            raise InvalidValueError(f"{setting.name}={text!r}: not a whole number{unit_hint(setting.name, text)}")
        low, high = WIDTHS[kind]
        digits = text.lstrip("+-").lstrip("0")
        # Python refuses to convert thousands of digits.
        number = int(("-" if text.startswith("-") else "") + (digits or "0")) if len(digits) <= MAX_DIGITS else None
        if number is None or not low <= number <= high:
            raise InvalidValueError(f"{setting.name}={text!r}: not a number of type {kind.name}")
        return number
    if kind is SettingType.DOUBLE:
        double = _double(text)
        if double is None:
            raise InvalidValueError(f"{setting.name}={text!r}: not a number")
        return double
    if kind is SettingType.LIST:
        parts = [part.strip() for part in text.split(",")] if text else []
        return tuple(parts if setting.name in KEEP_REPEATED else dict.fromkeys(parts))
    return text


def _double(text: str) -> float | None:
    """Reads a number as Java's `Double.parseDouble` does; None if the text is not a number, or is NaN."""
    if _DECIMAL.fullmatch(text) is not None:
        return float(text.rstrip("dDfF"))
    if _INFINITY.fullmatch(text) is not None:
        return float(text)
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    try:
        return None if hexadecimal is None else float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _range_fault(setting: Setting, value: Any) -> str | None:
    if setting.choices is not None:
        for part in value if isinstance(value, tuple) else (value,):
            if part not in setting.choices:
                return f"{part!r} is not allowed"
    if setting.low is not None and value < setting.low:
        return "too small"
    if setting.high is not None and value > setting.high:
        return "too large"
    return None


def split_list(text: str) -> list[str]:
    """Splits a list at its commas for append and subtract: keeps blanks, omits empty elements."""
    return [part for part in text.split(",") if part]


def show_value(value: Any) -> str | None:
    """Formats a value as Kafka does; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _show_double(value)
    if isinstance(value, tuple | list):
        return ",".join(value)
    return str(value)


def _show_double(value: float) -> str:
    """Formats like Java's `Double.toString`: decimal from 0.001 to 10 million, else with E and one or more decimals."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        digits = f"{value!r}"
        return digits if "." in digits else f"{digits}.0"
    digits, _, exponent = next(
        text.partition("e") for precision in range(18) if float(text := f"{value:.{precision}e}") == value
    )
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
