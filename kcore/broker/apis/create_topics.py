"""CreateTopics (key 19, versions 2-7): creates topics (KIP-4). Responses contain settings (KIP-525) and topic ids
(KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.broker.data.client_quotas import record_mutations
from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.broker.metadata.topic_creation import MAX_PARTITIONS_PER_REQUEST
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.configs.describe import SettingsView
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.partition_range import MetadataItem
    from kcore.broker.metadata.topic_creation import NewTopic, TopicCreation
    from kcore.protocol.authorizer import Authorizer
    from kcore.protocol.messages.create_topics import CreatableTopic
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

STRICT_QUOTA_SINCE = 6
"""The first version whose clients understand THROTTLING_QUOTA_EXCEEDED."""


class CreateTopicsApi(ControlApi[CreateTopicsRequest, CreateTopicsResponse]):
    """Handler of CreateTopics requests. One decision checks each topic separately.

    Args:
        shard: the metadata shard.
        creation: checks and plans topics.
        view: describes the settings of a new topic.
        authorizer: decides about each operation; None allows all.
        opening: returns true while the node opens logs of new partitions. The response to a request that is decided in
            parts waits until these logs are open. None: the response does not wait.
        quotas: limits the partitions that a client creates; None: there are no quotas.
    """

    __slots__ = ("_creation", "_view")

    key: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS
    request_type: ClassVar[type] = CreateTopicsRequest
    response_type: ClassVar[type] = CreateTopicsResponse
    versions: ClassVar[tuple[int, int]] = (2, 7)

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        creation: TopicCreation,
        view: SettingsView,
        authorizer: Authorizer | None = None,
        opening: Callable[[], object] | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        super().__init__(shard, authorizer, opening, quotas)
        self._creation = creation
        self._view = view

    def handle(self, context: RequestContext, request: CreateTopicsRequest) -> Any:
        """Handles the request, in parts if it names many topics."""
        names: Counter[str] = Counter(topic.name for topic in request.topics)
        requested = [topic for topic in request.topics if names[topic.name] == 1]
        if request.timeout_ms <= 0 or self._creation.total_partitions(requested) > MAX_PARTITIONS_PER_REQUEST:
            return self.shard.run(self, context, request)

        def part(topics: list[CreatableTopic]) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
            )

        def weight(topic: CreatableTopic) -> int:
            return max(1, self._creation.total_partitions([topic]))

        return self.in_parts(
            context, request, request.topics, part, _merged, key=lambda topic: topic.name, weight=weight
        )

    def decide(self, machine: MetadataMachine, context: RequestContext, request: CreateTopicsRequest) -> Any:
        """Checks each topic, and creates the topics that pass the checks."""
        if request.timeout_ms <= 0:
            # Kafka's controller times out a request whose deadline has passed when it is processed.
            return self.error(context, request, ErrorCode.REQUEST_TIMED_OUT)
        counts = Counter(topic.name for topic in request.topics)
        duplicates = {name: None for name, count in counts.items() if count > 1}
        requested = [topic for topic in request.topics if topic.name not in duplicates]
        if self._creation.total_partitions(requested) > MAX_PARTITIONS_PER_REQUEST:
            return self.error(
                context,
                request,
                ErrorCode.POLICY_VIOLATION,
                f"one request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions",
            )
        results: list[CreatableTopicResult] = []
        records: list[MetadataItem] = []
        mutations = self.mutations(context, STRICT_QUOTA_SINCE)
        for topic in requested:
            try:
                new = self._plan(machine, context, topic)
                record_mutations(mutations, len(new.assignments))
            except KafkaError as error:
                results.append(_failure(topic.name, error.code, error.message))
                continue
            results.append(self._success(context, new))
            if not request.validate_only:
                records += new.records()
        results += [
            _failure(name, ErrorCode.INVALID_REQUEST, f"{name} is in the request more than once") for name in duplicates
        ]
        return machine.outcome(records, self.throttled(context, mutations, CreateTopicsResponse(topics=results)))

    def _plan(self, machine: MetadataMachine, context: RequestContext, topic: CreatableTopic) -> NewTopic:
        if topic.name == CLUSTER_METADATA:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLUSTER_METADATA} is reserved for the cluster")
        if not self.allowed(context, Operation.CREATE, ResourceType.CLUSTER) and not self.allowed(
            context, Operation.CREATE, ResourceType.TOPIC, topic.name
        ):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self._creation.plan(machine.image, topic)

    def _success(self, context: RequestContext, new: NewTopic) -> CreatableTopicResult:
        result = CreatableTopicResult(name=new.name, topic_id=new.topic_id, error_message=None)
        if context.api_version < 5:
            return result
        if self.allowed(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, new.name):
            result.num_partitions = len(new.assignments)
            result.replication_factor = len(new.assignments[0])
            result.configs = self._view.new_topic(new.settings)
        else:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result

    def error(
        self, context: RequestContext, request: CreateTopicsRequest, code: ErrorCode, message: str | None = None
    ) -> CreateTopicsResponse:
        """Makes a response with the same error code for each topic."""
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreateTopicsResponse(topics=[_failure(name, client_code(code), message) for name in names])


def _merged(parts: list[CreateTopicsResponse]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[topic for part in parts for topic in part.topics],
        throttle_time_ms=max(part.throttle_time_ms for part in parts),
    )


def _failure(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text(code, message))
