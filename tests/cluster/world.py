"""Several nodes in one process with one shared store, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kcore.broker.cluster.membership import Timing
from kcore.clock import ManualClock
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.cluster.store import METADATA, ClusterStore, Endpoint, NodeDescription
from kcore.cluster_engine import ClusterEngine
from kcore.config.node import Config
from kcore.log.interface import PartitionKey
from kcore.protocol.error_codes import RETRIABLE
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.runtime import Pending, RequestContext
from kcore.runtime.cluster import Leader
from tests.kit import (
    COMMIT_VERSION,
    OFFSETS_VERSION,
    PRODUCE_VERSION,
    QUICK,
    batch,
    commit,
    create,
    produce,
    read_all,
)
from tests.seeds import SEED

CLUSTER_ID = "memory-cluster-id-AAAA"
TIMING = Timing()
STEP_MS = 50
SETTINGS = {
    **QUICK,
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}


class NoNodeError(Exception):
    """No running node can serve the request now."""


class Call(NamedTuple):
    """A request between two nodes, or its response."""

    sender: int
    receiver: int
    request: Any
    version: int
    done: Callable[[Any | None], None]
    response: Any = None
    is_response: bool = False


def secret_of(node_id: int) -> str:
    """Returns the secret with which a node registers."""
    return f"secret-{node_id}"


def from_node(node_id: int, version: int = 0) -> RequestContext:
    """Returns the context of a request that a node sends."""
    return RequestContext(
        version, "node", principal="User:node", connection_id=1_000 + node_id, node_secret=secret_of(node_id)
    )


class Network:
    """The requests between nodes. Each step of the world delivers the requests and responses that were sent before.

    Attributes:
        lose: function of a test; if it returns True, the network loses the request or, with `is_response`, the
            response.
        carried: the types of the requests that arrived, for tests.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._calls: list[Call] = []
        self.lose: Callable[[Call], bool] = lambda call: False
        self.carried: list[str] = []

    def send(self, call: Call) -> None:
        self._calls.append(call)

    def carry(self) -> None:
        """Delivers all requests and responses that were sent before."""
        calls, self._calls = self._calls, []
        for call in calls:
            self._carry(call)

    def _carry(self, call: Call) -> None:
        target = self._world.nodes[call.sender if call.is_response else call.receiver]
        if target.paused:
            self._calls.append(call)
        elif target.engine is None or self.lose(call):
            if not call.is_response:
                self._calls.append(call._replace(response=None, is_response=True))
            elif target.engine is not None:
                self._calls.append(call._replace(receiver=-1, response=None))
        elif call.is_response or call.receiver < 0:
            call.done(call.response)
        else:
            self.carried.append(type(call.request).__name__)
            response = target.engine.submit(from_node(call.sender, call.version), call.request)
            if isinstance(response, Pending):
                response.on_complete(lambda value: self._calls.append(call._replace(response=value, is_response=True)))
            else:
                self._calls.append(call._replace(response=response, is_response=True))


class NodePeers:
    """The `Peers` of one incarnation of a node."""

    def __init__(self, network: Network, node_id: int) -> None:
        self._network = network
        self._node_id = node_id
        self.ended = False

    def send(self, node_id: int, request: Any, version: int, done: Callable[[Any | None], None]) -> None:
        self._network.send(Call(self._node_id, node_id, request, version, lambda value: self._done(done, value)))

    def _done(self, done: Callable[[Any | None], None], value: Any) -> None:
        if not self.ended:  # the process that has sent it may be dead
            done(value)


