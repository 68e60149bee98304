"""Levels of loggers, read and changed by DescribeConfigs and IncrementalAlterConfigs (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kcore.broker.configs.loggers import LEVELS
from kcore.broker.metadata.image import ConfigType
from kcore.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tests.broker.context import NODE_ID, BrokerContext

LOGGER, NODE, NAME = ConfigType.BROKER_LOGGER, str(NODE_ID), "kcore.broker.configs.broker_config"
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    levels = {logging.getLogger(): logging.WARNING, logging.getLogger("kcore"): logging.WARNING}
    levels[logging.getLogger(NAME)] = logging.NOTSET
    before = {logger: logger.level for logger in levels}
    for logger, number in levels.items():
        logger.setLevel(number)
    yield
    for logger, number in before.items():
        logger.setLevel(number)


def level(node: BrokerContext, name: str = NAME) -> str:
    (described,) = node.describe(LOGGER, NODE, name).configs
    assert described == DescribeConfigsResourceResult(
        name=name, value=described.value, config_source=6, documentation=None
    )
    return str(described.value)


def test_levels_are_set_and_given_back() -> None:
    node = BrokerContext()
    for name, number in LEVELS.items():
        assert node.alter(LOGGER, NODE, (NAME, SET, name)).error_code == 0
        assert (level(node), logging.getLogger(NAME).level) == (name, number)
    assert node.alter(LOGGER, NODE, (NAME, DELETE, None)).error_code == 0
    assert level(node) == level(node, "root") == "WARN"
    assert node.alter(LOGGER, NODE, ("root", SET, "DEBUG")).error_code == 0
    assert level(node) == "DEBUG"
    assert logging.getLogger("kcore").level == logging.DEBUG
    assert logging.getLogger().level != logging.DEBUG, "the loggers of the embedding program are not changed"
    names = [config.name for config in node.describe(LOGGER, NODE).configs]
    assert names == ["root", *sorted(names[1:])]
    assert all(name.startswith("kcore.") for name in names[1:])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([(NAME, SET, "LOUD")], 40),
        ([(NAME, SET, "debug")], 40),
        ([(NAME, SET, None)], 42),
        ([("no.such.logger", SET, "INFO")], 40),
        ([("no.such.logger", DELETE, None)], 40),
        ([(NAME, APPEND, "INFO")], 42),
        ([("root", DELETE, None)], 42),
        ([(NAME, SET, "ERROR"), ("no.such.logger", SET, "INFO")], 40),
        ([(NAME, SET, "INFO"), (NAME, SET, "ERROR")], 42),
        ([], 0),
    ],
)
def test_a_refused_change_changes_nothing(changes: list[tuple[str, int, str | None]], code: int) -> None:
    node = BrokerContext()
    assert node.alter(LOGGER, NODE, *changes).error_code == code
    assert level(node) == "WARN"
    for other in ("", "x", str(NODE_ID + 1)):
        assert node.alter(LOGGER, other, ("root", SET, "INFO")).error_code == 42
        assert node.describe(LOGGER, other).error_code == 42
