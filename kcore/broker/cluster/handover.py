"""Planned moves: the leader of a partition finishes its work and releases the partition; then the controller names the
next leader.

The controller writes the plan into the metadata log. The leader replays the plan, gives the partition up, and reports
the release with AlterPartition. The controller then writes the new leader. So two nodes never serve the partition at
the same time. The plan survives a crash of the controller, of the leader and of the next leader. A node that is
stopping uses BrokerHeartbeat to request such moves of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from kcore.broker.apis.control import client_code
from kcore.broker.cluster.balance import moved_replicas
from kcore.broker.cluster.node_access import NodeApi
from kcore.broker.metadata.brokers import leader_record
from kcore.log.interface import PartitionKey
from kcore.metrics import Histogram
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
    TopicResult,
)
from kcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from kcore.broker.cluster.controller import Controller
    from kcore.broker.cluster.membership import Membership
    from kcore.broker.cluster.node_access import NodeAccess
    from kcore.broker.metadata.image import MetadataImage
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topics import Topics
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.machine import Outcome, Record
    from kcore.runtime.peers import Peers
    from kcore.runtime.shard import Shard
    from kcore_ext.runtime.timer_wheel import Timer, TimerWheel

FIRST_RETRY_MS: Final = 10
"""The pause before a node repeats a report that the controller has not accepted. The pause doubles each time."""
RETRY_MS: Final = 200
"""The longest pause between two reports, and the pause after an accepted report.

