"""Options of the data source `kcore`: texts that people wrote. Each is read here, where it is said what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

from kcore.errors import ConfigError

Options = Mapping[str, str]


def text(options: Options, name: str) -> str:
    """An option that must be there. ConfigError if it is not."""
    found = options.get(name)
    if not found:
        raise ConfigError(f"the data source kcore needs the option {name}")
    return found


def number(options: Options, name: str, least: int | None = None) -> int | None:
    """A whole number.

    Args:
        options: all of them.
        name: its name.
        least: the smallest one that makes sense; None: any does.

    Returns:
        The number; None where the option is not there.

    Raises:
        ConfigError: it is no such number.
    """
    said = options.get(name)
    if said is None:
        return None
    try:
        found = int(said)
    except ValueError:
        raise ConfigError(f"option {name}: {said!r} is no whole number") from None
    if least is not None and found < least:
        raise ConfigError(f"option {name}: {found} is less than {least}")
    return found


def numbers(options: Options, name: str) -> frozenset[int] | None:
    """Numbers from 0 on, with commas between them; None where the option is not there. ConfigError for others."""
    said = options.get(name)
    if said is None:
        return None
    return frozenset(number({name: one.strip()}, name, 0) or 0 for one in said.split(","))


def names(options: Options, name: str) -> frozenset[str] | None:
    """Names with commas between them; None where the option is not there. ConfigError for an empty one."""
    said = options.get(name)
    if said is None:
        return None
    found = frozenset(one.strip() for one in said.split(","))
    if "" in found:
        raise ConfigError(f"option {name}: {said!r} has an empty name in it")
    return found


def truth(options: Options, name: str) -> bool:
    """`true` or `false`, which is also what is meant where the option is not there. ConfigError for anything else."""
    said = options.get(name)
    if said is not None and said.lower() not in ("true", "false"):
        raise ConfigError(f"option {name}: {said!r} is neither true nor false")
    return said is not None and said.lower() == "true"
