"""Share groups in a cluster: the group, its partitions and its delivery state are on different nodes, and move between
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kcore.protocol.error_codes import RETRIABLE, ErrorCode
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kcore.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.runtime import Pending
from tests.cluster.world import TIMING, Call, Client, ClusterWorld, Node, NoNodeError, check

GROUP = "workers"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
PARTITIONS = 6
ACCEPT = 1
FAILOVER_MS = TIMING.ttl_ms + 1_000


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    world = ClusterWorld(settings={"group.share.heartbeat.interval.ms": "5000"})
    world.start()
    yield world
    world.close()


class Worker:
    """A share consumer that acknowledges every record that it receives."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.client = Client(world)
        self.epoch = 0
        self.beats_ms = 0
        self.assigned: list[int] = []
        self.accepted: dict[tuple[int, int], int] = {}
        self.deliveries: list[tuple[int, int, int]] = []

    def beat(self) -> None:
        """Joins the group, or sends a heartbeat when it is due."""
        now_ms = self.world.clock.monotonic_ms()
        if self.assigned and now_ms < self.beats_ms:
            return
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=MEMBER, member_epoch=self.epoch, subscribed_topic_names=["t"]
        )
        try:
            response = self.client.coordinator(GROUP).send(request)
        except NoNodeError:
            return
        if response.error_code in RETRIABLE:
            return
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        self.beats_ms = now_ms + 3_000
        if response.assignment is not None:
            self.assigned = [index for topic in response.assignment.topic_partitions for index in topic.partitions]
            self.beats_ms = now_ms

    def work(self, partition: int) -> None:
        """Fetches from one partition and acknowledges the records as accepted."""
        try:
            leader = self.client.leader("t", partition)
        except NoNodeError:
            return
        response = self._fetch(leader, partition)
        if isinstance(response, Pending) or response.error_code:
            return
        for topic in response.responses:
            for entry in topic.partitions:
                assert entry.error_code == 0 or entry.error_code in RETRIABLE, entry
                for batch in entry.acquired_records:
                    self._accept(leader, partition, batch.first_offset, batch.last_offset, batch.delivery_count)

    def _fetch(self, leader: Node, partition: int) -> object:
        topic = FetchTopic(topic_id=self._topic_id(leader), partitions=[FetchPartition(partition_index=partition)])
        return leader.send(
            ShareFetchRequest(
                group_id=GROUP,
                member_id=MEMBER,
                share_session_epoch=0,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=100,
                batch_size=100,
                topics=[topic],
            )
        )

    def _accept(self, leader: Node, partition: int, first: int, last: int, count: int) -> None:
        acks = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        entry = AcknowledgePartition(partition_index=partition, acknowledgement_batches=[acks])
        topic = AcknowledgeTopic(topic_id=self._topic_id(leader), partitions=[entry])
        self.deliveries += [(partition, offset, count) for offset in range(first, last + 1)]
        response = leader.send(
            ShareAcknowledgeRequest(group_id=GROUP, member_id=MEMBER, share_session_epoch=1, topics=[topic])
        )
        if isinstance(response, Pending) or response.error_code:
            return
        code = response.responses[0].partitions[0].error_code
        assert code == 0 or code in RETRIABLE, response
        if code == 0:
            for offset in range(first, last + 1):
                self.accepted[partition, offset] = self.accepted.get((partition, offset), 0) + 1

    def _topic_id(self, node: Node) -> bytes:
        assert node.engine is not None
        info = node.engine.topics.by_name("t")
        assert info is not None
        return info.topic_id

    def until(self, count: int) -> None:
        """Works until the consumer has accepted `count` records."""
        until_ms = self.world.clock.monotonic_ms() + 120_000
        while len(self.accepted) < count:
            assert self.world.clock.monotonic_ms() < until_ms, f"{len(self.accepted)} of {count}"
            self.beat()
            for partition in self.assigned:
                self.work(partition)
            self.world.advance(100)


@pytest.fixture
def worker(world: ClusterWorld) -> Worker:
    worker = Worker(world)
    client = worker.client
    client.create("t", PARTITIONS)
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[config])
    client.retried(
        lambda: client.any_node().send(IncrementalAlterConfigsRequest(resources=[resource])),
        lambda response: response.responses[0].error_code,
    )
    produce(client, 0)
    worker.until(12)
    return worker


def produce(client: Client, first: int) -> None:
    """Writes two records to each partition."""
    for number in range(2 * PARTITIONS):
        client.produce("t", number % PARTITIONS, b"%d" % (first + number))


