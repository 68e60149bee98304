"""ListPartitionReassignments (key 46, version 0): always empty, as partitions never move (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kcore.runtime.api import Api

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext


class ListPartitionReassignmentsApi(Api[ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse]):
    """Handler of ListPartitionReassignments requests. The list is always empty.

    Args:
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_authorizer",)

    key: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS
    request_type: ClassVar[type] = ListPartitionReassignmentsRequest
    response_type: ClassVar[type] = ListPartitionReassignmentsResponse
    versions: ClassVar[tuple[int, int]] = (0, 0)
    differs: ClassVar[str] = (
        "On a single node, the list is empty, because partitions never move. In a cluster, the list has the planned "
        "moves of leaders."
    )

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer

    def handle(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Responds with an empty list, for any request."""
        if self._authorizer is not None and not self._authorizer.allowed(
            context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ListPartitionReassignmentsResponse(error_message=None)

    def error(
        self,
        context: RequestContext,
        request: ListPartitionReassignmentsRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> ListPartitionReassignmentsResponse:
        """Makes a response with the error code, its text and, as in Kafka, the requested partitions."""
        return ListPartitionReassignmentsResponse(
            error_code=code,
            error_message=message or code.message,
            topics=[
                OngoingTopicReassignment(
                    name=topic.name,
                    partitions=[
                        OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics or ()
            ],
        )
