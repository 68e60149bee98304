"""How often and how the crash tests kill."""

from __future__ import annotations

import os
import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=None, help="how often the crash test kills (KCORE_CRASH_ROUNDS)")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a server is killed: --rounds, or the environment's KCORE_CRASH_ROUNDS, or 20."""
    given = request.config.getoption("--rounds", default=None)
    return int(given if given is not None else os.environ.get("KCORE_CRASH_ROUNDS", "20"))


@pytest.fixture
def seed() -> int:
    """What decides when they are killed; printed when a test fails, and taken from KCORE_CRASH_SEED."""
    chosen = int(os.environ.get("KCORE_CRASH_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"KCORE_CRASH_SEED={chosen}")
    return chosen
