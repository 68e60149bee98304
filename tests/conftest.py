"""Settings of Hypothesis for all tests, and the signals that tested programs inherit."""

from __future__ import annotations

import gc
import logging
import random
import signal
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kcore.process_logging import reset_limits
from tests.seeds import SEED

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored. Programs that the tests start and interrupt would ignore the
    # signal, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The speed of the machine decides deadlines and `too_slow`: neither may fail a test.
_EVERYWHERE = settings(
    deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.register_profile("test", _EVERYWHERE, derandomize=True)
"""The default: the same examples in every run."""
settings.register_profile("explore", _EVERYWHERE)
"""Other examples for each --hypothesis-seed, for `make explore`."""
settings.load_profile("test")


LONG_TIMEOUT_S = 900
"""The time limit in seconds of a test that is marked `long` and has no limit of its own; machines may be busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves the tests that need the Spark session to the front, and sets the time limits of long tests.

    pytest-xdist gives each worker a part of the list. An idle worker receives tests from the end of another worker's
    part. So only one worker starts a Java virtual machine.
    """
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))


gc.disable()  # until all tests are collected: the collector would search through all earlier imports again and again


def pytest_collection_finish() -> None:
    """Exempts the collected tests, about a million objects, from all later garbage collections."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def repeatable_choices(request: pytest.FixtureRequest) -> None:
    """Seeds Python's random numbers, with which the code under test draws partitions and backoffs."""
    random.seed(SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def unlimited_lines() -> None:
    """Clears the counts of log lines of earlier tests. Otherwise the limit of log lines could suppress lines of this
    test.
    """
    reset_limits()


@pytest.fixture(autouse=True)
def unchanged_log_levels() -> Iterator[None]:
    """Restores the levels of kcore's loggers and of the root logger, because later tests count log lines. Also removes
    handlers that write to a test's output.
    """
    before, root, handlers = _log_levels(), logging.root.level, logging.root.handlers[:]
    yield
    logging.root.setLevel(root)
    for handler in logging.root.handlers[:]:
        if type(handler) is logging.StreamHandler and handler not in handlers:
            logging.root.removeHandler(handler)  # of a program that ran in this process; its stream is closed now
    for name, level in _log_levels().items():
        if level != before.get(name, logging.NOTSET):
            logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


def _log_levels() -> dict[str, int]:
    loggers = logging.root.manager.loggerDict.items()
    return {
        name: logger.level
        for name, logger in loggers
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "kcore"
    }
