"""Sources of settings: a properties file, `-c key=value`, and the verb's own options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kcore.config.node import Config
from kcore.config.properties import read_properties
from kcore.errors import ConfigError


def make_config(file: Path | None, assignments: Iterable[str], options: dict[str, str]) -> Config:
    """Creates a node's configuration from the file, then `-c`, then the verb's options; later sources win.

    Settings that Kafka has and kcore does not use are stored. Unknown settings are refused.

    Raises:
        ConfigError: a setting is unknown or invalid; the message names its location and the valid values.
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
    if "node.id" not in options and {"node.id", "broker.id"} <= values.keys():
        node_id, broker_id = config.node_id, config.get("broker.id")
        if node_id != broker_id:
            raise ConfigError(
                f"{sources['node.id']}: node.id={node_id} differs from broker.id={broker_id} ({sources['broker.id']}); "
                "set one of them, or both to the same value"
            )
    return config


def parse_assignments(option: str, assignments: Iterable[str]) -> dict[str, str]:
    """Parses settings of a command line.

    Args:
        option: the option in front of each setting, for error messages.
        assignments: NAME=VALUE; the last assignment of a name wins.

    Returns:
        Values by name.

    Raises:
        ConfigError: an assignment is not NAME=VALUE.
    """
    values = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"{option} {assignment!r} is not a setting; valid: {option} name=value")
        values[name.strip()] = value.strip()
    return values
