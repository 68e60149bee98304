"""The isolation levels of readers, by Kafka's names."""

from __future__ import annotations

from typing import Final

from kcore.errors import ConfigError

ISOLATION_LEVELS: Final = {"read_committed": 1, "read_uncommitted": 0}
"""Name -> the number in a request."""


def isolation_level(isolation: str) -> int:
    """Returns the number of an isolation level.

    Raises:
        ConfigError: the name is unknown.
    """
    level = ISOLATION_LEVELS.get(isolation)
    if level is None:
        raise ConfigError(f"isolation={isolation!r}; valid: {', '.join(map(repr, ISOLATION_LEVELS))}")
    return level
