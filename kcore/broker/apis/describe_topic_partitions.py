"""DescribeTopicPartitions (key 75, version 0): topics in pages with a limited number of partitions (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.broker.metadata.names import is_internal, name_fault
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work
    from kcore.runtime.topics import TopicInfo

TOPIC_COST_US = 100
"""The cost of describing one topic, mostly of its authorized operations, in microseconds."""
NAME_COST_US = 10
"""The cost of a topic that does not fit into the page, in microseconds. The broker only checks the client's permission
for this topic.
"""
NAMES_A_MICROSECOND = 4
"""Number of topic names that the broker copies in a microsecond."""
PARTITION_COST_US = 3
"""The cost of describing one partition, in microseconds."""


class DescribeTopicPartitionsApi(SlicedReadApi[DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse]):
    """Handler of DescribeTopicPartitions requests: topics sorted by name, one page per request. It never creates
    topics.

    Args:
        shard: the metadata shard.
        cluster: the leaders of partitions.
        config: the node's settings.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_cluster", "_config")

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    request_type: ClassVar[type] = DescribeTopicPartitionsRequest
    response_type: ClassVar[type] = DescribeTopicPartitionsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        cluster: ClusterView,
        config: Config,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(shard, authorizer)
        self._cluster = cluster
        self._config = config

    def steps(self, machine: MetadataMachine, context: RequestContext, request: DescribeTopicPartitionsRequest) -> Work:
        """Fills one page from the cursor on."""
        cursor = request.cursor
        start = "" if cursor is None else cursor.topic_name
        everything = not request.topics
        requested = (
            dict.fromkeys(machine.image.names) if everything else dict.fromkeys(topic.name for topic in request.topics)
        )
        if cursor is not None and (cursor.partition_index < 0 or (not everything and start not in requested)):
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        if not start and "" in requested:
            return self.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka
        room = max(min(self._config.max_request_partition_size_limit, request.response_partition_limit), 1)
        response = DescribeTopicPartitionsResponse()
        described: list[DescribeTopicPartitionsResponseTopic] = []
        refused: list[DescribeTopicPartitionsResponseTopic] = []
        yield len(requested) // NAMES_A_MICROSECOND
        for name in sorted(name for name in requested if name >= start):
            yield TOPIC_COST_US if response.next_cursor is None else NAME_COST_US
            if not self.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                if not everything:
                    refused.append(_failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
                continue
            if response.next_cursor is not None:
                continue
            if room <= 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                continue
            topic = machine.image.by_name(name)
            first = cursor.partition_index if cursor is not None and name == start else 0
            result = self._topic(machine, name, topic, first, room)
            result.topic_authorized_operations = authorized_operations(
                self.authorizer, context, ResourceType.TOPIC, name
            )
            described.append(result)
            yield PARTITION_COST_US * len(result.partitions)
            end = first + len(result.partitions)
            room -= len(result.partitions)
            if topic is not None and first < topic.partitions and end < topic.partitions:
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
        response.topics = described + refused
        return response

    def _topic(
        self, machine: MetadataMachine, name: str, topic: TopicInfo | None, first: int, room: int
    ) -> DescribeTopicPartitionsResponseTopic:
        """Describes at most `room` partitions of a topic from `first` on."""
        if topic is None:
            illegal = name_fault(name) is not None
            return _failure(
                ErrorCode.INVALID_TOPIC_EXCEPTION if illegal else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name
            )
        replicas = machine.image.replicas[topic.topic_id]
        partitions = []
        for index in range(first, min(topic.partitions, first + room)):
            leader = self._cluster.leader(name, index)
            partitions.append(
                DescribeTopicPartitionsResponsePartition(
                    error_code=ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=-1 if leader is None else leader.node_id,
                    leader_epoch=-1 if leader is None else leader.epoch,
                    replica_nodes=replicas[index],
                    isr_nodes=replicas[index],
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
            )
        return DescribeTopicPartitionsResponseTopic(
            name=name, topic_id=topic.topic_id, is_internal=is_internal(name), partitions=partitions
        )

    def error(
        self,
        context: RequestContext,
        request: DescribeTopicPartitionsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> DescribeTopicPartitionsResponse:
        """Makes a response with the same error code for each requested topic."""
        code = client_code(code)
        return DescribeTopicPartitionsResponse(topics=[_failure(code, topic.name) for topic in request.topics])


def _failure(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=is_internal(name))
