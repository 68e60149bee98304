"""Planned moves on request: AlterPartitionReassignments names the next leader, ElectLeaders spreads the leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from kcore.broker.apis.alter_partition_reassignments import AlterPartitionReassignmentsApi
from kcore.broker.apis.control import text
from kcore.broker.apis.elect_leaders import PREFERRED, ElectLeadersApi
from kcore.broker.apis.list_partition_reassignments import ListPartitionReassignmentsApi
from kcore.broker.metadata.brokers import leader_record, replicas_record, successor_record
from kcore.errors import KafkaError
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from kcore.broker.cluster.controller import Controller
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.broker.metadata.topics import Topics
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.machine import Outcome, Record
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

DIFFERS: Final = "The first replica is the node that leads the partition next: a move copies no data."


class MovingReassignmentsApi(AlterPartitionReassignmentsApi):
    """Handler of AlterPartitionReassignments requests on the controller: changes the leaders of partitions.

    The first replica in a request is the node that leads the partition next. The handler only stores this plan; the
    controller moves the partition afterwards.

    Args:
        shard: the metadata shard.
        creation: checks that the requested replicas are valid.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ()

    differs: ClassVar[str] = DIFFERS

    def __init__(
        self, shard: Shard[MetadataMachine], creation: TopicCreation, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, creation, authorizer)

    def decide(  # type: ignore[override]  # here a request changes the metadata
        self, machine: MetadataMachine, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse | Outcome:
        """Stores the planned moves, and returns the result of each partition."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        records: list[Record] = []
        responses = []
        seen: set[tuple[str, int]] = set()
        for topic in request.topics:
            results = []
            for entry in topic.partitions:
                code, message = ErrorCode.NONE, None
                try:
                    # checked first: an unknown partition may be named twice
                    planned = self._planned(machine, topic.name, entry)
                    if (topic.name, entry.partition_index) in seen:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is in the request more than once")
                    seen.add((topic.name, entry.partition_index))
                    records += planned
                except KafkaError as error:
                    code, message = error.code, text(error.code, error.message)
                    if code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                        message = None  # as in Kafka
                results.append(
                    ReassignablePartitionResponse(
                        partition_index=entry.partition_index, error_code=code, error_message=message
                    )
                )
            responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if responses else "",
            responses=responses,
        )
        return machine.outcome(records, response)

    def _planned(self, machine: MetadataMachine, name: str, entry: ReassignablePartition) -> list[Record]:
        """Returns the records that plan one requested move, or that cancel it.

        Raises:
            KafkaError: the partition does not exist, the requested nodes are not valid, or there is no move to cancel.
        """
        image = machine.image
        topic, index = image.by_name(name), entry.partition_index
        if topic is None or not 0 <= index < topic.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic_id = topic.topic_id
        leader = image.leader(topic_id, index)
        successor = image.successor(topic_id, index)
        assert leader is not None, "every partition of the image has a leader"
        if entry.replicas is None:
            if successor is None:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            # A new epoch: the leader may have released the partition already.
            return [leader_record(topic_id, index, leader.node_id)]
        replicas = self._creation.checked_replicas(entry.replicas, None)
        records = []
        if replicas != image.replicas[topic_id][index]:
            records.append(replicas_record(topic_id, index, replicas))
        if leader.node_id < 0:
            records.append(leader_record(topic_id, index, replicas[0]))
        elif replicas[0] == leader.node_id:
            if successor is not None:
                records.append(leader_record(topic_id, index, leader.node_id))
        elif replicas[0] != successor:
            records.append(successor_record(topic_id, index, replicas[0]))
        return records


class PlannedMovesApi(ListPartitionReassignmentsApi):
    """Handler of ListPartitionReassignments requests: lists the planned moves that are under way.

    Args:
        topics: the metadata.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_topics",)

    differs: ClassVar[str] = DIFFERS

    def __init__(self, topics: Topics, authorizer: Authorizer | None = None) -> None:
        super().__init__(authorizer)
        self._topics = topics

    def handle(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Lists the planned moves of the requested partitions, or of all partitions."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        image = self._topics.image
        requested = None
        if request.topics is not None:
            requested = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
        topics = []
        for topic_id, planned in image.successors.items():
            name = image.ids[topic_id].name
            moving = [
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=tuple(dict.fromkeys((*image.replicas[topic_id][index], successor))),
                    adding_replicas=(successor,),
                    removing_replicas=(),
                )
                for index, successor in sorted(planned.items())
                if requested is None or (name, index) in requested
            ]
            if moving:
                topics.append(OngoingTopicReassignment(name=name, partitions=moving))
        return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


class RebalancingApi(ElectLeadersApi):
    """Handler of ElectLeaders requests on the controller: spreads all leaders evenly if a preferred election of all
    partitions is requested.

    Args:
        shard: the metadata shard.
        cluster: the leaders of partitions.
        controller: plans the moves.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_controller",)

    differs: ClassVar[str] = (
        "It holds no election. A preferred election of all partitions spreads the leaders evenly over the nodes."
    )

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        cluster: ClusterView,
        controller: Controller,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shard, cluster, authorizer)
        self._controller = controller

    def steps(self, machine: MetadataMachine, context: RequestContext, request: ElectLeadersRequest) -> Work:
        """Starts the balancing of the leaders, and checks each requested partition."""
        response = yield from super().steps(machine, context, request)
        everything = request.topic_partitions is None and request.election_type == PREFERRED
        if response.error_code == ErrorCode.NONE and everything:
            self._controller.rebalance()
        return response
