"""OffsetForLeaderEpoch (key 23), v2-4: where a leader epoch ended, for readers who check for truncation (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.after_commit import AfterCommit
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.broker.partitions import Partitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.pending import Pending


class OffsetForLeaderEpochApi(Api[OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse]):
    """Serves OffsetForLeaderEpoch.

    Args:
        partitions: what can be asked.
        pipeline: for questions about partitions with appends that nobody was told of yet.
        authorizer: who may DESCRIBE what; None allows all.
    """

    __slots__ = ("_authorizer", "_partitions", "_pipeline")

    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    request_type = OffsetForLeaderEpochRequest
    response_type = OffsetForLeaderEpochResponse
    versions = (2, 4)
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self, partitions: Partitions, pipeline: CommitPipeline, *, authorizer: Authorizer | None = None
    ) -> None:
        self._partitions = partitions
        self._pipeline = pipeline
        self._authorizer = authorizer

    def error(
        self,
        context: RequestContext,
        request: OffsetForLeaderEpochRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> OffsetForLeaderEpochResponse:
        """`code` for each partition."""
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

    def handle(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse | Pending:
        """Answers at once, or behind the commit of appends without acks."""
        for topic in request.topics:
            for entry in topic.partitions:
                partition = self._partitions.get(topic.topic, entry.partition)
                if partition is not None and partition.unacknowledged:
                    return AfterCommit.answer(self._pipeline, self, context, request)
        return self.read(context, request)

    def read(self, context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """The response, of what is durable now."""
        results = []
        for topic in request.topics:
            allowed = self._authorizer is None or self._authorizer.allowed(
                context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic
            )
            ends = [self._end(topic.topic, entry, allowed) for entry in topic.partitions]
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
