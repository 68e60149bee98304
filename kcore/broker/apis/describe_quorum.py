"""DescribeQuorum (key 55, versions 0-2): this node is the only voter of the metadata log (KIP-595, KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from kcore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.clock import Now
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard


class DescribeQuorumApi(ControlApi[DescribeQuorumRequest, DescribeQuorumResponse]):
    """Handler of DescribeQuorum requests. It describes the metadata log only; any other partition is unknown.

    Args:
        shard: the metadata shard.
        cluster: this node and its addresses.
        now: the clock, which the driver reads once for each round of requests.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_cluster", "_now")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_QUORUM
    request_type: ClassVar[type] = DescribeQuorumRequest
    response_type: ClassVar[type] = DescribeQuorumResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        cluster: ClusterView,
        now: Now,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shard, authorizer)
        self._cluster = cluster
        self._now = now

    def decide(self, machine: MetadataMachine, context: RequestContext, request: DescribeQuorumRequest) -> Any:
        """Describes the metadata log, if the request names only this partition. Kafka refuses all partitions of other
        requests.
        """
        if not self.allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        named = [(topic.topic_name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
        if len(request.topics) == 1 and named == [(CLUSTER_METADATA, 0)]:
            partition = self._metadata_log(context.api_version)
            return DescribeQuorumResponse(
                topics=[DescribeQuorumResponseTopicData(topic_name=CLUSTER_METADATA, partitions=[partition])],
                nodes=self._nodes(context) if context.api_version >= 2 else [],
            )
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics = [
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=entry.partition_index, error_code=code, error_message=code.message
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(topics=topics)

    def _metadata_log(self, version: int) -> DescribeQuorumResponsePartitionData:
        log, now_ms = self.shard.log, self._now.wall_ms
        voter = ReplicaState(
            replica_id=self._cluster.node_id,
            replica_directory_id=self._cluster.directory_id if version >= 2 else ZERO_UUID,
            log_end_offset=log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        return DescribeQuorumResponsePartitionData(
            leader_id=self._cluster.node_id,
            leader_epoch=self._epoch(),
            high_watermark=log.high_watermark,
            current_voters=[voter],
        )

    def _epoch(self) -> int:
        """Returns the epoch of the quorum. It is at least 1, because an election begins the first epoch."""
        leader = self._cluster.leader(CLUSTER_METADATA, 0)
        return 1 if leader is None else leader.epoch + 1

    def _nodes(self, context: RequestContext) -> list[Node]:
        return [
            Node(
                node_id=broker.node_id, listeners=[Listener(name=context.listener, host=broker.host, port=broker.port)]
            )
            for broker in self._cluster.brokers(context.listener)
        ]

    def error(
        self, context: RequestContext, request: DescribeQuorumRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeQuorumResponse:
        """Makes a response with the error code and its text."""
        code = client_code(code)
        return DescribeQuorumResponse(error_code=code, error_message=message or code.message)
