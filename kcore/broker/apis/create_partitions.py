"""CreatePartitions (key 37, versions 0-3): adds partitions to topics (KIP-195)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.broker.data.client_quotas import record_mutations
from kcore.broker.metadata.names import is_internal
from kcore.broker.metadata.partition_range import new_partitions, record_count
from kcore.broker.metadata.topic_creation import MAX_PARTITIONS_PER_REQUEST
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.client_quotas import ClientQuotas, Mutations
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.partition_range import MetadataItem
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.protocol.authorizer import Authorizer
    from kcore.protocol.messages.create_partitions import CreatePartitionsTopic
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

STRICT_QUOTA_SINCE = 3
"""The first version whose clients understand THROTTLING_QUOTA_EXCEEDED."""


class CreatePartitionsApi(ControlApi[CreatePartitionsRequest, CreatePartitionsResponse]):
    """Handler of CreatePartitions requests. A topic keeps its id.

    Args:
        shard: the metadata shard.
        creation: assigns partitions to nodes.
        authorizer: decides about each operation; None allows all.
        opening: returns true while the node opens logs of new partitions. The response to a request that is decided in
            parts waits until these logs are open. None: the response does not wait.
        quotas: limits the partitions that a client creates; None: there are no quotas.
    """

    __slots__ = ("_creation",)

    key: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS
    request_type: ClassVar[type] = CreatePartitionsRequest
    response_type: ClassVar[type] = CreatePartitionsResponse
    versions: ClassVar[tuple[int, int]] = (0, 3)
    differs: ClassVar[str] = (
        "Internal topics are refused with INVALID_PARTITIONS: their number of partitions determines the "
        "partition of each group. Kafka's tools refuse the change, too, but Kafka's servers accept it."
    )

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        creation: TopicCreation,
        authorizer: Authorizer | None = None,
        opening: Callable[[], object] | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        super().__init__(shard, authorizer, opening, quotas)
        self._creation = creation

    def handle(self, context: RequestContext, request: CreatePartitionsRequest) -> Any:
        """Handles the request, in parts if it names many topics or adds many partitions.

        A request above the limit of partitions per request is not divided: one decision then applies the limit to all
        its topics together.
        """
        by_name = self.shard.machine.image.by_name

        def added(requested: CreatePartitionsTopic) -> int:
            topic = by_name(requested.name)
            return 0 if topic is None else max(0, requested.count - topic.partitions)

        if sum(map(added, request.topics)) > MAX_PARTITIONS_PER_REQUEST:
            return self.shard.run(self, context, request)

        def part(topics: list[CreatePartitionsTopic]) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
            )

        return self.in_parts(
            context,
            request,
            request.topics,
            part,
            _merged,
            key=lambda topic: topic.name,
            weight=lambda topic: max(1, added(topic)),
        )

    def decide(self, machine: MetadataMachine, context: RequestContext, request: CreatePartitionsRequest) -> Any:
        """Checks each topic, and adds partitions to the topics that pass the checks."""
        counts = Counter(topic.name for topic in request.topics)
        results: dict[str, CreatePartitionsTopicResult] = {}
        records: list[MetadataItem] = []
        mutations = self.mutations(context, STRICT_QUOTA_SINCE)
        for topic in request.topics:
            if topic.name in results:
                continue
            try:
                if counts[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is in the request more than once")
                room = MAX_PARTITIONS_PER_REQUEST - record_count(records)
                added = self._added(machine, context, topic, room, mutations)
            except KafkaError as error:
                # Kafka sends no text for an unknown topic.
                unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                message = None if unknown else text(error.code, error.message)
                results[topic.name] = CreatePartitionsTopicResult(
                    name=topic.name, error_code=error.code, error_message=message
                )
                continue
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
            if not request.validate_only:
                records += added
        response = CreatePartitionsResponse(results=list(results.values()))
        return machine.outcome(records, self.throttled(context, mutations, response))

    def _added(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        requested: CreatePartitionsTopic,
        room: int,
        mutations: Mutations | None,
    ) -> list[MetadataItem]:
        """Returns the records of new partitions."""
        if not self.allowed(context, Operation.ALTER, ResourceType.TOPIC, requested.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = machine.image.by_name(requested.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_internal(topic.name):
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the number of partitions of {topic.name} is fixed")
        added = requested.count - topic.partitions
        if added <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic has {topic.partitions} partitions already, and {requested.count} were requested",
            )
        if added > room:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"one request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions"
            )
        factor = len(machine.image.replicas[topic.topic_id][0])
        if requested.assignments is not None and len(requested.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"the request adds {added} partitions and has {len(requested.assignments)} assignments",
            )
        record_mutations(mutations, added)
        if requested.assignments is None:
            assignments = self._creation.placed(topic.partitions, added, factor)
        else:
            assignments = [self._creation.checked_replicas(a.broker_ids, factor) for a in requested.assignments]
        return new_partitions(topic.topic_id, topic.partitions, assignments)

    def error(
        self, context: RequestContext, request: CreatePartitionsRequest, code: ErrorCode, message: str | None = None
    ) -> CreatePartitionsResponse:
        """Makes a response with the same error code for each topic."""
        code = client_code(code)
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=name, error_code=code, error_message=text(code, message))
                for name in names
            ]
        )


def _merged(parts: list[CreatePartitionsResponse]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[result for part in parts for result in part.results],
        throttle_time_ms=max(part.throttle_time_ms for part in parts),
    )
