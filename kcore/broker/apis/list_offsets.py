"""ListOffsets (key 2), v1-11: finds the earliest offset, the latest one, or an offset by timestamp.

v2 adds isolation levels (KIP-98), v4 leader epochs (KIP-320), and v7 the largest timestamp (KIP-734). v8, v9 and v11
add special timestamps for tiered storage; kcore has no tiered storage.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kcore.broker.apis.data import FEW_PARTITIONS, ReadApi
from kcore.broker.data.fetch import READ_COMMITTED
from kcore.broker.data.list_offsets import FIRST_VERSIONS, find_offset_in_steps, searches_log
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kcore.broker.data.partition import Partition
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work


PARTITION_COST_US = 6
"""The cost of one partition, in microseconds."""


class ListOffsetsApi(ReadApi[ListOffsetsRequest, ListOffsetsResponse]):
    """Handler of ListOffsets requests, which need the right to DESCRIBE a topic."""

    __slots__ = ()

    key = ApiKey.LIST_OFFSETS
    request_type = ListOffsetsRequest
    response_type = ListOffsetsResponse
    versions = (1, 11)

    def error(
        self, context: RequestContext, request: ListOffsetsRequest, code: ErrorCode, message: str | None = None
    ) -> ListOffsetsResponse:
        """Makes a response with `code` for each partition."""
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=entry.partition_index, error_code=code)
                        for entry in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def requested_partitions(self, request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
        """Yields the topic and number of each requested partition."""
        return ((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)

    def is_short(self, request: ListOffsetsRequest) -> bool:
        """Returns True if the request has few partitions, and searches none of their logs."""
        return super().is_short(request) and not any(
            searches_log(entry.timestamp) for topic in request.topics for entry in topic.partitions
        )

    def read(self, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Makes the response in one step. If the request names a partition twice, the response has one entry for this
        partition, with an error.
        """
        counts = Counter(self.requested_partitions(request))
        refused: set[tuple[str, int]] = set()
        results: dict[str, list[ListOffsetsPartitionResponse]] = {}
        level = request.isolation_level
        for topic in request.topics:
            some = self._results(context, level, topic.name, topic.partitions, counts, refused)
            _add(results, topic.name, [result for result in some if not isinstance(result, int)])
        return _response(results, {topic.name for topic in request.topics if self._is_denied(context, topic)})

    def steps(self, context: RequestContext, request: ListOffsetsRequest) -> Work:
        """Makes the response in steps of `FEW_PARTITIONS` partitions, with the same rule for duplicates as `read`.

        A search that reads a large batch is a separate step.
        """
        counts = Counter(self.requested_partitions(request))
        refused: set[tuple[str, int]] = set()
        results: dict[str, list[ListOffsetsPartitionResponse]] = {}
        denied: set[str] = set()
        for topic in request.topics:
            _add(results, topic.name, [])
            if self._is_denied(context, topic):
                denied.add(topic.name)
            if not topic.partitions:
                yield PARTITION_COST_US
            for first in range(0, len(topic.partitions), FEW_PARTITIONS):
                some = topic.partitions[first : first + FEW_PARTITIONS]
                yield from self._index_steps(context, topic.name, some)
                described = self._results(context, request.isolation_level, topic.name, some, counts, refused)
                for result in described:
                    if isinstance(result, int):
                        yield result
                    else:
                        results[topic.name].append(result)
                yield 1 + PARTITION_COST_US * len(some)
        return _response(results, denied)

    def _is_denied(self, context: RequestContext, topic: ListOffsetsTopic) -> bool:
        """Returns True for a topic without partitions in the request, if the client may not describe it."""
        return not topic.partitions and not self.allowed(context, Operation.DESCRIBE, topic.name)

    def _index_steps(
        self, context: RequestContext, topic: str, entries: Sequence[ListOffsetsPartition]
    ) -> Iterator[int]:
        """Builds the indexes of the logs to search, in steps for long logs. Each index is built only once."""
        if not self.allowed(context, Operation.DESCRIBE, topic):
            return
        for entry in entries:
            partition = self._partitions.get(topic, entry.partition_index)
            if partition is None or partition.recovering or partition.closed:
                continue
            if searches_log(entry.timestamp):
                yield from partition.log.index_steps()

    def _results(
        self,
        context: RequestContext,
        isolation_level: int,
        topic: str,
        entries: Sequence[ListOffsetsPartition],
        counts: Counter[tuple[str, int]],
        refused: set[tuple[str, int]],
    ) -> Generator[ListOffsetsPartitionResponse | int, None, None]:
        """Yields the response of each partition.

        Before a response, yields the cost of each long step of its search, in microseconds.
        """
        allowed = self.allowed(context, Operation.DESCRIBE, topic)
        for entry in entries:
            partition = self._partitions.get(topic, entry.partition_index)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if allowed:
                topic_partition = topic, entry.partition_index
                duplicate = counts[topic_partition] > 1
                if duplicate and topic_partition in refused:
                    continue
                if duplicate:
                    refused.add(topic_partition)
                error = _refusal(partition, entry, context.api_version, duplicate)
            if error or partition is None:
                yield ListOffsetsPartitionResponse(partition_index=entry.partition_index, error_code=error)
                continue
            committed = isolation_level == READ_COMMITTED
            limit = partition.last_stable_offset if committed else partition.high_watermark
            found = yield from find_offset_in_steps(partition, entry.timestamp, limit)
            yield ListOffsetsPartitionResponse(
                partition_index=entry.partition_index,
                timestamp=found.timestamp_ms,
                offset=found.offset,
                # Older versions do not have the field.
                leader_epoch=found.leader_epoch if context.api_version >= 4 else -1,
            )


def _refusal(partition: Partition | None, entry: ListOffsetsPartition, version: int, duplicate: bool) -> ErrorCode:
    """Returns the error of a partition by Kafka's checks in Kafka's order; NONE if all checks pass."""
    if duplicate:
        return ErrorCode.INVALID_REQUEST
    if entry.timestamp < 0 and version < FIRST_VERSIONS.get(entry.timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    if partition is None or partition.closed:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = partition.epoch_check(entry.current_leader_epoch)
    if error is not None:
        return error
    if partition.recovering:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _add(
    results: dict[str, list[ListOffsetsPartitionResponse]], topic: str, some: list[ListOffsetsPartitionResponse]
) -> None:
    """Adds results to the entry of their topic. A topic that the request names twice has one entry, as in Kafka."""
    present = results.get(topic)
    if present is None:
        results[topic] = some
    else:
        present += some


def _response(results: dict[str, list[ListOffsetsPartitionResponse]], denied: set[str]) -> ListOffsetsResponse:
    """Makes the response from the results by topic.

    As in Kafka, the response leaves out topics without partitions, unless the client may not describe them.
    """
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic, partitions=partitions)
            for topic, partitions in results.items()
            if partitions or topic in denied
        ]
    )
