"""Settings from where people write them: a properties file, `-c key=value`, the verb's own options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kcore.config.node import Config
from kcore.config.properties import read_properties
from kcore.errors import ConfigError


def make_config(file: Path | None, assignments: Iterable[str], options: dict[str, str]) -> Config:
    """The configuration of a node: file, then `-c`, then the verb's own options, each over the one before.

    Settings that Kafka has and kcore does not are refused like any unknown one, with the place where they stand.

    Raises:
        ConfigError: a setting is unknown or not valid; the message says where it stands and what is valid.
    """
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, (value, source) in (read_properties(file) if file is not None else {}).items():
        values[name], sources[name] = value, source
    for name, value in parse_assignments("-c", assignments).items():
        values[name], sources[name] = value, "-c"
    for name, value in options.items():
        values[name], sources[name] = value, "command line"
    config = Config()
    for name, value in values.items():
        try:
            config.set(name, value, sources[name])
        except ConfigError as error:
            raise ConfigError(f"{sources[name]}: {error}") from None
    return config


def parse_assignments(option: str, assignments: Iterable[str]) -> dict[str, str]:
    """Settings as they stand in a command.

    Args:
        option: what stands before each, for the message.
        assignments: NAME=VALUE each; of a name that stands there twice the last one counts.

    Returns:
        Values by name.

    Raises:
        ConfigError: one is not NAME=VALUE.
    """
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{option} {assignment!r} is no setting; valid: {option} name=value")
        values[name.strip()] = value.strip()
    return values
