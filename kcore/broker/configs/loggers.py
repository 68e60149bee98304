"""The loggers of the server, whose levels operators can read and change (resource type 8 of DescribeConfigs, KIP-412).

They are the loggers of the package `kcore`. Loggers of a program that embeds kcore are neither listed nor changed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcore.broker.configs.alter import Alteration

ROOT = "root"
"""Kafka's name of the logger from which all others inherit their level. In kcore it stands for the logger `kcore`."""

PACKAGE = "kcore"
TRACE = 5

LEVELS: Mapping[str, int] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names of the levels -> the levels of `logging`."""

SET, DELETE = 0, 1


def loggers() -> dict[str, str]:
    """Returns the effective level of each logger, by name; names are sorted, `root` is the first."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith(f"{PACKAGE}."))
    return {ROOT: _level_of(_logger(ROOT)), **{name: _level_of(_logger(name)) for name in names}}


def alter_loggers(alterations: Sequence[Alteration], *, validate_only: bool) -> None:
    """Changes levels. A logger whose level is deleted inherits the level of its parent.

    Args:
        alterations: the changes of levels; each logger occurs once.
        validate_only: True to check the changes only.

    Raises:
        KafkaError: a change is refused, and no level was changed. The code is INVALID_CONFIG for an unknown logger or
            level. It is INVALID_REQUEST for an operation other than SET and DELETE, or for the deletion of the root
            logger's level.
    """
    known = loggers()
    for name, operation, value in alterations:
        if operation not in {SET, DELETE}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"logger {name} allows only the operations SET and DELETE")
        if operation == DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"logger {name!r} does not exist")
        if operation == SET and value not in LEVELS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{value!r} is not a level; valid: {', '.join(LEVELS)}")
    if validate_only:
        return
    for name, operation, value in alterations:
        _logger(name).setLevel(LEVELS[value] if operation == SET and value is not None else logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(PACKAGE if name == ROOT else name)


def _level_of(logger: logging.Logger) -> str:
    """Returns Kafka's name of a logger's effective level. If Kafka has no such level, the name is that of the next less
    severe level.
    """
    level = logger.getEffectiveLevel()
    return next((name for name, value in reversed(list(LEVELS.items())) if value <= level), "TRACE")
