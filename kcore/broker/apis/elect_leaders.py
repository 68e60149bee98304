"""ElectLeaders (key 43, versions 0-2): preferred (KIP-183) and unclean elections (KIP-460)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code, text
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

PREFERRED, UNCLEAN = 0, 1
STEP_PARTITIONS = 200
PARTITION_COST_US = 5
"""The cost of one partition, in microseconds."""


class ElectLeadersApi(SlicedReadApi[ElectLeadersRequest, ElectLeadersResponse]):
    """Handler of ElectLeaders requests. No partition needs an election: the node that has its log is always the leader.

    Args:
        shard: the metadata shard.
        cluster: the leaders of partitions.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_cluster",)

    key: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS
    request_type: ClassVar[type] = ElectLeadersRequest
    response_type: ClassVar[type] = ElectLeadersResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)
    differs: ClassVar[str] = (
        "kcore holds no elections. A partition gets ELECTION_NOT_NEEDED, or PREFERRED_LEADER_NOT_AVAILABLE if no node "
        "leads it."
    )

    def __init__(
        self, shard: Shard[MetadataMachine], cluster: ClusterView, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, authorizer)
        self._cluster = cluster

    def steps(self, machine: MetadataMachine, context: RequestContext, request: ElectLeadersRequest) -> Work:
        """Checks each partition.

        If the request is for all partitions, the response omits partitions that need no election.
        """
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.topic_partitions is not None and not request.topic_partitions:
            return ElectLeadersResponse()
        if request.timeout_ms <= 0:
            # Kafka's controller times out a request whose deadline has passed when it is processed.
            return self.error(context, request, ErrorCode.REQUEST_TIMED_OUT)
        if request.election_type not in {PREFERRED, UNCLEAN}:
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        results = []
        everything = request.topic_partitions is None
        selected: list[tuple[str, Sequence[int]]]
        if request.topic_partitions is None:
            selected = [(topic.name, range(topic.partitions)) for topic in machine.image.all()]
        else:
            selected = [(requested.topic, requested.partitions) for requested in request.topic_partitions]
        for name, indexes in selected:
            partitions: list[PartitionResult] = []
            for first in range(0, len(indexes), STEP_PARTITIONS):
                some = indexes[first : first + STEP_PARTITIONS]
                codes = [(index, self._code(machine, name, index)) for index in some]
                if everything:
                    codes = [entry for entry in codes if entry[1] != ErrorCode.ELECTION_NOT_NEEDED]
                partitions += _partitions(codes)
                yield PARTITION_COST_US * len(some)
            results.append(ReplicaElectionResult(topic=name, partition_result=partitions))
            yield PARTITION_COST_US
        return ElectLeadersResponse(replica_election_results=results)

    def _code(self, machine: MetadataMachine, name: str, index: int) -> ErrorCode:
        topic = machine.image.by_name(name)
        if topic is None or not 0 <= index < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._cluster.leader(name, index) is None:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED

    def error(
        self, context: RequestContext, request: ElectLeadersRequest, code: ErrorCode, message: str | None = None
    ) -> ElectLeadersResponse:
        """Makes a response with the error code for each partition, and from version 1 on for the whole request."""
        code = client_code(code)
        return ElectLeadersResponse(
            error_code=code if context.api_version >= 1 else ErrorCode.NONE,
            replica_election_results=[
                _result(requested.topic, [(index, code) for index in requested.partitions])
                for requested in request.topic_partitions or ()
            ],
        )


def _result(topic: str, codes: list[tuple[int, ErrorCode]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(topic=topic, partition_result=_partitions(codes))


def _partitions(codes: list[tuple[int, ErrorCode]]) -> list[PartitionResult]:
    return [
        PartitionResult(partition_id=index, error_code=code, error_message=text(code, None)) for index, code in codes
    ]
