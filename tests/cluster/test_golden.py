"""A node of a cluster sends the same responses and writes the same records as Apache Kafka 4.3.1, in virtual time."""

from __future__ import annotations

import logging

import pytest

from kcore.clock import Clock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.cluster.store import ClusterStore, Endpoint, NodeDescription
from kcore.cluster_engine import ClusterEngine
from kcore.config.node import Config
from tests.cluster.world import CLUSTER_ID, TIMING
from tests.test_virtual_golden import SCENARIOS, differences, settings_of
from tests.virtual_server import VirtualServer

pytestmark = pytest.mark.long


def only_node(config: Config, clock: Clock) -> ClusterEngine:
    """Opens the only node of a cluster."""
    config.set("kcore.durability", "memory", "test")  # commits on a thread would take real time
    cluster = MemoryCluster(config.cluster_id or CLUSTER_ID, clock.monotonic_ms)
    return registered(MemoryClusterStore(cluster), config, clock)


def registered(store: ClusterStore, config: Config, clock: Clock) -> ClusterEngine:
    """Registers the only node of a cluster with the store, and opens its engine."""
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)
    lease = store.register(config.node_id, NodeDescription((endpoint,), config.broker_rack), TIMING.ttl_ms)
    return ClusterEngine(store, lease, clock.monotonic_ms(), config, clock, timing=TIMING)


DIFFERENT = {"wire/unknown_keys_close"}
"""Names of scenarios that this module leaves out. In these scenarios, Kafka's broker closes the connection after
requests that only controllers serve. In a kcore cluster, every node may be the controller.
"""


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - DIFFERENT))
def test_responses_and_records_equal_kafkas(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kcore")
    assert differences(name, VirtualServer(settings_of(name.split("/", maxsplit=1)[0]), only_node)) == []
