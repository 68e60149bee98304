"""DeleteTopics (key 20, versions 1-6): deletes by name, and from v6 on also by id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.broker.metadata.names import is_internal
from kcore.broker.metadata.records import removal_records
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kcore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kcore.broker.data.client_quotas import ClientQuotas, Mutations
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.topics import TopicInfo

STRICT_QUOTA_SINCE = 5
"""The first version whose clients understand THROTTLING_QUOTA_EXCEEDED."""
PARTITIONS_PER_ITEM = 40
"""Number of partitions whose deletion costs as much as one item of a request. A topic itself counts as one item.

The removal of a partition takes about 2.5 microseconds.
"""


class DeleteTopicsApi(ControlApi[DeleteTopicsRequest, DeleteTopicsResponse]):
    """Handler of DeleteTopics requests. A new topic can use the name of a deleted topic immediately, but not its id.

    Args:
        shard: the metadata shard.
        config: the node's settings.
        authorizer: decides about each operation; None allows all.
        quotas: limits the partitions that a client deletes; None: there are no quotas.
    """

    __slots__ = ("_config",)

    key: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS
    request_type: ClassVar[type] = DeleteTopicsRequest
    response_type: ClassVar[type] = DeleteTopicsResponse
    versions: ClassVar[tuple[int, int]] = (1, 6)
    differs: ClassVar[str] = (
        "Internal topics are refused with INVALID_TOPIC_EXCEPTION; Kafka deletes them, and with them "
        "all groups and transactions."
    )

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        config: Config,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        super().__init__(shard, authorizer, quotas=quotas)
        self._config = config

    def handle(self, context: RequestContext, request: DeleteTopicsRequest) -> Any:
        """Handles the request, in parts if it names many topics."""
        items: list[Any] = [*request.topic_names, *request.topics]

        def part(some: list[Any]) -> DeleteTopicsRequest:
            return DeleteTopicsRequest(
                topic_names=[item for item in some if isinstance(item, str)],
                topics=[item for item in some if not isinstance(item, str)],
                timeout_ms=request.timeout_ms,
            )

        return self.in_parts(context, request, items, part, _merged, key=self._topic_of, weight=self._weight)

    def _weight(self, item: Any) -> int:
        """Returns the number of items that a topic counts for: one, or more if the topic has many partitions."""
        image = self.shard.machine.image
        name = item if isinstance(item, str) else item.name
        topic = image.by_id(item.topic_id) if name is None else image.by_name(name)
        return 1 if topic is None else 1 + topic.partitions // PARTITIONS_PER_ITEM

    def _topic_of(self, item: Any) -> str | bytes:
        """Returns the name of an item's topic, even if the item has only the topic id. Returns the id if it is
        unknown.
        """
        if isinstance(item, str):
            return item
        if item.name is not None:
            return str(item.name)
        topic = self.shard.machine.image.by_id(item.topic_id)
        return bytes(item.topic_id) if topic is None else topic.name

    def decide(self, machine: MetadataMachine, context: RequestContext, request: DeleteTopicsRequest) -> Any:
        """Checks each topic, and deletes the topics that pass the checks."""
        if not self._config.delete_topic_enable:
            disabled = ErrorCode.INVALID_REQUEST if context.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            return self.error(context, request, disabled)
        named = _named_topics(request)
        results = list(named.refused)
        deleted: dict[bytes, TopicInfo] = {}
        duplicates = _duplicates(named.ids)
        for topic_id, count in Counter(named.ids).items():
            results += self._by_id(machine, context, topic_id, count, deleted)
        for name, count in Counter(named.names).items():
            if count > 1:
                message = "the name is in the request more than once"
                results.append(_result(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, message))
            else:
                results += self._by_name(machine, context, name, deleted, duplicates)
        mutations = self.mutations(context, STRICT_QUOTA_SINCE)
        if mutations is not None:
            results += _within_quota(mutations, deleted)
        results += [_result(topic.name, topic_id, ErrorCode.NONE) for topic_id, topic in deleted.items()]
        response = self.throttled(context, mutations, DeleteTopicsResponse(responses=results))
        return machine.outcome(removal_records(deleted), response)

    def _by_id(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        topic_id: bytes,
        count: int,
        deleted: dict[bytes, TopicInfo],
    ) -> list[DeletableTopicResult]:
        """Adds a topic to `deleted`; if it cannot be deleted, returns its result with the error.

        `count` is the number of occurrences of the id in the request.
        """
        if count > 1:
            return [_result(None, topic_id, ErrorCode.INVALID_REQUEST, "the id is in the request more than once")]
        topic = machine.image.by_id(topic_id)
        if topic is None:
            return [_result(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)]
        refused = self._refusal(context, topic.name)
        if refused is not None:
            visible_name = topic.name if self._described(context, topic.name) else None
            return [_result(visible_name, topic_id, refused)]
        deleted[topic_id] = topic
        return []

    def _by_name(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        name: str,
        deleted: dict[bytes, TopicInfo],
        duplicates: set[bytes],
    ) -> list[DeletableTopicResult]:
        """Adds a topic to `deleted`; if it cannot be deleted, returns its result with the error."""
        topic = machine.image.by_name(name)
        if not self._described(context, name):
            return [_result(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        if topic is None:
            return [_result(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        refused = self._refusal(context, name)
        if refused is not None:
            return [_result(name, ZERO_UUID, refused)]
        if topic.topic_id in deleted or topic.topic_id in duplicates:
            deleted.pop(topic.topic_id, None)
            return [
                _result(name, topic.topic_id, ErrorCode.INVALID_REQUEST, "the topic is in the request by its id, too")
            ]
        deleted[topic.topic_id] = topic
        return []

    def _refusal(self, context: RequestContext, name: str) -> ErrorCode | None:
        if not self.allowed(context, Operation.DELETE, ResourceType.CLUSTER) and not self.allowed(
            context, Operation.DELETE, ResourceType.TOPIC, name
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.INVALID_TOPIC_EXCEPTION if is_internal(name) else None

    def _described(self, context: RequestContext, name: str) -> bool:
        return self.allowed(context, Operation.DELETE, ResourceType.CLUSTER) or self.allowed(
            context, Operation.DESCRIBE, ResourceType.TOPIC, name
        )

    def error(
        self, context: RequestContext, request: DeleteTopicsRequest, code: ErrorCode, message: str | None = None
    ) -> DeleteTopicsResponse:
        """Makes a response with the same error code for each topic."""
        requested = [(name, ZERO_UUID) for name in request.topic_names]
        requested += [(state.name, state.topic_id) for state in request.topics]  # type: ignore[misc]
        return DeleteTopicsResponse(
            responses=[
                _result(name, topic_id, client_code(code), message) for name, topic_id in dict.fromkeys(requested)
            ]
        )


def _merged(parts: list[DeleteTopicsResponse]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[result for part in parts for result in part.responses],
        throttle_time_ms=max(part.throttle_time_ms for part in parts),
    )


def _within_quota(mutations: Mutations, deleted: dict[bytes, TopicInfo]) -> list[DeletableTopicResult]:
    """Removes topics from `deleted` if the client's quota does not allow their deletion. Returns the results of these
    topics.
    """
    results = []
    for topic_id, topic in list(deleted.items()):
        try:
            mutations.record(topic.partitions)
        except KafkaError as error:
            del deleted[topic_id]
            results.append(_result(topic.name, topic_id, error.code))
    return results


class NamedTopics(NamedTuple):
    """The topics of a request.

    Attributes:
        names: the topics that are named by name, with repetitions.
        ids: the topics that are named by id, with repetitions.
        refused: the results of entries with both a name and an id, or with neither.
    """

    names: list[str]
    ids: list[bytes]
    refused: list[DeletableTopicResult]


def _named_topics(request: DeleteTopicsRequest) -> NamedTopics:
    named = NamedTopics(list(request.topic_names), [], [])
    for state in request.topics:
        if state.name is None and state.topic_id == ZERO_UUID:
            message = "the request names a topic by neither its name nor its id"
            named.refused.append(_result(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, message))
        elif state.name is None:
            named.ids.append(state.topic_id)
        elif state.topic_id == ZERO_UUID:
            named.names.append(state.name)
        else:
            message = "the request names a topic by its name and its id; only one is allowed"
            named.refused.append(_result(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, message))
    return named


def _duplicates(ids: list[bytes]) -> set[bytes]:
    return {topic_id for topic_id, count in Counter(ids).items() if count > 1}


def _result(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=text(code, message))
