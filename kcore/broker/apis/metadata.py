"""Metadata (key 3, versions 0-13): nodes and topics; ids since v10 (KIP-516), lookup by id since v12."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kcore.broker.apis.control import ITEMS_PER_STEP, SHARD_REFUSALS, ControlApi
from kcore.broker.data.client_quotas import record_mutations
from kcore.broker.metadata.names import is_internal, name_fault
from kcore.broker.metadata.partition_range import FEW_PARTITIONS, MetadataItem, record_count
from kcore.broker.metadata.topic_creation import MAX_PARTITIONS_PER_REQUEST
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import (
    OPERATIONS_NOT_REQUESTED,
    Operation,
    ResourceType,
    authorized_operations,
    cluster_operations,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kcore.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.config.node import Config
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.cluster import ClusterView
    from kcore.runtime.shard import Shard
    from kcore.runtime.topics import TopicInfo


TOPIC_COST_US = 30
"""The cost of one topic of a few partitions, in microseconds."""


CREATION_COST_US = 130
"""The cost of creating one topic, in microseconds."""

PARTITIONS_A_TOPIC = 10
"""Number of partitions whose description costs as much as one topic."""


class AllTopics(NamedTuple):
    """One part of a request for all topics.

    Attributes:
        topics: some of the topics that existed when the request arrived.
        whole: the whole request.
    """

    topics: list[TopicInfo]
    whole: MetadataRequest


class WithoutCreation(NamedTuple):
    """A part of a request that creates no topics, because earlier parts have reached the maximum number of new
    partitions.
    """

    request: MetadataRequest


class MetadataApi(ControlApi[MetadataRequest, MetadataResponse]):
    """Handler of Metadata requests. It creates missing topics if the request and the settings allow it.

    As in Kafka, the response to a request that creates a topic has UNKNOWN_TOPIC_OR_PARTITION for this topic, and the
    client sends the request again. So a client that deletes a topic and looks it up gets an error, although the look-up
    creates a new topic.

    Args:
        shard: the metadata shard.
        cluster: nodes, addresses and leaders.
        config: the node's settings.
        creation: plans topics that are created on demand.
        authorizer: decides about each operation; None allows all.
        quotas: limits the partitions that a client creates; None: there are no quotas.
    """

    __slots__ = ("_cluster", "_config", "_creation")

    key: ClassVar[ApiKey] = ApiKey.METADATA
    request_type: ClassVar[type] = MetadataRequest
    response_type: ClassVar[type] = MetadataResponse
    versions: ClassVar[tuple[int, int]] = (0, 13)
    storage_error: ClassVar[ErrorCode] = ErrorCode.LEADER_NOT_AVAILABLE

    def __init__(
        self,
        shard: Shard[MetadataMachine],
        cluster: ClusterView,
        config: Config,
        creation: TopicCreation,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
    ) -> None:
        super().__init__(shard, authorizer, quotas=quotas)
        self._cluster = cluster
        self._config = config
        self._creation = creation

    def handle(self, context: RequestContext, request: MetadataRequest) -> Any:
        """Looks up the topics, in parts if there are many."""
        requested, image = request.topics, self.shard.machine.image
        version = context.api_version
        if requested is None or (version == 0 and not requested):
            if len(image.names) <= ITEMS_PER_STEP:
                return self.shard.run(self, context, request)
            return self.in_parts(
                context,
                request,
                list(image.all()),
                lambda some: AllTopics(some, request),  # type: ignore[arg-type, return-value]
                _merged,
                weight=lambda topic: 1 + topic.partitions // PARTITIONS_A_TOPIC,
                cost=TOPIC_COST_US,
            )
        if len(requested) <= ITEMS_PER_STEP or any(topic.topic_id != ZERO_UUID for topic in requested):
            return self.shard.run(self, context, request)
        may_create = self._config.auto_create_topics_enable and (version < 4 or request.allow_auto_topic_creation)
        names = tuple(dict.fromkeys(topic.name for topic in requested))
        # A request creates at most as many topics as one decision may create: the first of the missing ones.
        left = MAX_PARTITIONS_PER_REQUEST if may_create else 0

        def part(some: list[Any]) -> MetadataRequest | WithoutCreation:
            nonlocal left
            left, creates = left - self._new_records(some), left > 0
            made = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in some],
                allow_auto_topic_creation=request.allow_auto_topic_creation,
                include_cluster_authorized_operations=request.include_cluster_authorized_operations,
                include_topic_authorized_operations=request.include_topic_authorized_operations,
            )
            return made if creates else WithoutCreation(made)

        return self.in_parts(
            context,
            request,
            names,
            part,  # type: ignore[arg-type]
            _merged,
            cost=CREATION_COST_US if may_create else TOPIC_COST_US,
        )

    def _new_records(self, names: list[Any]) -> int:
        """Returns the approximate number of records that the creation of the missing topics would write."""
        image = self.shard.machine.image
        return (1 + self._config.num_partitions) * sum(image.by_name(name or "") is None for name in names)

    def decide(
        self, machine: MetadataMachine, context: RequestContext, request: MetadataRequest | AllTopics | WithoutCreation
    ) -> Any:
        """Looks up the requested topics. Only a request that names topics can create missing topics."""
        some: list[TopicInfo] | None = None
        without_creation = isinstance(request, WithoutCreation)
        if isinstance(request, AllTopics):
            some, request = request
        elif isinstance(request, WithoutCreation):
            request = request.request
        version = context.api_version
        requested = request.topics
        records: list[MetadataItem] = []
        if requested is None or (version == 0 and not requested):
            topics = self._all(machine, context, request, some)
        elif 10 <= version < 12 and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in requested):
            return self.error(context, request, ErrorCode.INVALID_REQUEST)
        elif any(topic.topic_id != ZERO_UUID for topic in requested):
            topic_ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
            topics = [self._by_id(machine, context, request, topic_id) for topic_id in topic_ids]
        else:
            may_create = (
                self._config.auto_create_topics_enable
                and (version < 4 or request.allow_auto_topic_creation)
                and not without_creation
            )
            topics = []
            for name in dict.fromkeys(topic.name or "" for topic in requested):
                topics.append(self._by_name(machine, context, request, name, records if may_create else None))
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
                for b in self._cluster.brokers(context.listener)
            ],
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller_id,
            topics=topics,
        )
        if 8 <= version <= 10 and request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(self.authorizer, context)
        return machine.outcome(records, response) if records else response

    # ---- topics

    def _all(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        request: MetadataRequest,
        some: list[TopicInfo] | None,
    ) -> list[MetadataResponseTopic]:
        """Describes the topics that the client may see: all topics, or the topics of `some` that still exist."""
        authorizer, image = self.authorizer, machine.image
        topics = image.all() if some is None else [topic for topic in some if image.by_id(topic.topic_id) is not None]
        return [
            self._topic(machine, context, request, topic)
            for topic in topics
            if authorizer is None or authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]

    def _by_id(
        self, machine: MetadataMachine, context: RequestContext, request: MetadataRequest, topic_id: bytes
    ) -> MetadataResponseTopic:
        topic = machine.image.by_id(topic_id)
        if topic is None:
            return _failure(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if not self.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            # The response hides the name of a topic that the client may not see.
            return _failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return self._topic(machine, context, request, topic)

    def _by_name(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        request: MetadataRequest,
        name: str,
        records: list[MetadataItem] | None,
    ) -> MetadataResponseTopic:
        """Describes one topic by name. If the topic is missing and `records` is not None, adds the records that create
        the topic to `records`.

        Only the controller creates topics. But every node returns an error to a client without the permission to create
        the topic.
        """
        if not self.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            return _failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        topic = machine.image.by_name(name)
        if topic is not None:
            return self._topic(machine, context, request, topic)
        if name_fault(name) is not None:
            failure = _failure(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        elif records is None or self._is_full(records):
            failure = _failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        elif not self.allowed(context, Operation.CREATE, ResourceType.CLUSTER) and not self.allowed(
            context, Operation.CREATE, ResourceType.TOPIC, name
        ):
            failure = _failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        else:
            # Kafka creates topics in the background, so its response is that the topic is unknown.
            failure = _failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            if machine.leads():  # another node of a cluster has the controller create the topic
                with contextlib.suppress(KafkaError):
                    new = self._creation.automatic(machine.image, name)
                    record_mutations(self.mutations(context, 0), len(new.assignments))
                    records += new.records()
        self._add_operations(context, request, failure)
        return failure

    def _topic(
        self, machine: MetadataMachine, context: RequestContext, request: MetadataRequest, topic: TopicInfo
    ) -> MetadataResponseTopic:
        described = self._described(topic.name, topic.topic_id, machine.image.replicas[topic.topic_id])
        if request.include_topic_authorized_operations:
            self._add_operations(context, request, described)
        return described

    def _is_full(self, records: list[MetadataItem]) -> bool:
        """Returns True if a decision has reached the maximum number of new partitions."""
        counted = record_count(records) if self._config.num_partitions > FEW_PARTITIONS else len(records)
        return counted >= MAX_PARTITIONS_PER_REQUEST

    def _described(self, name: str, topic_id: bytes, assignments: Iterable[tuple[int, ...]]) -> MetadataResponseTopic:
        partitions = []
        leader_of = self._cluster.leader
        for index, replicas in enumerate(assignments):
            leader = leader_of(name, index)
            partitions.append(
                MetadataResponsePartition(
                    error_code=ErrorCode.NONE if leader is not None else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=-1 if leader is None else leader.node_id,
                    leader_epoch=-1 if leader is None else leader.epoch,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
            )
        return MetadataResponseTopic(name=name, topic_id=topic_id, is_internal=is_internal(name), partitions=partitions)

    def _add_operations(self, context: RequestContext, request: MetadataRequest, topic: MetadataResponseTopic) -> None:
        if request.include_topic_authorized_operations and context.api_version >= 8:
            topic.topic_authorized_operations = authorized_operations(
                self.authorizer, context, ResourceType.TOPIC, topic.name or ""
            )

    def error(
        self,
        context: RequestContext,
        request: MetadataRequest | AllTopics | WithoutCreation,
        code: ErrorCode,
        message: str | None = None,
    ) -> MetadataResponse:
        """Makes a response with the same error code for each requested topic, and without nodes."""
        if isinstance(request, AllTopics):
            request = request.whole
        elif isinstance(request, WithoutCreation):
            request = request.request
        if code in SHARD_REFUSALS:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        old = context.api_version < 12  # versions before 12 have no null names
        topics = [
            _failure(code, topic.name or "" if old else topic.name, topic.topic_id) for topic in request.topics or ()
        ]
        return MetadataResponse(topics=topics)


def _merged(parts: list[MetadataResponse]) -> MetadataResponse:
    """Joins the topics of all parts, with the nodes of the last part."""
    last = parts[-1]
    return MetadataResponse(
        error_code=last.error_code,
        brokers=last.brokers,
        cluster_id=last.cluster_id,
        controller_id=last.controller_id,
        cluster_authorized_operations=last.cluster_authorized_operations,
        topics=[topic for part in parts for topic in part.topics],
    )


def _failure(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
        topic_authorized_operations=OPERATIONS_NOT_REQUESTED,
    )
