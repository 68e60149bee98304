"""A node over a data folder sends the same responses and writes the same records as Apache Kafka 4.3.1, in virtual
time.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kcore.cli.serve_processes import make_ready
from kcore.clock import Clock
from kcore.cluster.local import LocalClusterStore
from kcore.cluster_engine import ClusterEngine
from kcore.config.node import Config
from tests.cluster.test_golden import DIFFERENT, registered
from tests.test_virtual_golden import SCENARIOS, differences, settings_of
from tests.virtual_server import VirtualServer

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - DIFFERENT))
def test_responses_and_records_equal_kafkas(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kcore")

    def only_node(config: Config, clock: Clock) -> ClusterEngine:
        config.set("kcore.data.dir", str(tmp_path / "data"), "test")
        config.set("kcore.durability", "os", "test")
        folder = make_ready(config)
        config.set("kcore.durability", "memory", "test")  # commits on a thread would take real time
        store = LocalClusterStore(folder.path, "os", clock.monotonic_ms)
        folder.release()
        return registered(store, config, clock)

    assert differences(name, VirtualServer(settings_of(name.split("/", maxsplit=1)[0]), only_node)) == []
