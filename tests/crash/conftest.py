"""Options of the crash tests: number of kills and seed."""

from __future__ import annotations

import os

import pytest

from tests.seeds import SEED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=None, help="how often the crash test kills (KCORE_CRASH_ROUNDS)")


@pytest.fixture(params=[6, pytest.param(20, marks=pytest.mark.long)])
def rounds(request: pytest.FixtureRequest) -> int:
    """Returns the number of kills: the option --rounds, else the environment variable KCORE_CRASH_ROUNDS, else 6 (20 in
    long tests).
    """
    given = request.config.getoption("--rounds", default=None)
    return int(given if given is not None else os.environ.get("KCORE_CRASH_ROUNDS", request.param))


@pytest.fixture
def seed() -> int:
    """Returns the seed that decides when servers are killed. The seed is printed when a test fails."""
    print(f"KCORE_SEED={SEED}")
    return SEED
