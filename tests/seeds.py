"""The seed of tests that draw at random outside of Hypothesis.

It is the same in every run, so that a run repeats the one before. `make explore` sets KCORE_SEED to other seeds and
runs the tests that are marked `seeded`.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("KCORE_SEED", "20240229"))
