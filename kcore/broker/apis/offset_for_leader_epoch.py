"""OffsetForLeaderEpoch (key 23), v2-4: end offsets of leader epochs, for clients that detect truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.apis.data import FEW_PARTITIONS, ReadApi
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work


PARTITION_COST_US = 2
"""The cost of one partition, in microseconds."""


class OffsetForLeaderEpochApi(ReadApi[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse]):
    """Handler of OffsetForLeaderEpoch requests from clients with the right to DESCRIBE a topic, and from other nodes of
    the cluster.
    """

    __slots__ = ()

    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    request_type = OffsetForLeaderEpochRequest
    response_type = OffsetForLeaderEpochResponse
    versions = (2, 4)

    def error(
        self,
        context: RequestContext,
        request: OffsetForLeaderEpochRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> OffsetForLeaderEpochResponse:
        """Makes a response with `code` for each partition."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(partition=entry.partition, error_code=code) for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def allowed(self, context: RequestContext, operation: Operation, topic: str) -> bool:
        """Decides if the client may read a topic.

        As in Kafka, the permission CLUSTER_ACTION on the cluster also suffices.
        """
        authorizer = self._authorizer
        return (
            authorizer is None
            or super().allowed(context, operation, topic)
            or authorizer.allowed(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        )

    def requested_partitions(self, request: OffsetForLeaderEpochRequest) -> Iterator[tuple[str, int]]:
        """Yields the topic and number of each requested partition."""
        return ((topic.topic, entry.partition) for topic in request.topics for entry in topic.partitions)

    def read(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Makes the whole response in one step, without slices."""
        results = []
        for topic in request.topics:
            allowed = self.allowed(context, Operation.DESCRIBE, topic.topic)
            ends = [self._end(topic.topic, entry, allowed) for entry in topic.partitions]
            results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return OffsetForLeaderEpochResponse(topics=results)

    def steps(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> Work:
        """Makes the response in steps of `FEW_PARTITIONS` partitions."""
        results = []
        for topic in request.topics:
            allowed = self.allowed(context, Operation.DESCRIBE, topic.topic)
            ends: list[EpochEndOffset] = []
            for first in range(0, len(topic.partitions), FEW_PARTITIONS):
                some = topic.partitions[first : first + FEW_PARTITIONS]
                ends += [self._end(topic.topic, entry, allowed) for entry in some]
                yield 1 + PARTITION_COST_US * len(some)
            results.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return OffsetForLeaderEpochResponse(topics=results)

    def _end(self, topic: str, entry: OffsetForLeaderPartition, allowed: bool) -> EpochEndOffset:
        if not allowed:
            return EpochEndOffset(partition=entry.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._partitions.get(topic, entry.partition)
        if partition is None:
            return EpochEndOffset(partition=entry.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = partition.epoch_check(entry.current_leader_epoch)
        if error is None and partition.recovering:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not None:
            return EpochEndOffset(partition=entry.partition, error_code=error)
        epoch, end_offset = partition.end_offset_for_epoch(entry.leader_epoch)
        return EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end_offset)
