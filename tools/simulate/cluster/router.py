"""A client's connections to the nodes of a cluster. Each request is sent to the leader or the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.errors import ConnectionClosedError
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.fetch import FetchRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest
from kcore.protocol.messages.produce import ProduceRequest
from tools.simulate.channel import Channel, Done
from tools.simulate.kernel import Suspension

if TYPE_CHECKING:
    from tools.simulate.cluster.world import ClusterWorld

GROUP: Final = 0
TRANSACTION: Final = 1
PARTITION: Final = 2
LOOK_UP_EVERY_MS: Final = 100
LOOK_UP_TIMEOUT_MS: Final = 5_000
TRANSACTIONAL: Final = (InitProducerIdRequest, EndTxnRequest, AddOffsetsToTxnRequest)


class Target(NamedTuple):
    """The receiver of a request: the coordinator of a group or a transactional id, or the leader of a partition."""

    kind: int
    name: str
    partition: int = -1


class _Waiting(NamedTuple):
    request: Any
    done: Done
    version: int | None
    timeout_ms: int
    at_most: int | None


def target_of(request: Any) -> Target | None:
    """Returns the receiver of a request, or None if any node can serve it."""
    if isinstance(request, ProduceRequest):
        topic = request.topic_data[0]
        return Target(PARTITION, topic.name, topic.partition_data[0].index)
    if isinstance(request, FetchRequest):
        return Target(PARTITION, request.topics[0].topic, request.topics[0].partitions[0].partition)
    if isinstance(request, AddPartitionsToTxnRequest):
        return Target(TRANSACTION, request.v3_and_below_transactional_id)
    if isinstance(request, TRANSACTIONAL):
        return None if request.transactional_id is None else Target(TRANSACTION, request.transactional_id)
    if isinstance(request, OffsetFetchRequest):
        return Target(GROUP, request.groups[0].group_id)
    group = getattr(request, "group_id", None)
    return None if group is None else Target(GROUP, group)


def _is_refused(response: Any) -> bool:
    """Returns True if a response has any error, so that another node may be the receiver by now."""
    if getattr(response, "error_code", 0):
        return True
    for topic in (*getattr(response, "responses", ()), *getattr(response, "topics", ())):
        rows = getattr(topic, "partition_responses", None) or getattr(topic, "partitions", ())
        if any(row.error_code for row in rows):
            return True
    return any(group.error_code for group in getattr(response, "groups", ()))


class Router:
    """The connections of one client, with the methods of a `Channel`.

    It sends each request to the right node, and looks the node up again after an error. Requests to one receiver keep
    their order during the look-up of the receiver.

    Args:
        world: the simulation.
        name: the client's id.
    """

    def __init__(self, world: ClusterWorld, name: str) -> None:
        self._world = world
        self._kernel = world.kernel
        self.name = name
        self.closed = False
        self._channels: dict[int, Channel] = {}
        self._nodes: dict[Target, int] = {}
        self._lines: dict[Target, list[_Waiting]] = {}

    def call(
        self, request: Any, version: int | None = None, *, timeout_ms: int = 30_000, at_most: int | None = None
    ) -> Suspension:
        """Implements `Channel.call`."""
        return Suspension(lambda done: self.send(request, done, version, timeout_ms=timeout_ms, at_most=at_most))

    def send(
        self,
        request: Any,
        done: Done,
        version: int | None = None,
        *,
        timeout_ms: int = 30_000,
        at_most: int | None = None,
    ) -> None:
        """Implements `Channel.send`."""
        target = target_of(request)
        waiting = _Waiting(request, done, version, timeout_ms, at_most)
        if target is None:
            self._any().send(request, done, version, timeout_ms=timeout_ms, at_most=at_most)
        elif target in self._lines:
            self._lines[target].append(waiting)
        elif target in self._nodes:
            self._pass_on(target, waiting)
        else:
            self._lines[target] = [waiting]
            self._look_up(target, self._kernel.now_ms + LOOK_UP_TIMEOUT_MS)

    def close(self) -> None:
        """Implements `Channel.close`."""
        self.closed = True
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for each in line:
                each.done(ConnectionClosedError("the client closed its connection"))
        for channel in self._channels.values():
            channel.close()

    def _channel(self, node_id: int) -> Channel:
        channel = self._channels.get(node_id)
        if channel is None:
            channel = self._channels[node_id] = Channel(self._world, self.name, self._world.nodes[node_id].network)
        return channel

    def _any(self) -> Channel:
        running = [node_id for node_id, node in self._world.nodes.items() if node.running] or list(self._world.nodes)
        return self._channel(self._world.routes.choice(running))

    def _pass_on(self, target: Target, waiting: _Waiting) -> None:
        node_id = self._nodes[target]

        def done(result: Any) -> None:
            if (isinstance(result, Exception) or _is_refused(result)) and self._nodes.get(target) == node_id:
                del self._nodes[target]
            waiting.done(result)

        self._channel(node_id).send(
            waiting.request, done, waiting.version, timeout_ms=waiting.timeout_ms, at_most=waiting.at_most
        )

    def _look_up(self, target: Target, until_ms: int) -> None:
        request: Any
        if target.kind == PARTITION:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=target.name)], allow_auto_topic_creation=False)
        else:
            request = FindCoordinatorRequest(key_type=target.kind, coordinator_keys=[target.name])

        def done(response: Any) -> None:
            if target not in self._lines:
                return
            node_id = -1 if isinstance(response, Exception) else _node_of(target, response)
            if node_id in self._world.nodes:
                self._nodes[target] = node_id
                for waiting in self._lines.pop(target):
                    if target in self._nodes:
                        self._pass_on(target, waiting)
                    else:  # the first request could not be sent
                        waiting.done(ConnectionClosedError("simulated: the node refuses connections"))
            elif self._kernel.now_ms < until_ms:
                self._kernel.after(LOOK_UP_EVERY_MS, self._look_up_again, target, until_ms)
            else:
                for waiting in self._lines.pop(target):
                    waiting.done(ConnectionClosedError("simulated: no node serves the request"))

        self._any().send(request, done, timeout_ms=LOOK_UP_TIMEOUT_MS)

    def _look_up_again(self, target: Target, until_ms: int) -> None:
        if target in self._lines:
            self._look_up(target, until_ms)


def _node_of(target: Target, response: Any) -> int:
    """Returns the node that a response names, or -1 if there is none."""
    if target.kind != PARTITION:
        (coordinator,) = response.coordinators
        return -1 if coordinator.error_code else int(coordinator.node_id)
    topic = response.topics[0]
    for partition in topic.partitions:
        if partition.partition_index == target.partition:
            return int(partition.leader_id)
    return -1