def test_every_record_is_delivered_once(world: ClusterWorld, worker: Worker) -> None:
    assert worker.accepted == {(partition, offset): 1 for partition in range(PARTITIONS) for offset in range(2)}
    assert all(count == 1 for _, _, count in worker.deliveries)
    carried = set(world.network.carried)
    assert {"InitializeShareGroupStateRequest", "ReadShareGroupStateRequest", "WriteShareGroupStateRequest"} <= carried
    topics = {topic for node in world.up if node.engine for topic, _ in node.engine.leadership.led.values()}
    assert "__share_group_state" in topics


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_accepted_records_stay_accepted_after_a_failover(world: ClusterWorld, worker: Worker, node_id: int) -> None:
    world.nodes[node_id].kill()
    world.advance(FAILOVER_MS)
    produce(worker.client, 100)
    worker.until(24)
    assert set(worker.accepted.values()) == {1}
    world.nodes[node_id].start()
    world.advance(FAILOVER_MS)
    produce(worker.client, 200)
    worker.until(36)
    assert set(worker.accepted.values()) == {1}
    check(world)


def test_share_partitions_move_with_their_partitions(world: ClusterWorld, worker: Worker) -> None:
    store = world.open_store()
    for node_id in (1, 2, 3):
        assert store.set_draining(node_id, True)
        world.advance(3_000)
        engine = world.nodes[node_id].engine
        assert engine is not None
        assert len(engine.share_partitions) == 0, "the former leader has given up its share partitions"
        produce(worker.client, 100 * node_id)
        worker.until(12 * (node_id + 1))
        assert store.set_draining(node_id, False)
        world.advance(3_000)
    assert set(worker.accepted.values()) == {1}
    check(world)


def test_the_state_of_many_partitions_is_read_from_all_nodes(world: ClusterWorld, worker: Worker) -> None:
    engine = world.nodes[1].engine
    assert engine is not None
    info = engine.topics.by_name("t")
    assert info is not None
    parts = [PartitionData(partition=index, leader_epoch=-1) for index in range(PARTITIONS)]
    request = ReadShareGroupStateSummaryRequest(
        group_id=GROUP, topics=[ReadStateSummaryData(topic_id=info.topic_id, partitions=parts)]
    )
    pending = engine.share_persister.read_summary(request)
    world.advance(500)
    assert isinstance(pending, Pending)
    [topic] = pending.response.results
    assert [(row.partition, row.error_code, row.leader_epoch >= 0) for row in topic.partitions] == [
        (index, 0, True) for index in range(PARTITIONS)
    ]
    assert "ReadShareGroupStateSummaryRequest" in world.network.carried


def described(world: ClusterWorld) -> dict[int, tuple[int, int]]:
    """Returns the error code and the lag of each partition, as the group's coordinator describes them."""
    request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP)])
    request.groups[0].topics = None
    response = Client(world).coordinator(GROUP).send(request, 1)
    assert not isinstance(response, Pending)
    (group,) = response.groups
    (topic,) = group.topics
    return {entry.partition_index: (entry.error_code, entry.lag) for entry in topic.partitions}


def test_a_coordinator_reports_the_lag_of_partitions_that_other_nodes_lead(world: ClusterWorld, worker: Worker) -> None:
    produce(worker.client, 100)
    assert described(world) == dict.fromkeys(range(PARTITIONS), (0, 2))
    assert "OffsetForLeaderEpochRequest" in world.network.carried
    moved = worker.client.leader("t", 0).node_id
    assert world.open_store().set_draining(moved, True)
    world.advance(3_000)
    produce(worker.client, 200)
    assert described(world) == dict.fromkeys(range(PARTITIONS), (0, 4))


def test_a_partition_whose_leader_does_not_respond_has_no_lag(world: ClusterWorld, worker: Worker) -> None:
    leader = next(node for node in world.up if node is not worker.client.coordinator(GROUP))
    led = {index for index in range(PARTITIONS) if worker.client.leader("t", index) is leader}

    def lose(call: Call) -> bool:
        return isinstance(call.request, OffsetForLeaderEpochRequest) and call.receiver == leader.node_id

    world.network.lose = lose
    unknown = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert described(world) == {index: unknown if index in led else (0, 0) for index in range(PARTITIONS)}


def test_a_lost_request_to_a_coordinator_is_repeated(world: ClusterWorld, worker: Worker) -> None:
    lost = []

    def lose(call: object) -> bool:
        request = type(call.request).__name__  # type: ignore[attr-defined]
        if request == "WriteShareGroupStateRequest" and len(lost) < 5 and not call.is_response:  # type: ignore[attr-defined]
            lost.append(request)
            return True
        return False

    world.network.lose = lose
    produce(worker.client, 100)
    worker.until(24)
    assert lost
    assert set(worker.accepted.values()) == {1}