After this pause, the metadata should show the new leaders.
"""
HEARTBEAT_MS: Final = 50
"""The time between two heartbeats of a node that is stopping."""
VERSION: Final = 3


class Releases:
    """The partitions that this node has given up for a planned move, until the metadata contains their next leader.

    Args:
        membership: this node's registration.
        topics: the metadata.
        cluster: gives the current controller.
        peers: sends requests to the controller.
        wheel: the node's timers.

    Attributes:
        times: the times from the release of a partition to the replay of its next leader, in seconds.
    """

    __slots__ = (
        "_added",
        "_cluster",
        "_epochs",
        "_membership",
        "_peers",
        "_requesting",
        "_retry",
        "_retry_ms",
        "_topics",
        "_wheel",
        "times",
    )

    def __init__(
        self, membership: Membership, topics: Topics, cluster: ClusterView, peers: Peers, wheel: TimerWheel
    ) -> None:
        self._membership = membership
        self._topics = topics
        self._cluster = cluster
        self._peers = peers
        self._wheel = wheel
        self._epochs: dict[PartitionKey, tuple[int, int]] = {}  # the leader epoch that ends, time of the release
        self.times = Histogram()
        self._requesting = False
        self._added = False  # True if a partition was released after the report that is under way
        self._retry: Timer | None = None
        self._retry_ms = FIRST_RETRY_MS

    def add(self, key: PartitionKey, epoch: int) -> None:
        """Adds a partition that this node has stopped serving; `report` reports it.

        If the partition has a release of an earlier leader epoch, the new release replaces it. An earlier release
        remains if another node led the partition in between, and this node has not replayed the record of that leader.
        """
        earlier = self._epochs.get(key)
        if earlier is None or earlier[0] != epoch:
            self._epochs[key] = epoch, self._wheel.now_ms
            self._added = True

    def finished(self, key: PartitionKey) -> None:
        """Removes a released partition, because the metadata contains its new leader."""
        released = self._epochs.pop(key, None)
        if released is not None:
            self.times.observe((self._wheel.now_ms - released[1]) / 1_000)

    def report(self) -> None:
        """Reports all released partitions to the controller. Repeats the report until the metadata contains their new
        leaders.
        """
        if self._requesting or self._membership.fenced or self._membership.stopped:
            return
        image = self._topics.image
        for key, (epoch, _) in list(self._epochs.items()):
            leader = image.leader(key.topic_id, key.partition)
            if leader is None or leader.epoch != epoch or image.successor(key.topic_id, key.partition) is None:
                self.finished(key)
        if not self._epochs:
            return
        controller = self._cluster.controller_id
        if controller < 0:
            self._again(self._backed_off_ms())
            return
        request = self._request(image)
        self._added = False
        try:
            self._requesting = True
            self._peers.send(controller, request, VERSION, self._arrived)
        except BaseException:
            self._requesting = False  # no response will come
            raise

    def _request(self, image: MetadataImage) -> AlterPartitionRequest:
        topics: dict[bytes, list[PartitionData]] = {}
        for (topic_id, index), (epoch, _) in self._epochs.items():
            successor = image.successor(topic_id, index)
            assert successor is not None, "the others were removed before"
            in_sync = [BrokerState(broker_id=successor)]
            topics.setdefault(topic_id, []).append(
                PartitionData(partition_index=index, leader_epoch=epoch, new_isr_with_epochs=in_sync)
            )
        lease = self._membership.lease
        return AlterPartitionRequest(
            broker_id=lease.holder,
            broker_epoch=lease.epoch,
            topics=[TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )

    def _arrived(self, response: AlterPartitionResponse | None) -> None:
        self._requesting = False
        if response is None or response.error_code or any(part.error_code for part in _parts(response)):
            self._again(self._backed_off_ms())
            return
        self._retry_ms = FIRST_RETRY_MS
        # The metadata may show the new leaders before `RETRY_MS`; then nothing is left to report.
        self._again(0 if self._added else RETRY_MS)

    def _backed_off_ms(self) -> int:
        """Returns the pause before the next attempt in ms. Doubles the pause that the next call returns, up to
        `RETRY_MS`.
        """
        wait_ms = self._retry_ms
        self._retry_ms = min(2 * wait_ms, RETRY_MS)
        return wait_ms

    def _again(self, wait_ms: int) -> None:
        """Schedules a report after a delay, unless a report is already scheduled for an earlier time."""
        deadline_ms = self._wheel.now_ms + wait_ms
        if self._retry is None or not self._retry.armed:
            self._retry = self._wheel.add(deadline_ms, self.report)
        elif deadline_ms < self._retry.deadline_ms:
            self._retry.extend(deadline_ms)


def _parts(response: AlterPartitionResponse) -> Iterator[PartitionResult]:
    """Yields the result of each partition in a response."""
    return (part for topic in response.topics for part in topic.partitions)


class AlterPartitionApi(NodeApi[AlterPartitionRequest, AlterPartitionResponse]):
    """Handler of AlterPartition requests on the controller: gives released partitions to their next leaders.

    `NodeApi` documents the arguments.
    """

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION
    request_type: ClassVar[type] = AlterPartitionRequest
    response_type: ClassVar[type] = AlterPartitionResponse
    versions: ClassVar[tuple[int, int]] = (VERSION, VERSION)

    def decide(
        self, machine: MetadataMachine, context: RequestContext, request: AlterPartitionRequest
    ) -> AlterPartitionResponse | Outcome:
        """Writes the new leaders of partitions that still have the leader and epoch of the request."""
        code = self._refusal(machine, context, request)
        if code:
            return self.error(context, request, code)
        records: list[Record] = []
        topics = []
        seen: set[tuple[bytes, int]] = set()
        for topic in request.topics:
            results = []
            for part in topic.partitions:
                code = self._check(machine.image, request.broker_id, topic.topic_id, part)
                if (topic.topic_id, part.partition_index) in seen:
                    code = ErrorCode.INVALID_REQUEST
                seen.add((topic.topic_id, part.partition_index))
                successor = part.new_isr_with_epochs[0].broker_id if part.new_isr_with_epochs else -1
                if not code:
                    previous_replicas = machine.image.replicas[topic.topic_id][part.partition_index]
                    replicas = moved_replicas(previous_replicas, request.broker_id, successor)
                    records.append(
                        leader_record(
                            topic.topic_id,
                            part.partition_index,
                            successor,
                            None if replicas == previous_replicas else replicas,
                        )
                    )
                results.append(
                    PartitionResult(
                        partition_index=part.partition_index,
                        error_code=code,
                        leader_id=-1 if code else successor,
                        leader_epoch=-1 if code else part.leader_epoch + 1,
                        isr=() if code else (successor,),
                        partition_epoch=-1 if code else part.leader_epoch + 1,
                    )
                )
            topics.append(TopicResult(topic_id=topic.topic_id, partitions=results))
        return machine.outcome(records, AlterPartitionResponse(topics=topics))

    def _refusal(
        self, machine: MetadataMachine, context: RequestContext, request: AlterPartitionRequest
    ) -> ErrorCode | None:
        if not self.access.allowed(context, self.key):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return registration_error(machine, request.broker_id, request.broker_epoch)

    def _check(self, image: MetadataImage, node_id: int, topic_id: bytes, part: PartitionData) -> ErrorCode:
        leader = image.leader(topic_id, part.partition_index)
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if leader != (node_id, part.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        successor = image.successor(topic_id, part.partition_index)
        if successor is None or [state.broker_id for state in part.new_isr_with_epochs] != [successor]:
            return ErrorCode.INVALID_REQUEST
        broker = image.brokers.get(successor)
        return ErrorCode.INELIGIBLE_REPLICA if broker is None or broker.fenced else ErrorCode.NONE

    def error(
        self, context: RequestContext, request: AlterPartitionRequest, code: ErrorCode, message: str | None = None
    ) -> AlterPartitionResponse:
        """Makes a response with the error code for the whole request."""
        return AlterPartitionResponse(error_code=client_code(code))


class BrokerHeartbeatApi(NodeApi[BrokerHeartbeatRequest, BrokerHeartbeatResponse]):
    """Handler of BrokerHeartbeat requests on the controller: hands the partitions of a stopping node to other nodes.

    Args:
        shard: the metadata shard.
        controller: plans the moves.
        access: recognizes requests of other nodes.
    """

    __slots__ = ("_controller",)

    key: ClassVar[ApiKey] = ApiKey.BROKER_HEARTBEAT
    request_type: ClassVar[type] = BrokerHeartbeatRequest
    response_type: ClassVar[type] = BrokerHeartbeatResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    differs: ClassVar[str] = "Only a node that wants to stop sends it: leases in the store take its other role."

    def __init__(self, shard: Shard[MetadataMachine], controller: Controller, access: NodeAccess) -> None:
        super().__init__(shard, access)
        self._controller = controller

    def decide(
        self, machine: MetadataMachine, context: RequestContext, request: BrokerHeartbeatRequest
    ) -> BrokerHeartbeatResponse:
        """Decides if the node may stop. A node may stop once it leads no partition."""
        if not self.access.allowed(context, self.key):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        code = registration_error(machine, request.broker_id, request.broker_epoch)
        if code is None and not machine.leads():
            code = ErrorCode.NOT_CONTROLLER
        if code is not None:
            return self.error(context, request, code)
        may_stop = request.want_shut_down and self._controller.stop(request.broker_id, request.broker_epoch)
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=may_stop)

    def error(
        self, context: RequestContext, request: BrokerHeartbeatRequest, code: ErrorCode, message: str | None = None
    ) -> BrokerHeartbeatResponse:
        """Makes a response with the error code."""
        return BrokerHeartbeatResponse(error_code=client_code(code))


def registration_error(machine: MetadataMachine, node_id: int, epoch: int) -> ErrorCode | None:
    """Returns the error for a request of a node that is fenced, or not registered in `epoch`; None for any other
    node.
    """
    broker = machine.image.brokers.get(node_id)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return None if broker.epoch == epoch and not broker.fenced else ErrorCode.STALE_BROKER_EPOCH


class NodeHandover:
    """The handover of all partitions of a node before the node stops. Repeats the request to the controller until the
    node leads no partition.

    Args:
        membership: this node's registration.
        cluster: gives the current controller.
        peers: sends requests to the controller.
        wheel: the node's timers.
        done: called once, when the node may stop.
    """

    __slots__ = ("_cluster", "_done", "_membership", "_peers", "_wheel", "ended")

    def __init__(
        self,
        membership: Membership,
        cluster: ClusterView,
        peers: Peers,
        wheel: TimerWheel,
        done: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._cluster = cluster
        self._peers = peers
        self._wheel = wheel
        self._done = done
        self.ended = False

    def send(self) -> None:
        """Sends a BrokerHeartbeat. If the node no longer serves, it has nothing to hand over, and the handover ends."""
        if self.ended:
            return
        membership = self._membership
        if membership.stopped or not membership.is_serving():
            self._end()
            return
        controller = self._cluster.controller_id
        if controller < 0:
            self._again()
            return
        lease = membership.lease
        request = BrokerHeartbeatRequest(broker_id=lease.holder, broker_epoch=lease.epoch, want_shut_down=True)
        self._peers.send(controller, request, 0, self._arrived)

    def _arrived(self, response: BrokerHeartbeatResponse | None) -> None:
        if response is not None and not response.error_code and response.should_shut_down:
            self._end()
        else:
            self._again()

    def _again(self) -> None:
        self._wheel.add(self._wheel.now_ms + HEARTBEAT_MS, self.send)

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._done()
