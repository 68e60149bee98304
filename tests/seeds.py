"""The seed of random tests that do not use Hypothesis.

It is constant, so that runs are reproducible. `make explore` sets KCORE_SEED to other seeds and runs the tests that are
marked `seeded`.
"""

from __future__ import annotations

import os

SEED = int(os.environ.get("KCORE_SEED", "20240229"))
