"""Values of settings as Kafka reads and writes them: `ConfigDef`'s rules, which are stricter than our own files'."""

from __future__ import annotations

import re
from typing import Any

from kcore.config.setting import WIDTHS, Setting, SettingType

MAX_VALUE_LENGTH = 32_767
"""The longest value of a setting that is kept, in UTF-16 code units."""

_JAVA_BLANKS = "".join(map(chr, range(33)))  # what Java's trim() takes away
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?")
_COMMA = re.compile(r"\s*,\s*")


class InvalidValueError(ValueError):
    """A value cannot be read, or lies outside of what the setting allows; the text says why."""


def read_value(setting: Setting, text: str) -> Any:
    """Reads and checks a value.

    Args:
        setting: what it is a value of.
        text: the value as it was sent.

    Returns:
        bool, int, float, str or a tuple of str.

    Raises:
        InvalidValueError: it is no such value, or one that the setting does not allow.
    """
    value = _parse(setting, text.strip(_JAVA_BLANKS))
    fault = _range_fault(setting, value)
    if fault is None and setting.check is not None:
        fault = setting.check(value)
    if fault is not None:
        raise InvalidValueError(f"{setting.name}={text!r}: {fault}; valid: {setting.valid}")
    return value


def _parse(setting: Setting, text: str) -> Any:
    kind = setting.type
    if kind is SettingType.BOOLEAN:
        if text.lower() not in {"true", "false"}:
            raise InvalidValueError(f"{setting.name}={text!r}: neither true nor false")
        return text.lower() == "true"
    if kind in WIDTHS:
        if _WHOLE.fullmatch(text) is None:
            raise InvalidValueError(f"{setting.name}={text!r}: no whole number")
        low, high = WIDTHS[kind]
        number = int(text)
        if not low <= number <= high:
            raise InvalidValueError(f"{setting.name}={text!r}: no number of type {kind.name}")
        return number
    if kind is SettingType.DOUBLE:
        if _DECIMAL.fullmatch(text) is None:
            raise InvalidValueError(f"{setting.name}={text!r}: no number")
        return float(text.rstrip("dDfF"))
    if kind is SettingType.LIST:
        return tuple(dict.fromkeys(_COMMA.split(text))) if text else ()
    return text


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
    """The elements of a list as append and subtract see them: between commas, blanks kept, empty ones left out."""
    return [part for part in text.split(",") if part]


def show_value(value: Any) -> str | None:
    """A value as Kafka writes it; null where there is none."""
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
    """Java's `Double.toString`: plain between 0.001 and 10 million, else with an E and at least one decimal."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        digits = f"{value!r}"
        return digits if "." in digits else f"{digits}.0"
    digits, _, exponent = next(
        text.partition("e") for precision in range(18) if float(text := f"{value:.{precision}e}") == value
    )
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
