"""AlterPartitionReassignments (key 45, versions 0-1): accepts only the current replicas (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.broker.metadata.topic_creation import TopicCreation
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard


class AlterPartitionReassignmentsApi(
    ControlApi[AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse]
):
    """Handler of AlterPartitionReassignments requests. It accepts only the current replicas of a partition, so that no
    replica ever moves.

    Args:
        shard: the metadata shard.
        creation: checks that the requested replicas are valid.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_creation",)

    key: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    request_type: ClassVar[type] = AlterPartitionReassignmentsRequest
    response_type: ClassVar[type] = AlterPartitionReassignmentsResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def __init__(
        self, shard: Shard[MetadataMachine], creation: TopicCreation, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, authorizer)
        self._creation = creation

    def decide(
        self, machine: MetadataMachine, context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Returns the result of each partition: success only if the request names the current replicas."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.timeout_ms <= 0 and request.topics:
            # As Kafka's controller, if it processes the request after the deadline
            return _failed(request, ErrorCode.REQUEST_TIMED_OUT, None)
        responses = [
            ReassignableTopicResponse(
                name=topic.name, partitions=[self._result(machine, topic.name, entry) for entry in topic.partitions]
            )
            for topic in request.topics
        ]
        return AlterPartitionReassignmentsResponse(
            # Kafka's response to a request without topics has the default.
            allow_replication_factor_change=request.allow_replication_factor_change or not responses,
            error_message=None if responses else "",
            responses=responses,
        )

    def _result(
        self, machine: MetadataMachine, topic: str, entry: ReassignablePartition
    ) -> ReassignablePartitionResponse:
        code, message = ErrorCode.NONE, None
        info = machine.image.by_name(topic)
        if info is None or not 0 <= entry.partition_index < info.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            message = code.message
        elif entry.replicas is None:
            code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # Kafka sends no text with this code
        else:
            try:
                self._creation.checked_replicas(entry.replicas, None)
            except KafkaError as error:
                code, message = error.code, text(error.code, error.message)
        return ReassignablePartitionResponse(
            partition_index=entry.partition_index, error_code=code, error_message=message
        )

    def error(
        self,
        context: RequestContext,
        request: AlterPartitionReassignmentsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> AlterPartitionReassignmentsResponse:
        """Makes a response with the error code and its text for the whole request and for each partition."""
        code = client_code(code)
        response = _failed(request, code, message or code.message)
        response.allow_replication_factor_change = True  # the field's default, as in Kafka
        return response


def _failed(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str | None
) -> AlterPartitionReassignmentsResponse:
    """Makes a response in which the whole request and each partition have the error code and the text."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=entry.partition_index, error_code=code, error_message=message
                    )
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
