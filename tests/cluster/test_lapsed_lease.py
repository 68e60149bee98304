"""A node whose lease had ended serves requests only once it knows the leaders that were chosen meanwhile."""

from __future__ import annotations

from kcore.broker.metadata.brokers import leader_record
from kcore.log.errors import StoreUnavailableError
from kcore.protocol.error_codes import ErrorCode
from tests.cluster.world import STEP_MS, TIMING, Client, ClusterWorld
from tests.kit import fetch

FETCH_VERSION = 11


def fetched(world: ClusterWorld, node_id: int, partition: int) -> tuple[int, int]:
    """Fetches at one node; returns the error code and the high watermark."""
    response = world.nodes[node_id].send(fetch("t", 0, partition), FETCH_VERSION)
    if not response.responses:
        return response.error_code, -1
    row = response.responses[0].partitions[0]
    return row.error_code, row.high_watermark


def test_a_renewed_node_serves_nothing_before_it_knows_the_moves() -> None:
    """A node renews its ended lease, but its polls of the store still fail. It serves no requests yet.

    Meanwhile the controller has moved the node's partitions to other nodes.
    """
    world = ClusterWorld()
    world.start()
    client = Client(world)
    client.create("t", 6)
    victim = next(node for node in world.up if node is not world.controller)
    engine = victim.engine
    assert engine is not None
    led = next(key.partition for key, (topic, _) in engine.leadership.led.items() if topic == "t")
    client.produce("t", led, b"before")
    cut = {"renew", "controller", "nodes", "look_up"}

    def intercept(operation: str, node_id: int, stored: bool) -> None:
        if node_id == victim.node_id and operation in cut:
            raise StoreUnavailableError("the test cuts the node off")

    world.store.intercept = intercept
    world.advance(STEP_MS)
    # The node's lease ends, and the controller does not fence the node, as after an outage of the store.
    world.store.nodes[victim.node_id].lease.expires_ms = world.clock.monotonic_ms() + STEP_MS
    engine.membership.local.deadline_ms = world.clock.monotonic_ms()
    controller = world.controller.engine
    assert controller is not None
    controller.membership._steady_from_ms = world.clock.monotonic_ms() + TIMING.ttl_ms
    machine, heir = controller.control.shard.machine, world.controller.node_id
    topic = controller.topics.by_name("t")
    assert topic is not None
    records = [leader_record(topic.topic_id, led, heir, None)]
    assert controller.control.shard.perform(lambda: machine.outcome(records)) is None
    world.advance(10 * STEP_MS)
    assert fetched(world, heir, led) == (ErrorCode.NONE, 1)
    cut.discard("renew")
    engine.membership._renew()
    world.advance(STEP_MS)
    assert not engine.membership.fenced
    assert not engine.membership.is_serving(), "the node has not polled the cluster since the renewal of its lease"
    code, _ = fetched(world, victim.node_id, led)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    cut.clear()
    world.advance(TIMING.poll_ms + 2 * STEP_MS)
    assert engine.membership.is_serving()
    code, _ = fetched(world, victim.node_id, led)
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.close()