class Node:
    """One node; `engine` is None while it is down."""

    def __init__(self, world: ClusterWorld, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.engine: ClusterEngine | None = None
        self.peers = NodePeers(world.network, node_id)
        self.paused = False

    def start(self) -> ClusterEngine:
        """Registers a new incarnation and opens its engine."""
        store = self.world.open_store()
        self.peers.ended = True
        self.peers = NodePeers(self.world.network, self.node_id)
        register_sent_ms = self.world.clock.monotonic_ms()
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"node{self.node_id}.test", 9092)
        lease = store.register(
            self.node_id, NodeDescription((endpoint,), secret=secret_of(self.node_id)), TIMING.ttl_ms
        )
        config = Config.of({**self.world.settings, "node.id": str(self.node_id)})
        self.engine = ClusterEngine(
            store,
            lease,
            register_sent_ms,
            config,
            self.world.clock,
            self.world.new_uuid,
            timing=TIMING,
            peers=self.peers,
        )
        return self.engine

    def kill(self) -> None:
        """Ends the process without unregistering."""
        assert self.engine is not None
        self.engine.abandon()
        self.peers.ended = True
        self.engine = None

    def stop(self) -> None:
        """Ends the process in an orderly way."""
        assert self.engine is not None
        self.engine.close()
        self.peers.ended = True
        self.engine = None

    def run(self) -> None:
        """Runs due timers and long work, and commits."""
        engine = self.engine
        if engine is None or self.paused:
            return
        engine.turn()
        for _ in range(100):
            if not engine.pipeline.dirty:
                break
            engine.commit()
            engine.slices.finish()

    def send(
        self, request: Any, version: int | None = None, principal: str = "User:ANONYMOUS", wait_ms: int = 20 * STEP_MS
    ) -> Any:
        """Sends a request and advances the time by `wait_ms`. Returns the response, or the `Pending` of a request that
        is still parked.
        """
        assert self.engine is not None
        served = self.engine.newest_version(request) if version is None else version
        context = RequestContext(served, "test", principal=principal, node_secret=secret_of(self.node_id))
        response = self.engine.submit(context, request)
        if not self.paused:
            self.engine.commit()
            self.engine.slices.finish()
            self.engine.commit()
        if isinstance(response, Pending) and not self.paused:
            for _ in range(wait_ms // STEP_MS):
                if response.done:
                    break
                self.world.advance(STEP_MS)
        if isinstance(response, Pending) and response.done:
            return response.response
        return response


class ClusterWorld:
    """A store, a clock and some nodes."""

    def __init__(self, nodes: int = 3, settings: dict[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryCluster(CLUSTER_ID, self.clock.monotonic_ms)
        self.settings = {**SETTINGS, **(settings or {})}
        self.network = Network(self)
        self.new_uuid = partial(random.Random(SEED).randbytes, 16)
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, nodes + 1)}

    def open_store(self) -> ClusterStore:
        """Opens the store for one incarnation of a node, or for a command."""
        return MemoryClusterStore(self.store)

    def start(self) -> None:
        """Starts every node, and lets the controller spread the leaders."""
        for node in self.nodes.values():
            node.start()
            self.advance(STEP_MS)
        self.advance(5_000)

    def advance(self, ms: int) -> None:
        """Lets time pass for all nodes, in steps."""
        for _ in range(ms // STEP_MS):
            self.clock.advance(STEP_MS)
            self.network.carry()
            for node in self.nodes.values():
                node.run()

    @property
    def up(self) -> list[Node]:
        """The running nodes."""
        return [node for node in self.nodes.values() if node.engine is not None]

    @property
    def controller(self) -> Node:
        """The node that is the controller."""
        [node] = [node for node in self.up if node.engine is not None and node.engine.decides()]
        return node

    def leader(self, topic: str, partition: int) -> Node:
        """Returns the node that leads a partition, by the controller's metadata."""
        engine = self.controller.engine
        assert engine is not None
        leader = engine.cluster.leader(topic, partition)
        assert leader is not None, f"{topic}-{partition} has no leader"
        return self.nodes[leader.node_id]

    def close(self) -> None:
        for node in self.up:
            node.kill()


def leaders_of(engine: ClusterEngine, topic: str) -> list[Leader | None]:
    """Returns the leaders of a topic's partitions as a node sees them."""
    info = engine.topics.by_name(topic)
    assert info is not None
    return [engine.cluster.leader(topic, index) for index in range(info.partitions)]


def check(world: ClusterWorld) -> None:
    """Checks the invariants of leadership: one leader per partition and epoch, and the same metadata everywhere."""
    decided = world.controller.engine
    assert decided is not None
    stored = {row.key: (row.leader, row.leader_epoch) for row in world.open_store().leaders()}
    del stored[METADATA]
    image = decided.topics.image
    described = {}
    for topic in image.all():
        for index in range(topic.partitions):
            leader = image.leader(topic.topic_id, index)
            assert leader is not None
            described[PartitionKey(topic.topic_id, index)] = tuple(leader)
    assert stored == described, "the store and the metadata log name the same leaders"
    owners: dict[tuple[PartitionKey, int], int] = {}
    for node in world.up:
        assert node.engine is not None
        if node.engine.membership.fenced or node.paused:
            continue
        assert node.engine.topics.image.ids == image.ids
        assert node.engine.topics.image.leaders == image.leaders
        assert node.engine.topics.image.brokers == image.brokers
        for key, (_, epoch) in node.engine.leadership.led.items():
            assert owners.setdefault((key, epoch), node.node_id) == node.node_id
            assert stored[key] == (node.node_id, epoch)
        coordinators = [shard.index for shard in node.engine.groups]
        info = node.engine.topics.by_name("__consumer_offsets")
        assert info is not None
        led = [key.partition for key in node.engine.leadership.led if key.topic_id == info.topic_id]
        assert sorted(coordinators) == sorted(led)


class Client:
    """A client that sends each request to the right node, and repeats it after a retriable error."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self._calls = 0

    def retried(self, send: Callable[[], Any], code_of: Callable[[Any], int], timeout_ms: int = 30_000) -> Any:
        """Repeats `send` after retriable errors. Returns the first other response."""
        until_ms = self.world.clock.monotonic_ms() + timeout_ms
        while True:
            try:
                response = send()
            except NoNodeError as error:
                response, code = error, 0
            else:
                assert not isinstance(response, Pending), response
                code = code_of(response)
                if code not in RETRIABLE:
                    assert code == 0, response
                    return response
            assert self.world.clock.monotonic_ms() < until_ms, response
            self.world.advance(STEP_MS)

    def any_node(self) -> Node:
        """Returns the running nodes in turn."""
        nodes = [node for node in self.world.up if not node.paused]
        if not nodes:
            raise NoNodeError
        self._calls += 1
        return nodes[self._calls % len(nodes)]

    def leader(self, topic: str, partition: int) -> Node:
        """Requests the leader of a partition from any node."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        described = self.any_node().send(request, 12).topics[0]
        if described.error_code or partition >= len(described.partitions):
            raise NoNodeError
        return self._node(described.partitions[partition].leader_id)

    def coordinator(self, key: str, key_type: int = 0) -> Node:
        """Requests the coordinator of a group (0) or a transactional id (1) from any node."""
        response = self.any_node().send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        assert not isinstance(response, Pending)
        (found,) = response.coordinators
        if found.error_code:
            raise NoNodeError
        return self._node(found.node_id)

    def _node(self, node_id: int) -> Node:
        node = self.world.nodes.get(node_id)
        if node is None or node.engine is None or node.paused:
            raise NoNodeError
        return node

    def create(self, topic: str, partitions: int = 6) -> None:
        """Creates a topic, at any node."""
        self.retried(
            lambda: self.any_node().send(create(topic, partitions=partitions)),
            lambda response: response.topics[0].error_code,
        )
        self.world.advance(500)

    def produce(self, topic: str, partition: int, value: bytes) -> int:
        """Writes a record; returns its offset."""
        request = produce(topic, batch([value]), partition)
        response = self.retried(
            lambda: self.leader(topic, partition).send(request, PRODUCE_VERSION),
            lambda response: response.responses[0].partition_responses[0].error_code,
        )
        return int(response.responses[0].partition_responses[0].base_offset)

    def read(self, topic: str, partition: int) -> list[bytes | None]:
        """Returns the values of all records of a partition."""
        return [value for _, value in read_all(self.leader(topic, partition), topic, partition)]

    def commit(self, group: str, offset: int, topic: str = "t") -> None:
        """Commits an offset of partition 0."""
        request = commit(group, {(topic, 0): offset})
        self.retried(
            lambda: self.coordinator(group).send(request, COMMIT_VERSION),
            lambda response: response.topics[0].partitions[0].error_code,
        )

    def committed(self, group: str) -> int:
        """Returns the committed offset of partition 0; -1 if there is none."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        response = self.retried(
            lambda: self.coordinator(group).send(request, OFFSETS_VERSION),
            lambda response: response.groups[0].error_code,
        )
        offsets = [int(topic.partitions[0].committed_offset) for topic in response.groups[0].topics]
        return offsets[0] if offsets else -1
