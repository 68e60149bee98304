"""DeleteRecords (key 21), v0-2: advances the log start of partitions (KIP-107)."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

from kcore.broker.apis.data import FEW_PARTITIONS, DataApi
from kcore.log.errors import LogError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from kcore.runtime.pending import Pending, gather

if TYPE_CHECKING:
    from kcore.broker.data.partition import Partition
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

HIGH_WATERMARK = -1
"""Offset in a request that stands for the high watermark. A client sends it to delete all records."""

PARTITION_COST_US = 10
"""The cost of deleting from one partition, in microseconds."""

PRODUCERS_A_PARTITION = 30
"""Number of producers whose snapshot costs as much as deleting from one partition.

Each deletion from a partition also writes a snapshot of the partition's producers.
"""


class DeleteRecordsApi(DataApi[DeleteRecordsRequest, DeleteRecordsResponse]):
    """Handler of DeleteRecords requests, which need the permission DELETE on the topic.

    The response leaves out topics without partitions, as in Kafka.

    The states of producers remain, even if their batches are deleted.
    """

    __slots__ = ()

    key = ApiKey.DELETE_RECORDS
    request_type = DeleteRecordsRequest
    response_type = DeleteRecordsResponse
    versions = (0, 2)

    def error(
        self, context: RequestContext, request: DeleteRecordsRequest, code: ErrorCode, message: str | None = None
    ) -> DeleteRecordsResponse:
        """Makes a response with `code` for each partition."""
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[_result(entry.partition_index, -1, code) for entry in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def handle(self, context: RequestContext, request: DeleteRecordsRequest) -> Any:
        """Deletes records of the requested partitions, in parts if there are many. Each part has its own commit."""
        named = [(topic.name, entry) for topic in request.topics for entry in topic.partitions]
        if len(named) <= FEW_PARTITIONS and sum(starmap(self._units, named)) <= FEW_PARTITIONS:
            return self._decide(context, request)

        def join(numbered: list[tuple[int, Any]]) -> Any:
            numbers = [number for number, _ in numbered]

            def build(parts: list[DeleteRecordsResponse]) -> DeleteRecordsResponse:
                topics = [DeleteRecordsTopicResult(name=topic.name, partitions=[]) for topic in request.topics]
                for number, part in zip(numbers, parts, strict=True):
                    topics[number].partitions = [*topics[number].partitions, *part.topics[0].partitions]
                return DeleteRecordsResponse(topics=[topic for topic in topics if topic.partitions])

            return gather(self, context, request, [part for _, part in numbered], build)

        return self._partitions.slices.requests.run(self, context, request, self._parts(context, request), join)

    def _parts(self, context: RequestContext, request: DeleteRecordsRequest) -> Work:
        """Handles the request in parts. Returns for each part the index of its topic, and its response or the `Pending`
        for it.
        """
        parts: list[tuple[int, Any]] = []
        for number, topic in enumerate(request.topics):
            first = 0
            while first < len(topic.partitions):
                end, units = first, 0
                while end < len(topic.partitions) and units < FEW_PARTITIONS:
                    units += self._units(topic.name, topic.partitions[end])
                    end += 1
                some = DeleteRecordsTopic(name=topic.name, partitions=topic.partitions[first:end])
                part = DeleteRecordsRequest(topics=[some], timeout_ms=request.timeout_ms)
                parts.append((number, self._decide(context, part)))
                first = end
                yield PARTITION_COST_US * units
        return parts

    def _units(self, topic: str, entry: DeleteRecordsPartition) -> int:
        """Returns the cost of a deletion, as a multiple of the cost for a partition without producers."""
        partition = self._partitions.get(topic, entry.partition_index)
        return 1 if partition is None else 1 + partition.snapshot_size // PRODUCERS_A_PARTITION

    def _decide(self, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Pending:
        """Stages the allowed deletions; the response waits until they are durable."""
        topics = []
        staged = False
        for topic in request.topics:
            results = []
            for entry in topic.partitions:
                partition = self._partitions.get(topic.name, entry.partition_index)
                error = self._refusal(context, topic.name, partition)
                if error or partition is None:
                    results.append(_result(entry.partition_index, -1, error))
                    continue
                low_watermark, error = self._delete(partition, entry.offset)
                staged = staged or not error
                results.append(_result(entry.partition_index, low_watermark, error))
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        response = DeleteRecordsResponse(topics=[topic for topic in topics if topic.partitions])
        if not staged:
            return response
        pending = Pending(self, context, request)
        self._pipeline.respond_after_commit(pending, response)
        return pending

    def _refusal(self, context: RequestContext, topic: str, partition: Partition | None) -> ErrorCode:
        """Returns the first error that Kafka's checks find, in Kafka's order; NONE if records may be deleted."""
        if not self.allowed(context, Operation.DELETE, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.internal:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition.recovering:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.config.delete:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    @staticmethod
    def _delete(partition: Partition, offset: int) -> tuple[int, ErrorCode]:
        """Stages one deletion; returns (low watermark, error)."""
        if offset == HIGH_WATERMARK:
            offset = partition.high_watermark
        if offset < 0 or offset > partition.high_watermark:
            return -1, ErrorCode.OFFSET_OUT_OF_RANGE
        try:
            return partition.delete_before(offset), ErrorCode.NONE
        except LogError:
            return -1, ErrorCode.KAFKA_STORAGE_ERROR


def _result(index: int, low_watermark: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
