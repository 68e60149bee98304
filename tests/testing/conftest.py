"""Fixtures of the testing kit's own tests; the clients are imported before the first test."""

from __future__ import annotations

import importlib.metadata
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # hundreds of kafka-python's, at its import
    import confluent_kafka  # noqa: F401
    import kafka  # noqa: F401

if not any(entry.value == "kcore.testing.plugin" for entry in importlib.metadata.entry_points(group="pytest11")):
    # kcore is not installed with its entry points: this folder provides the plugin's fixtures itself.
    from kcore.testing.plugin import (  # noqa: F401
        kcore_bootstrap,
        kcore_broker,
        kcore_node,
        kcore_server,
        pytest_configure,
        pytest_runtest_makereport,
    )
