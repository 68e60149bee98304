"""Groups and partitions of a cluster while nodes join, die, pause and drain, in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kcore.broker.cluster.leadership import ADOPTED_AT_ONCE, LeadershipKeeper
from kcore.broker.metadata.image import MetadataImage
from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.protocol.error_codes import ErrorCode
from tests.cluster.world import TIMING, Client, ClusterWorld, check, leaders_of
from tests.kit import COMMIT_VERSION, PRODUCE_VERSION, batch, commit, fetch, produce

GROUPS = [f"group-{number}" for number in range(12)]
FAILOVER_MS = TIMING.ttl_ms + 1_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld()
    world.start()
    yield world
    world.close()


@pytest.fixture
def client(world: ClusterWorld) -> Client:
    client = Client(world)
    client.create("t")
    for number, group in enumerate(GROUPS):
        client.commit(group, number)
    for partition in range(6):
        client.produce("t", partition, b"first %d" % partition)
    check(world)
    return client


def test_the_controller_spreads_the_leaders(world: ClusterWorld) -> None:
    check(world)
    engine = world.controller.engine
    assert engine is not None
    leaders = [leader.node_id for leader in leaders_of(engine, "__consumer_offsets") if leader is not None]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_a_poll_without_changes_visits_no_partition(
    world: ClusterWorld, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll of the controller reads no leader of a partition if no node has changed.

    The controller polls five times a second, and a cluster may have 100,000 partitions.
    """
    engine = world.controller.engine
    assert engine is not None
    image = engine.topics.image
    for topic in image.all():
        leaders = [leader.node_id for leader in leaders_of(engine, topic.name) if leader is not None]
        assert image.leading_nodes(topic.topic_id) == leaders
    visited = []
    leader = MetadataImage.leader
    monkeypatch.setattr(MetadataImage, "leader", lambda image, *key: (visited.append(key), leader(image, *key))[1])
    assert engine.controller._decide(world.open_store().nodes()) is None
    assert not engine.controller.stop(1, engine.topics.image.brokers[1].epoch)
    assert visited == []


