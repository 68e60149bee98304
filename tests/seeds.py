"""The seed of random tests that do not use Hypothesis.

It is constant, so that runs are reproducible. `make explore` sets KCORE_SEED to other seeds and runs the tests that are
marked `seeded`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

SEED = int(os.environ.get("KCORE_SEED", "20240229"))


def first_of(cases: Iterable[Any], count: int) -> list[Any]:
    """Returns the parameters of a test: `make test` runs the first `count` cases, and `make test-long` the others."""
    return [case if index < count else pytest.param(case, marks=pytest.mark.long) for index, case in enumerate(cases)]
