"""The metrics of a node of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kcore.server.cluster_metrics import CLUSTER_METRICS
from kcore.server.observe import Observer
from tests.cluster.test_node import Cluster, run
from tests.cluster.world import TIMING, Client, ClusterWorld, Node
from tests.harness import EngineHarness


class Observed:
    """A stand-in for a server: it has only the engine, whose metrics the tests read."""

    def __init__(self, engine: object) -> None:
        self.engine = engine


def value(node: Node, name: str, *labels: str) -> float:
    [metric] = [each for each in CLUSTER_METRICS if each.name == name]
    samples = dict(metric.collect(Observed(node.engine)))
    return float(samples[labels])


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    world.start()
    yield world
    world.close()


def test_leases_leaders_moves_and_failovers_are_measured(world: ClusterWorld) -> None:
    client = Client(world)
    client.create("t")
    one, two, three = world.up
    assert [value(node, "kcore_cluster_controller") for node in world.up] == [1, 0, 0]
    assert sum(value(node, "kcore_cluster_leaders") for node in world.up) == 12
    assert 0 < value(two, "kcore_cluster_lease_remaining_seconds") <= 5.5
    assert value(three, "kcore_cluster_nodes", "alive") == 3
    assert value(one, "kcore_cluster_planned_moves_total") >= 4, "the offsets topic was spread"
    assert value(one, "kcore_cluster_moves_in_progress") == 0
    assert value(one, "kcore_cluster_failovers_total") == 0
    led = value(three, "kcore_cluster_leaders")
    three.kill()
    world.advance(TIMING.ttl_ms + 1_000)
    assert value(one, "kcore_cluster_failovers_total") == led
    assert value(two, "kcore_cluster_nodes", "fenced") == 1
    assert value(one, "kcore_cluster_leaders") + value(two, "kcore_cluster_leaders") == 12
    assert value(one, "kcore_cluster_leaderless_partitions") == 0
    two.paused = True
    world.advance(TIMING.ttl_ms + 1_000)
    two.paused = False
    world.advance(1_000)
    assert value(two, "kcore_cluster_lease_remaining_seconds") == 0


def test_handovers_are_timed(world: ClusterWorld) -> None:
    released = sum(node.engine.releases.times.count for node in world.up if node.engine)
    assert released >= 4
    assert all(node.engine.releases.times.total < 5 * released for node in world.up if node.engine)


def test_a_node_with_its_own_log_has_no_metrics_of_a_cluster() -> None:
    harness = EngineHarness({}, {})
    assert [list(metric.collect(Observed(harness.engine))) for metric in CLUSTER_METRICS] == [[]] * len(CLUSTER_METRICS)


def test_a_scrape_has_the_calls_of_the_store_and_the_loads_of_new_shards() -> None:
    async def test(cluster: Cluster) -> None:
        node = cluster.nodes[2]
        observer = Observer(node.engine, node.driver, node.server)

        async def leads() -> bool:
            return any(shard.topic == "__consumer_offsets" for shard in node.engine.groups)

        await cluster.until(leads, "node 2 coordinates groups")

        async def loaded() -> bool:
            return observer.load_time.count > 0 and node.engine.store_time.count > 0

        await cluster.until(loaded, "a load and a call of the store")
        scrape = observer.scrape()
        while True:
            try:
                next(scrape)
            except StopIteration as done:
                text = b"".join(done.value).decode()
                break
            await asyncio.sleep(0)
        assert "kcore_cluster_store_call_duration_seconds_count " in text
        assert 'kcore_cluster_nodes{state="alive"} 2' in text
        observer.close()

    run(test)
