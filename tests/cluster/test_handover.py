"""Planned moves: two nodes never serve a partition at the same time, and a plan survives the failure of any node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kcore.runtime import Pending
from tests.cluster.world import STEP_MS, TIMING, Call, Client, ClusterWorld, Node, check, leaders_of
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, fetch, produce

FAILOVER_MS = TIMING.ttl_ms + 1_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(settings={"auto.leader.rebalance.enable": "false"})
    world.start()
    world.up[0].send(ElectLeadersRequest(election_type=0, topic_partitions=None))
    world.advance(2_000)
    yield world
    world.close()


@pytest.fixture
def client(world: ClusterWorld) -> Client:
    client = Client(world)
    client.create("t")
    client.produce("t", 0, b"first")
    client.commit("g", 7)
    check(world)
    return client


def move(
    world: ClusterWorld, client: Client, partition: int, replicas: tuple[int, ...] | None, topic: str = "t"
) -> int:
    """Requests a move at any node; returns the error code."""
    entry = ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[entry])])
    response = client.any_node().send(request)
    assert response.error_code == ErrorCode.NONE
    return int(response.responses[0].partitions[0].error_code)


def others(world: ClusterWorld, node: Node) -> list[Node]:
    return [one for one in world.up if one is not node]


def serving(world: ClusterWorld, partition: int = 0, topic: str = "t") -> list[int]:
    """Returns the nodes that serve reads of a partition."""
    served = []
    for node in world.up:
        assert node.engine is not None
        response = node.engine.submit(node_context(12), fetch(topic, 0, partition))
        if isinstance(response, Pending) or response.responses[0].partitions[0].error_code == ErrorCode.NONE:
            served.append(node.node_id)
    return served


def node_context(version: int) -> Any:
    from kcore.runtime import RequestContext

    return RequestContext(version, "test")


def lost(world: ClusterWorld, *names: str) -> list[str]:
    """Makes the network lose every request of these types. Returns the list to which it adds each lost request."""
    gone: list[str] = []

    def lose(call: Call) -> bool:
        name = type(call.request).__name__
        if name in names and not call.is_response:
            gone.append(name)
            return True
        return False

    world.network.lose = lose
    return gone


def test_a_partition_is_never_served_by_two_nodes(world: ClusterWorld, client: Client) -> None:
    before = world.leader("t", 0)
    target = others(world, before)[-1]
    assert move(world, client, 0, (target.node_id,)) == ErrorCode.NONE
    seen = []
    for _ in range(40):
        served = serving(world)
        assert len(served) <= 1
        seen += served
        world.advance(STEP_MS)
    assert seen[-1] == target.node_id
    assert set(seen) <= {before.node_id, target.node_id}
    check(world)
    assert client.read("t", 0) == [b"first"]
    engine = world.controller.engine
    assert engine is not None
    assert engine.topics.image.successors == {}


@pytest.mark.parametrize("partition", [0, 1], ids=["with records", "empty"])
def test_the_next_leader_stores_no_batch_before_one_that_it_refused(
    world: ClusterWorld, client: Client, partition: int
) -> None:
    """A client sends batches 0 and 1 to the next leader. The node refuses batch 0, because it does not lead the
    partition yet.

    Once the node is the leader, it refuses batch 1 until the client has sent batch 0 again.
    """
    target = others(world, world.leader("t", partition))[-1]

    def send(sequence: int) -> int:
        records = batch([b"%d" % sequence], producer_id=7, epoch=0, sequence=sequence)
        response = target.send(produce("t", records, partition), PRODUCE_VERSION)
        return int(response.responses[0].partition_responses[0].error_code)

    assert send(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert move(world, client, partition, (target.node_id,)) == ErrorCode.NONE
    world.advance(2_000)
    assert world.leader("t", partition) is target
    assert [send(1), send(0), send(1)] == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE, ErrorCode.NONE]
    assert client.read("t", partition)[-2:] == [b"0", b"1"]


def test_a_coordinator_moves_with_its_groups(world: ClusterWorld, client: Client) -> None:
    coordinator = client.coordinator("g")
    assert coordinator.engine is not None
    [shard] = [shard for shard in coordinator.engine.groups if "g" in shard.machine.groups]
    target = others(world, coordinator)[0]
    assert move(world, client, shard.index, (target.node_id,), "__consumer_offsets") == ErrorCode.NONE
    world.advance(1_000)
    check(world)
    assert client.coordinator("g") is target
    assert client.committed("g") == 7


def test_requests_of_the_last_round_get_their_responses_before_the_release(world: ClusterWorld, client: Client) -> None:
    names = (f"group-{number}" for number in range(99))
    group = next(name for name in names if client.coordinator(name) is not world.controller)
    coordinator = client.coordinator(group)
    client.commit(group, 7)
    assert coordinator.engine is not None
    [shard] = [shard for shard in coordinator.engine.groups if group in shard.machine.groups]
    target = others(world, coordinator)[0]
    move(world, client, shard.index, (target.node_id,), "__consumer_offsets")
    decided = coordinator.engine.submit(node_context(COMMIT_VERSION), commit(group, {("t", 0): 8}))
    assert isinstance(decided, Pending), "the response waits for the commit of the round"
    world.advance(1_000)
    assert decided.response.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert client.coordinator(group) is target
    assert client.committed(group) == 8


def test_moves_under_way_are_listed(world: ClusterWorld, client: Client) -> None:
    lost(world, "AlterPartitionRequest")
    before = world.leader("t", 0)
    target = others(world, before)[0]
    move(world, client, 0, (target.node_id,))
    world.advance(500)
    assert serving(world) == [], "the leader has released the partition"
    listed = world.up[0].send(ListPartitionReassignmentsRequest(topics=None))
    moving = OngoingPartitionReassignment(
        partition_index=0, replicas=(target.node_id,), adding_replicas=(target.node_id,), removing_replicas=()
    )
    assert listed == ListPartitionReassignmentsResponse(
        error_message=None, topics=[OngoingTopicReassignment(name="t", partitions=[moving])]
    )
    world.network.lose = lambda call: False
    world.advance(1_000)
    assert serving(world) == [target.node_id]
    assert world.up[0].send(ListPartitionReassignmentsRequest(topics=None)).topics == []


def test_a_move_that_is_ended_leaves_the_leader(world: ClusterWorld, client: Client) -> None:
    lost(world, "AlterPartitionRequest")
    before = world.leader("t", 0)
    target = others(world, before)[0]
    move(world, client, 0, (target.node_id,))
    world.advance(500)
    assert move(world, client, 0, None) == ErrorCode.NONE
    assert move(world, client, 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    world.advance(500)
    world.network.lose = lambda call: False
    world.advance(1_000)
    check(world)
    assert serving(world) == [before.node_id]
    assert client.read("t", 0) == [b"first"]


@pytest.mark.parametrize(
    ("replicas", "code"),
    [((9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT), ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT)],
)
def test_unusable_targets_are_refused(
    world: ClusterWorld, client: Client, replicas: tuple[int, ...], code: ErrorCode
) -> None:
    assert move(world, client, 0, replicas) == code
    assert move(world, client, 99, (1,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.up[0].send(ListPartitionReassignmentsRequest(topics=None)).topics == []


@pytest.mark.parametrize("victim", ["leader", "target", "controller", "all"])
@pytest.mark.parametrize("reported", [False, True], ids=["before-the-report", "after-the-report"])
def test_a_plan_survives_the_death_of_a_node(world: ClusterWorld, client: Client, victim: str, reported: bool) -> None:
    controller = world.controller
    partition = next(index for index in range(6) if world.leader("t", index) is not controller)
    leader = world.leader("t", partition)
    [target] = [node for node in world.up if node not in (leader, controller)]
    client.produce("t", partition, b"x")
    held = client.read("t", partition)
    lost(world, "AlterPartitionRequest")
    move(world, client, partition, (target.node_id,))
    world.advance(300)
    assert serving(world, partition) == []
    if reported:
        world.network.lose = lambda call: call.is_response and type(call.request).__name__ == "AlterPartitionRequest"
        world.advance(2 * STEP_MS)
    named = {"leader": [leader], "target": [target], "controller": [controller], "all": world.up}
    for node in named[victim]:
        node.kill()
    world.network.lose = lambda call: False
    if victim == "all":
        world.advance(FAILOVER_MS)
        for node in world.nodes.values():
            node.start()
    world.advance(2 * FAILOVER_MS)
    check(world)
    assert len(serving(world, partition)) == 1
    assert client.read("t", partition) == held
    engine = world.controller.engine
    assert engine is not None
    assert engine.topics.image.successors == {}


def test_a_plan_survives_the_compaction_of_the_metadata_log(world: ClusterWorld, client: Client) -> None:
    lost(world, "AlterPartitionRequest")
    target = others(world, world.leader("t", 0))[0]
    move(world, client, 0, (target.node_id,))
    world.advance(500)
    controller = world.controller.engine
    assert controller is not None
    machine = controller.control.shard.machine
    planned = {topic_id: dict(rows) for topic_id, rows in machine.image.successors.items()}
    assert planned
    machine._records = 10**6
    machine._consider_compaction()
    world.advance(500)
    controller.control.shard.restart("test")
    world.advance(500)
    assert controller.control.shard.machine is not machine
    assert controller.control.shard.machine.image.successors == planned
    world.network.lose = lambda call: False
    world.advance(1_000)
    assert serving(world) == [target.node_id]


@pytest.mark.parametrize("stored", [False, True], ids=["request-lost", "response-lost"])
def test_a_plan_whose_commit_failed_leaves_the_leader(world: ClusterWorld, client: Client, stored: bool) -> None:
    """The controller leads a partition and plans to move it, but the commit of the plan has an unknown outcome.

    If the store has the plan, the partition moves. Otherwise the controller still leads the partition.
    """
    controller = world.controller
    partition = next(index for index in range(6) if world.leader("t", index) is controller)
    [target, _] = others(world, controller)
    broken = []

    def fail(operation: str, node_id: int, after: bool) -> None:
        if node_id == controller.node_id and (broken or (operation == "write" and after is stored)):
            broken.append(operation)
            if operation == "write":
                raise UnknownOutcomeError("the connection was lost")
            raise StoreUnavailableError("the store cannot be reached")

    world.store.intercept = fail
    entry = ReassignablePartition(partition_index=partition, replicas=(target.node_id,))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[entry])])
    assert controller.send(request).error_code == ErrorCode.NOT_CONTROLLER
    world.advance(2_000)
    world.store.intercept = None
    world.advance(4_000)
    check(world)
    assert serving(world, partition) == [target.node_id if stored else controller.node_id]
    client.produce("t", partition, b"later")


@pytest.mark.parametrize("node_id", [1, 2], ids=["controller", "other"])
def test_a_node_hands_all_partitions_over_before_it_stops(world: ClusterWorld, client: Client, node_id: int) -> None:
    ended = []
    node = world.nodes[node_id]
    assert node.engine is not None
    led = len(node.engine.leadership.led)
    assert led
    node.engine.hand_over(lambda: ended.append(True))
    while not ended:
        for partition in range(6):
            assert len(serving(world, partition)) <= 1
        assert world.clock.monotonic_ms() < 60_000
        world.advance(STEP_MS)
    assert not node.engine.leadership.led
    assert client.committed("g") == 7
    node.stop()
    world.advance(3 * TIMING.poll_ms)
    check(world)
    assert client.committed("g") == 7
    assert [index for index in range(6) if len(serving(world, index)) == 1] == list(range(6))
    node.start()
    world.advance(2_000)
    assert node.engine is not None
    assert not node.engine.leadership.led, (
        "without the balancing of leaders, a started node leads nothing until a rebalance is requested"
    )
    response = client.any_node().send(ElectLeadersRequest(election_type=0, topic_partitions=None))
    assert response.error_code == ErrorCode.NONE
    world.advance(5_000)
    check(world)
    leaders = [leader.node_id for leader in leaders_of(node.engine, "t") if leader is not None]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_the_last_node_stops_at_once(world: ClusterWorld, client: Client) -> None:
    for node_id in (2, 3):
        world.nodes[node_id].stop()
    world.advance(1_000)
    ended = []
    engine = world.nodes[1].engine
    assert engine is not None
    engine.hand_over(lambda: ended.append(True))
    world.advance(10 * STEP_MS)
    assert ended == [True]


def test_a_node_without_a_lease_does_not_wait(world: ClusterWorld, client: Client) -> None:
    node = world.nodes[2]
    node.paused = True
    world.advance(FAILOVER_MS)
    node.paused = False
    ended = []
    assert node.engine is not None
    node.engine.hand_over(lambda: ended.append(True))
    assert ended == [True]


def test_a_partition_that_is_named_twice_gets_one_plan(world: ClusterWorld, client: Client) -> None:
    leader = world.leader("t", 0)
    one, two = others(world, leader)
    entries = [ReassignablePartition(partition_index=0, replicas=(node.node_id,)) for node in (one, two)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=entries)])
    response = world.controller.send(request)
    codes = [entry.error_code for entry in response.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    world.advance(1_000)
    check(world)
    assert serving(world) == [one.node_id]


def test_a_plan_ends_once_if_both_its_nodes_die(world: ClusterWorld, client: Client) -> None:
    controller = world.controller
    partition = next(index for index in range(6) if world.leader("t", index) is not controller)
    leader = world.leader("t", partition)
    [target] = [node for node in world.up if node not in (leader, controller)]
    lost(world, "AlterPartitionRequest")
    move(world, client, partition, (target.node_id,))
    world.advance(300)
    leader.kill()
    target.kill()
    world.advance(2 * FAILOVER_MS)
    assert serving(world, partition) == [controller.node_id]
    client.produce("t", partition, b"x")


def test_reports_are_checked(world: ClusterWorld, client: Client) -> None:
    controller = world.controller
    assert controller.engine is not None
    info = controller.engine.topics.by_name("t")
    assert info is not None
    leader = controller.engine.cluster.leader("t", 0)
    assert leader is not None
    epoch = controller.engine.topics.image.brokers[leader.node_id].epoch
    [target, _] = others(world, world.nodes[leader.node_id])

    def report(
        broker: int, broker_epoch: int, leader_epoch: int, successor: int, partition: int = 0
    ) -> tuple[int, int]:
        part = PartitionData(
            partition_index=partition,
            leader_epoch=leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=successor)],
        )
        request = AlterPartitionRequest(
            broker_id=broker, broker_epoch=broker_epoch, topics=[TopicData(topic_id=info.topic_id, partitions=[part])]
        )
        response = controller.send(request, 3)
        return response.error_code, response.topics[0].partitions[0].error_code if response.topics else 0

    one, two = leader.node_id, target.node_id
    assert report(99, 1, leader.epoch, two) == (ErrorCode.BROKER_ID_NOT_REGISTERED, 0)
    assert report(one, epoch - 1, leader.epoch, two) == (ErrorCode.STALE_BROKER_EPOCH, 0)
    assert report(one, epoch, leader.epoch, two) == (0, ErrorCode.INVALID_REQUEST), "no move is planned"
    assert report(one, epoch, leader.epoch - 1, two) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    assert report(one, epoch, leader.epoch, two, 77) == (0, ErrorCode.UNKNOWN_TOPIC_ID)
    other = controller.engine.topics.image.brokers[two].epoch
    assert report(two, other, leader.epoch, one) == (0, ErrorCode.FENCED_LEADER_EPOCH), (
        "another node leads the partition"
    )
    check(world)
    assert serving(world) == [one]


def test_heartbeats_are_for_registered_nodes_and_the_controller(world: ClusterWorld, client: Client) -> None:
    controller = world.controller
    stranger = BrokerHeartbeatRequest(broker_id=99, broker_epoch=1, want_shut_down=True)
    assert controller.send(stranger, 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    [node, _] = others(world, controller)
    assert node.engine is not None
    epoch = node.engine.membership.lease.epoch
    running = BrokerHeartbeatRequest(broker_id=node.node_id, broker_epoch=epoch)
    response = controller.send(running, 0)
    assert (response.error_code, response.should_shut_down) == (ErrorCode.NONE, False)
    assert node.send(running, 0).error_code == ErrorCode.NOT_CONTROLLER
    world.advance(1_000)
    assert node.engine.leadership.led


def test_a_parked_read_of_a_zombie_gets_an_error(world: ClusterWorld, client: Client) -> None:
    leader = world.leader("t", 0)
    assert leader.engine is not None
    request = fetch("t", 1, 0)
    request.max_wait_ms = TIMING.ttl_ms + 3_000
    parked = leader.engine.submit(node_context(12), request)
    assert isinstance(parked, Pending)
    assert not parked.done
    leader.paused = True
    world.advance(FAILOVER_MS)
    client.retried(
        lambda: client.leader("t", 0).send(produce("t", batch([b"second"])), 9),
        lambda response: response.responses[0].partition_responses[0].error_code,
    )
    leader.paused = False
    world.advance(5_000)
    assert parked.done
    assert parked.response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
