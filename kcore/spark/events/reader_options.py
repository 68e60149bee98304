"""Parses the options of the data source `kcore`. Errors name the option and the fault."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.errors import ConfigError

Options = Mapping[str, str]


def text(options: Options, name: str) -> str:
    """Returns a required option. Raises ConfigError if it is missing."""
    value = options.get(name)
    if not value:
        raise ConfigError(f"the data source kcore needs the option {name}")
    return value


def number(options: Options, name: str, least: int | None = None) -> int | None:
    """Parses an integer option.

    Args:
        options: all options.
        name: the option's name.
        least: the smallest allowed value; None: no limit.

    Returns:
        The number; None if the option is missing.

    Raises:
        ConfigError: the value is not an integer or is below `least`.
    """
    raw = options.get(name)
    if raw is None:
        return None
    try:
        value = int(raw)
    except ValueError:
        raise ConfigError(f"option {name}: {raw!r} is not an integer") from None
    if least is not None and value < least:
        raise ConfigError(f"option {name}: {value} is less than {least}")
    return value


def numbers(options: Options, name: str) -> frozenset[int] | None:
    """Parses a comma-separated list of non-negative integers; returns None if the option is missing.

    Raises ConfigError for other values.
    """
    raw = options.get(name)
    if raw is None:
        return None
    return frozenset(number({name: text.strip()}, name, 0) or 0 for text in raw.split(","))


def names(options: Options, name: str) -> frozenset[str] | None:
    """Parses comma-separated names; returns None if the option is missing. Raises ConfigError for an empty name."""
    raw = options.get(name)
    if raw is None:
        return None
    value = frozenset(entry.strip() for entry in raw.split(","))
    if "" in value:
        raise ConfigError(f"option {name}: {raw!r} contains an empty name")
    return value


def truth(options: Options, name: str) -> bool:
    """Parses `true` or `false`; returns False if the option is missing. Raises ConfigError for other values."""
    raw = options.get(name)
    if raw is not None and raw.lower() not in ("true", "false"):
        raise ConfigError(f"option {name}: {raw!r} is neither true nor false")
    return raw is not None and raw.lower() == "true"