def test_a_node_takes_many_partitions_in_steps(
    world: ClusterWorld, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node adopts at most `ADOPTED_AT_ONCE` partitions in one step. Between two steps, it can serve requests."""
    steps = []
    apply = LeadershipKeeper.apply

    def counted(keeper: LeadershipKeeper) -> None:
        before = keeper.moves
        apply(keeper)
        steps.append(keeper.moves - before)

    monkeypatch.setattr(LeadershipKeeper, "apply", counted)
    client.create("wide", len(world.nodes) * 3 * ADOPTED_AT_ONCE)
    assert max(steps) == ADOPTED_AT_ONCE
    for node in world.up:
        assert node.engine is not None
        assert sum(topic == "wide" for topic, _ in node.engine.leadership.led.values()) == 3 * ADOPTED_AT_ONCE
    check(world)


def test_metadata_names_all_nodes_and_leaders(world: ClusterWorld, client: Client) -> None:
    for node in world.up:
        assert node.engine is not None
        assert [tuple(broker) for broker in node.engine.cluster.brokers("PLAINTEXT")] == [
            (number, f"node{number}.test", 9092, None) for number in (1, 2, 3)
        ]
        assert {leader.node_id for leader in leaders_of(node.engine, "t") if leader is not None} == {1, 2, 3}
        assert node.engine.cluster.controller_id == 1


def test_other_nodes_refuse_a_partition(world: ClusterWorld, client: Client) -> None:
    leader = world.leader("t", 0)
    for node in world.up:
        produced = node.send(produce("t", batch([b"x"])), PRODUCE_VERSION).responses[0].partition_responses[0]
        fetched = node.send(fetch("t"), 12).responses[0].partitions[0]
        expected = ErrorCode.NONE if node is leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (produced.error_code, fetched.error_code) == (expected, expected)
    assert client.read("t", 0) == [b"first 0", b"x"]


def test_other_nodes_refuse_a_group(world: ClusterWorld, client: Client) -> None:
    coordinator = client.coordinator("group-0")
    for node in world.up:
        response = node.send(commit("group-0", {("t", 0): 5}), COMMIT_VERSION)
        expected = ErrorCode.NONE if node is coordinator else ErrorCode.NOT_COORDINATOR
        assert response.topics[0].partitions[0].error_code == expected
    assert client.committed("group-0") == 5


@pytest.mark.parametrize("node_id", [1, 2, 3], ids=["controller", "second", "third"])
def test_a_killed_node_loses_no_acknowledged_write(world: ClusterWorld, client: Client, node_id: int) -> None:
    world.nodes[node_id].kill()
    world.advance(FAILOVER_MS)
    check(world)
    assert [client.committed(group) for group in GROUPS] == list(range(12))
    for partition in range(6):
        assert client.read("t", partition) == [b"first %d" % partition]
        client.produce("t", partition, b"second")
        assert client.read("t", partition) == [b"first %d" % partition, b"second"]
    for number, group in enumerate(GROUPS):
        client.commit(group, number + 100)
    world.nodes[node_id].start()
    world.advance(FAILOVER_MS)
    check(world)
    assert [client.committed(group) for group in GROUPS] == list(range(100, 112))
    engine = world.controller.engine
    assert engine is not None
    assert {leader.node_id for leader in leaders_of(engine, "t") if leader is not None} == {1, 2, 3}


def test_leader_epochs_grow_with_each_move(world: ClusterWorld, client: Client) -> None:
    engine = world.controller.engine
    assert engine is not None
    before = leaders_of(engine, "t")
    world.nodes[3].kill()
    world.advance(FAILOVER_MS)
    for old, new in zip(before, leaders_of(engine, "t"), strict=True):
        assert old is not None
        assert new is not None
        assert new.node_id != 3
        assert new.epoch > old.epoch if new.node_id != old.node_id else new == old


def test_a_node_that_restarts_at_once_leads_in_a_new_epoch(world: ClusterWorld, client: Client) -> None:
    world.nodes[2].stop()
    world.nodes[2].start()
    world.advance(FAILOVER_MS)
    check(world)
    assert [client.committed(group) for group in GROUPS] == list(range(12))
    assert world.nodes[2].engine is not None
    assert world.nodes[2].engine.leadership.led


@pytest.mark.parametrize("restarts", [True, False])
def test_the_log_distinguishes_a_restarted_node_from_a_dead_one(
    world: ClusterWorld, client: Client, restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kcore.broker.cluster.controller")
    node = next(each for each in world.up if each is not world.controller)
    if restarts:
        node.stop()
        node.start()
    else:
        node.kill()
    world.advance(FAILOVER_MS)
    name = f"node {node.node_id}"
    starts = (f"controller: {name} ", f"controller: fenced {name}")
    lines = [(line.levelname, line.getMessage()) for line in caplog.records if line.getMessage().startswith(starts)]
    if restarts:
        assert lines == [("INFO", f"controller: {name} has started again; its broker epoch is now 2, and was 1")]
    else:
        assert lines == [
            (
                "WARNING",
                f"controller: fenced {name}, because its lease has expired; other nodes take over its partitions; "
                "unless the node was stopped on purpose, check or restart it; a node that still runs registers again "
                "when it reaches the cluster's store",
            ),
            ("INFO", f"controller: {name} (broker epoch 1) has ended; other nodes take over its partitions"),
        ]


def test_a_stopped_node_hands_over_without_waiting_for_its_lease(world: ClusterWorld, client: Client) -> None:
    world.nodes[2].stop()
    world.advance(3 * TIMING.poll_ms)
    check(world)
    assert all(world.leader("t", partition).node_id != 2 for partition in range(6))
    assert [client.committed(group) for group in GROUPS] == list(range(12))


def test_a_stopped_controller_is_succeeded_at_once(world: ClusterWorld, client: Client) -> None:
    world.nodes[1].stop()
    world.advance(3 * TIMING.poll_ms)
    check(world)
    assert world.controller.node_id != 1
    client.create("later")
    assert client.produce("later", 5, b"x") == 0


def test_a_zombie_writes_nothing_and_serves_nothing(world: ClusterWorld, client: Client) -> None:
    zombie = client.coordinator("group-3")
    partition = next(index for index in range(6) if world.leader("t", index) is zombie)
    zombie.paused = True
    decided = zombie.send(commit("group-3", {("t", 0): 77}), COMMIT_VERSION)  # not written before the pause
    world.advance(FAILOVER_MS)
    client.commit("group-3", 88)
    zombie.paused = False
    refused = zombie.send(produce("t", batch([b"late"]), partition), PRODUCE_VERSION)
    read = zombie.send(fetch("t", 0, partition), 12)
    assert refused.responses[0].partition_responses[0].error_code in (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert decided.done
    assert decided.response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert client.committed("group-3") == 88
    assert client.read("t", partition) == [b"first %d" % partition]
    world.advance(1_000)
    assert zombie.engine is not None
    assert zombie.engine.membership.fenced
    assert not zombie.engine.leadership.led
    zombie.kill()
    zombie.start()
    world.advance(FAILOVER_MS)
    check(world)


def test_a_draining_node_leads_nothing(world: ClusterWorld, client: Client) -> None:
    store = world.open_store()
    assert store.set_draining(2, True)
    world.advance(3_000)
    check(world)
    assert world.nodes[2].engine is not None
    assert not world.nodes[2].engine.leadership.led
    assert [client.committed(group) for group in GROUPS] == list(range(12))
    store.set_draining(2, False)
    world.advance(3_000)
    check(world)
    assert world.nodes[2].engine.leadership.led


def test_a_minute_without_the_store_costs_only_retriable_errors(world: ClusterWorld, client: Client) -> None:
    def down(operation: str, node_id: int, stored: bool) -> None:
        raise StoreUnavailableError("the store cannot be reached")

    coordinator = client.coordinator("group-1")
    world.store.intercept = down
    response = coordinator.send(commit("group-1", {("t", 0): 50}), COMMIT_VERSION)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    world.advance(60_000)
    for node in world.up:
        response = node.send(commit("group-1", {("t", 0): 50}), COMMIT_VERSION)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    world.store.intercept = None
    world.advance(FAILOVER_MS)
    check(world)
    assert [client.committed(group) for group in GROUPS] == list(range(12))
    client.commit("group-1", 51)
    assert client.committed("group-1") == 51


def test_a_partition_is_served_after_an_outage_during_its_recovery(world: ClusterWorld, client: Client) -> None:
    leader = next(node for node in world.up[1:] if world.leader("t", 1) is node or world.leader("t", 2) is node)
    partition = next(index for index in (1, 2) if world.leader("t", index) is leader)
    failed = []

    def unreadable(operation: str, node_id: int, stored: bool) -> None:
        if operation == "slice":
            failed.append(node_id)
            raise StoreUnavailableError("the store cannot be reached")

    leader.kill()
    world.store.intercept = unreadable
    world.advance(FAILOVER_MS)
    assert failed
    world.store.intercept = None
    world.advance(4_000)
    check(world)
    assert client.read("t", partition) == [b"first %d" % partition]
    client.produce("t", partition, b"second")
    assert [client.committed(group) for group in GROUPS] == list(range(12))


@pytest.mark.parametrize("stored", [False, True], ids=["request-lost", "response-lost"])
def test_an_unknown_outcome_is_neither_lost_nor_repeated(world: ClusterWorld, client: Client, stored: bool) -> None:
    coordinator = client.coordinator("group-2")
    lost = []

    def cut(operation: str, node_id: int, after: bool) -> None:
        if node_id == coordinator.node_id and len(lost) < 20:
            if operation == "write" and after is stored and not lost:
                lost.append(operation)
                raise UnknownOutcomeError("the connection was lost")
            if operation == "resolve_write":
                lost.append(operation)
                raise StoreUnavailableError("the store cannot be reached")

    world.store.intercept = cut
    response = coordinator.send(commit("group-2", {("t", 0): 60}), COMMIT_VERSION)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    world.advance(2_000)
    check(world)
    assert client.committed("group-2") == (60 if stored else 2)
    client.commit("group-2", 61)
    assert client.committed("group-2") == 61


def test_an_idle_node_resolves_an_uncertain_write_before_it_releases_partitions(
    world: ClusterWorld, client: Client
) -> None:
    coordinator = client.coordinator("group-2")
    lost = []

    def cut(operation: str, node_id: int, after: bool) -> None:
        if node_id != coordinator.node_id:
            return
        if operation == "write" and not lost:
            lost.append(operation)
            raise UnknownOutcomeError("the connection was lost")
        if operation == "resolve_write":
            raise StoreUnavailableError("the store cannot be reached")

    world.store.intercept = cut
    coordinator.send(commit("group-2", {("t", 0): 60}), COMMIT_VERSION)
    world.store.intercept = None
    assert world.open_store().set_draining(coordinator.node_id, True)
    world.store.intercept = cut
    world.advance(1_000)
    world.store.intercept = None  # no further request causes a commit
    world.advance(3_000)
    check(world)
    assert coordinator.engine is not None
    assert not coordinator.engine.leadership.led
    assert client.committed("group-2") == 2


def test_a_former_controller_follows_the_metadata_although_a_commit_of_it_was_unknown(
    world: ClusterWorld, client: Client
) -> None:
    former = world.controller
    group = next(group for group in GROUPS if client.coordinator(group) is former)
    lost = []

    def cut(operation: str, node_id: int, after: bool) -> None:
        if node_id != former.node_id:
            return
        if operation == "write" and not lost:
            lost.append(operation)
            raise UnknownOutcomeError("the connection was lost")
        if operation in ("resolve_write", "take_controller"):
            raise StoreUnavailableError("the store cannot be reached")

    world.store.intercept = cut
    former.send(commit(group, {("t", 0): 60}), COMMIT_VERSION)
    assert former.engine is not None
    assert former.engine.log.uncertain
    former.engine.membership.resign_controller()
    world.advance(FAILOVER_MS)
    world.store.intercept = None
    world.advance(FAILOVER_MS)
    assert world.controller is not former
    client.create("later")
    world.advance(500)
    check(world)
    assert former.engine.topics.by_name("later") is not None


def test_a_deleted_topic_is_gone_everywhere(world: ClusterWorld, client: Client) -> None:
    from kcore.protocol.messages.delete_topics import DeleteTopicsRequest

    world.controller.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    world.advance(500)
    check(world)
    for node in world.up:
        fetched = node.send(fetch("t"), 12).responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.engine is not None
        assert {topic for topic, _ in node.engine.leadership.led.values()} == {"__consumer_offsets"}
    client.create("t", 2)
    assert client.produce("t", 1, b"new") == 0


def test_committed_offsets_survive_a_restart_of_every_node(world: ClusterWorld, client: Client) -> None:
    for node in world.up:
        node.kill()
    world.advance(FAILOVER_MS)
    for node in world.nodes.values():
        node.start()
    world.advance(2 * FAILOVER_MS)
    check(world)
    assert [client.committed(group) for group in GROUPS] == list(range(12))
    for partition in range(6):
        assert client.read("t", partition) == [b"first %d" % partition]


@pytest.mark.parametrize("error", [UnknownOutcomeError, StoreUnavailableError])
def test_a_start_whose_first_commit_fails_can_be_repeated(error: type[Exception]) -> None:
    def fail(operation: str, node_id: int, stored: bool) -> None:
        if operation in ("write", "resolve_write"):
            raise (error if operation == "write" else StoreUnavailableError)("the store cannot be reached")

    world = ClusterWorld(1)
    world.store.intercept = fail
    with pytest.raises(StoreUnavailableError, match="first commit"):
        world.nodes[1].start()
    world.nodes[1].engine = None
    world.store.intercept = None
    world.advance(FAILOVER_MS)
    world.start()
    check(world)
    world.close()
