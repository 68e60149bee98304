"""Declarations of settings: name, type, default, bounds and meaning in one line of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from kcore.errors import ConfigError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

HIDDEN = "[hidden]"
"""The text that replaces a password wherever a setting's value is shown."""

ANY_TEXT = "any text"
"""Description of the valid values of a setting whose type allows every text. `Setting.check` may allow fewer."""

MAX_SHOWN_BITS = 256


class SettingType(Enum):
    """Kafka's types of settings; the value is the number in DescribeConfigs v3+."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


WIDTHS: dict[SettingType, tuple[int, int]] = {
    SettingType.SHORT: (-(2**15), 2**15 - 1),
    SettingType.INT: (-(2**31), INT_MAX),
    SettingType.LONG: (-(2**63), LONG_MAX),
}


class Setting(NamedTuple):
    """One setting.

    Attributes:
        name: Kafka's name (or kcore's own, which begins with `kcore.`).
        type: the type, which determines the syntax of the value.
        default: the default value; None if there is none.
        doc: the meaning.
        low: the minimum, inclusive; None: the minimum of the type.
        high: the maximum, inclusive; None: the maximum of the type.
        choices: the allowed values, if the setting has a fixed set of values; else None.
        ignore_case: True if the case of `choices` does not matter.
        dynamic: True if it can be changed while the server runs.
        check: a function that returns the problem of a value, or None if it finds no problem. The attribute is None if
            the setting has no such function.
    """

    name: str
    type: SettingType
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None
    dynamic: bool = False
    check: Callable[[Any], str | None] | None = None
    ignore_case: bool = False

    def parse(self, value: Any) -> Any:
        """Converts a text or a Python value to the setting's type, and checks its range.

        Raises:
            ConfigError: the value cannot be read or is out of range; the message names the valid range.
        """
        parsed = self._read(value.strip()) if isinstance(value, str) else self._read_typed(value)
        self._check_range(parsed, value)
        return parsed

    @property
    def valid(self) -> str:
        """Description of the valid values, for error messages and docs/settings.md."""
        if self.choices is not None:
            form = "a list of " if self.type is SettingType.LIST else "one of "
            return form + ", ".join(map(repr, self.choices)) + (", in upper or lower case" if self.ignore_case else "")
        if self.type is SettingType.BOOLEAN:
            return "true or false"
        if self.type in WIDTHS:
            low, high = self._bounds()
            return f"a whole number in {low}..{high}"
        if self.type is SettingType.DOUBLE:
            low_text = "" if self.low is None else f" from {self.low}"
            return f"a number{low_text}{'' if self.high is None else f' to {self.high}'}"
        if self.type is SettingType.LIST:
            return "values separated by commas"
        return ANY_TEXT

    def format(self, value: Any) -> str | None:
        """Returns the text of a value as Kafka writes it into a properties file; `HIDDEN` for any password.

        An empty password is replaced, too, since an empty text would reveal that the password is empty.
        """
        if value is None:
            return None
        if self.type is SettingType.PASSWORD:
            return HIDDEN
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _bounds(self) -> tuple[int, int]:
        """Returns the minimum and the maximum of an integer setting: its own bounds, or else the bounds of its type."""
        low, high = WIDTHS[self.type]
        return low if self.low is None else int(self.low), high if self.high is None else int(self.high)

    def _refuse(self, value: Any, why: str) -> ConfigError:
        shown = HIDDEN if self.type is SettingType.PASSWORD else _shown(value)
        # A setting with a check of its own explains its format in `why`.
        valid = "" if self.valid == ANY_TEXT else f"; valid: {self.valid}"
        return ConfigError(f"{self.name}={shown} {why}{valid}")

    def _read(self, text: str) -> Any:
        kind = self.type
        if kind is SettingType.BOOLEAN:
            if text.lower() not in {"true", "false"}:
                raise self._refuse(text, "is neither true nor false")
            return text.lower() == "true"
        if kind in WIDTHS:
            try:
                return int(text)
            except ValueError:
                raise self._refuse(text, f"is not a whole number{unit_hint(self.name, text)}") from None
        if kind is SettingType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self._refuse(text, "is not a number") from None
        if kind is SettingType.LIST:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return text

    def _read_typed(self, value: Any) -> Any:
        if value is None:
            if self.default is None:
                return None
            raise self._refuse(value, "is missing")
        kind = self.type
        if isinstance(value, bool) != (kind is SettingType.BOOLEAN):
            return self._read(str(value).lower())
        if kind is SettingType.BOOLEAN:
            return value
        if kind is SettingType.LIST and isinstance(value, list | tuple | set | frozenset):
            return tuple(str(part) for part in value)
        if not isinstance(value, int | float | PurePath):
            raise self._refuse(value, "has the wrong type")
        if kind is SettingType.DOUBLE:
            return self._read(str(value))
        return value if kind in WIDTHS else self._read(str(value))

    def _check_range(self, parsed: Any, value: Any) -> None:
        if parsed is None:
            return
        if self.type in WIDTHS:
            low, high = self._bounds()
            if not isinstance(parsed, int) or not low <= parsed <= high:
                raise self._refuse(value, "is out of range")
        elif self.type is SettingType.DOUBLE:
            # NaN fails every comparison, so this form of the condition refuses it too.
            lowest = -math.inf if self.low is None else self.low
            highest = math.inf if self.high is None else self.high
            if not lowest <= parsed <= highest:
                raise self._refuse(value, "is out of range")
        elif self.choices is not None:
            for part in parsed if isinstance(parsed, tuple) else (parsed,):
                if (part.lower() if self.ignore_case else part) not in self.choices:
                    problem = f"contains {part!r}, which is not supported" if parsed != part else "is not supported"
                    raise self._refuse(value, problem)
        if self.check is not None and (wrong := self.check(parsed)):
            raise self._refuse(value, wrong)


_UNITS = {"ms": "milliseconds", "seconds": "seconds", "hours": "hours", "bytes": "bytes", "size": "bytes"}
_WITH_UNIT = re.compile(r"[+-]?\d+(\.\d+)?\s*[A-Za-z]+")


def unit_hint(name: str, text: str) -> str:
    """Returns a hint for an error message about a number with a unit, such as `1h`; "" if the text is no such number.

    Args:
        name: the setting's name, whose last word determines the unit of the setting.
        text: the value.
    """
    if _WITH_UNIT.fullmatch(text) is None:
        return ""
    unit = _UNITS.get(name.rpartition(".")[2])
    return f" (write a number without a unit{'' if unit is None else f', in {unit}'})"


def _shown(value: Any) -> str:
    """Returns the text of a value for an error message.

    Python refuses to format integers of thousands of digits, so the text of a large integer is its number of bits.
    """
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


class Declared:
    """The arguments of a `setting(...)` line in a class body. `declared` creates a `Setting` from them."""

    __slots__ = ("arguments", "kind")

    def __init__(self, kind: SettingType | None, arguments: dict[str, Any]) -> None:
        self.kind = kind
        self.arguments = arguments


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    dynamic: bool = False,
    kind: SettingType | None = None,
    check: Callable[[Any], str | None] | None = None,
    ignore_case: bool = False,
) -> Any:
    """Declares a setting in the body of a class of settings. Kafka's name is the attribute's name with dots.

    Args:
        default: the default value.
        doc: the meaning, in a sentence.
        low: the minimum, inclusive.
        high: the maximum, inclusive.
        choices: the allowed values, if they are few.
        ignore_case: True if the case of `choices` does not matter.
        dynamic: True if it may be changed while the server runs.
        kind: the type, if the annotation (int, bool, str, float, tuple) does not determine it: LONG, PASSWORD, …
        check: a function that returns the problem of a value, or None if it finds no problem.
    """
    return Declared(
        kind,
        {
            "default": default,
            "doc": doc,
            "low": low,
            "high": high,
            "choices": choices,
            "dynamic": dynamic,
            "check": check,
            "ignore_case": ignore_case,
        },
    )


_KINDS = {
    "int": SettingType.INT,
    "bool": SettingType.BOOLEAN,
    "str": SettingType.STRING,
    "float": SettingType.DOUBLE,
    "tuple": SettingType.LIST,
}


def declared(cls: type) -> dict[str, Setting]:
    """Returns the settings that the `setting(...)` lines of a class body declare, by name and in their order."""
    table: dict[str, Setting] = {}
    for attribute, annotation in cls.__annotations__.items():
        line = cls.__dict__.get(attribute)
        if not isinstance(line, Declared):
            continue
        name = attribute.replace("_", ".")
        base_type = annotation.split("[")[0].split(" |")[0]
        table[name] = Setting(name=name, type=line.kind or _KINDS[base_type], **line.arguments)
        delattr(cls, attribute)
    return table


def similar_name(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an error message about an unknown name: the most similar valid name.

    The result is "" if no valid name is similar.
    """
    import difflib  # noqa: PLC0415  # only a refusal needs it

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
