"""DescribeProducers (key 61), v0: the producers of a partition and their open transactions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.metadata.names import name_fault
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kcore.runtime.api import Api
from kcore.runtime.topic_permissions import PERMISSION_COST_US

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kcore.broker.data.partition import Partition
    from kcore.broker.data.partitions import Partitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work
    from kcore_ext.broker.producers import ProducerEntry

PARTITION_COST_US = 1
"""The cost of handling one partition, in microseconds. It does not include the description of the producers."""
STEP_COST_US = 200
"""The cost after which a step ends, in microseconds. The description of a partition's producers has its own steps."""

FEW_PRODUCERS = 1_000
"""Number of producers that a step describes. Each takes about a microsecond."""

MAX_PRODUCERS = 500_000
"""Maximum number of producers in one response. If a partition is requested twice, its producers count twice."""


class DescribeProducersApi(Api[DescribeProducersRequest, DescribeProducersResponse]):
    """Handler of DescribeProducers requests.

    Args:
        partitions: the node's partitions.
        authorizer: decides about READ of each topic; None allows all.
    """

    __slots__ = ("_authorizer", "_partitions")

    key = ApiKey.DESCRIBE_PRODUCERS
    request_type = DescribeProducersRequest
    response_type = DescribeProducersResponse
    versions = (0, 0)

    def __init__(self, partitions: Partitions, *, authorizer: Authorizer | None = None) -> None:
        self._partitions = partitions
        self._authorizer = authorizer

    def error(
        self, context: RequestContext, request: DescribeProducersRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeProducersResponse:
        """Makes a response with `code` for each partition."""
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(partition_index=index, error_code=code, error_message=message)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    def handle(self, context: RequestContext, request: DescribeProducersRequest) -> Any:
        """Describes producers without waiting for a commit. Their states include appends that are not durable yet. If
        the request names a partition twice, its producers are read once.
        """
        return self._partitions.slices.requests.run(self, context, request, self._steps(context, request))

    def _steps(self, context: RequestContext, request: DescribeProducersRequest) -> Work:
        topics = []
        total = cost = 0
        described: dict[Partition, PartitionResponse] = {}
        for topic in request.topics:
            allowed = self._authorizer is None or self._authorizer.allowed(
                context, Operation.READ, ResourceType.TOPIC, topic.name
            )
            illegal = name_fault(topic.name) is not None
            responses: list[PartitionResponse] = []
            for index in topic.partition_indexes:
                partition = self._partitions.get(topic.name, index)
                if illegal:  # Kafka checks names before permissions
                    responses.append(refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION))
                elif not allowed:
                    responses.append(refused(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                elif partition is None:
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    message = None if topic.name in self._partitions.names else unknown.message
                    responses.append(
                        PartitionResponse(partition_index=index, error_code=unknown, error_message=message)
                    )
                elif partition.recovering:
                    responses.append(refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                else:
                    total += len(partition.producers.entries)
                    if total > MAX_PRODUCERS:
                        raise KafkaError(
                            ErrorCode.POLICY_VIOLATION, f"one request may describe at most {MAX_PRODUCERS} producers"
                        )
                    response = described.get(partition)
                    if response is None:
                        producers = yield from _describe(partition)
                        response = PartitionResponse(partition_index=index, active_producers=producers)
                        described[partition] = response
                    responses.append(response)
                cost += PARTITION_COST_US
                if cost >= STEP_COST_US:
                    yield cost
                    cost = 0
            topics.append(TopicResponse(name=topic.name, partitions=responses))
            cost += PERMISSION_COST_US
            if cost >= STEP_COST_US:
                yield cost
                cost = 0
        return DescribeProducersResponse(topics=topics)


def refused(index: int, error: ErrorCode) -> PartitionResponse:
    """Makes the response for a partition whose producers cannot be described, with the error and its message."""
    return PartitionResponse(partition_index=index, error_code=error, error_message=error.message)


def _describe(partition: Partition) -> Generator[int, None, list[ProducerState]]:
    """Describes the producers of a partition, in steps.

    The first step lists the producers. Each step reads the current state of the producers that it describes.
    """
    described: list[ProducerState] = []
    entries = list(partition.producers.entries.values())
    for first in range(0, len(entries), FEW_PRODUCERS):
        some = entries[first : first + FEW_PRODUCERS]
        described += describe(some)
        yield len(some)
    return described


def describe(entries: Iterable[ProducerEntry]) -> list[ProducerState]:
    """Describes producers of a partition."""
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in entries
    ]
