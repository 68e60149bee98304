"""Settings of Hypothesis for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The speed of the machine decides deadlines and `too_slow`: neither may fail a test.
_EVERYWHERE = settings(
    deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.register_profile("test", _EVERYWHERE, derandomize=True)
"""The default: the same examples in every run."""
settings.register_profile("explore", _EVERYWHERE)
"""Other examples for each --hypothesis-seed, for `make explore`."""
settings.load_profile("test")
