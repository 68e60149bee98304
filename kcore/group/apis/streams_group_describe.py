"""StreamsGroupDescribe (API key 89), v0: epochs, topology, members, their tasks and targets (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.errors import KafkaError
from kcore.group.apis.base import GroupApi
from kcore.group.streams.describe import describe
from kcore.group.streams.group import StreamsGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.streams.services import StreamsServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


class StreamsGroupDescribeApi(GroupApi[StreamsGroupDescribeRequest, StreamsGroupDescribeResponse]):
    """Serves StreamsGroupDescribe.

    The client needs DESCRIBE on a group and on all topics of its topology. Each group is described by its own shard,
    with its own error.

    Args:
        shards: the group shards.
        services: enables or disables the protocol.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.STREAMS_GROUP_DESCRIBE
    request_type = StreamsGroupDescribeRequest
    response_type = StreamsGroupDescribeResponse
    versions = (0, 0)

    __slots__ = ("_services",)

    def __init__(
        self, shards: Shards[GroupShard], services: StreamsServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services

    def handle(self, context: RequestContext, request: StreamsGroupDescribeRequest) -> Any:
        """Runs the request in the shard of each group; the response preserves duplicates."""
        if not self._services.enabled:
            return self.error(context, request, ErrorCode.UNSUPPORTED_VERSION)
        include_operations = request.include_authorized_operations
        return gather_each(
            self,
            context,
            request,
            request.group_ids,
            lambda group_id: self._part(context, group_id, include_operations),
            _merged,
            self._shards.slices,
        )

    def _part(self, context: RequestContext, group_id: str, include_operations: bool) -> Any:
        part = StreamsGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=include_operations)
        return self.ask(context, group_id, part, self.refusal(context, Operation.DESCRIBE, group_id))

    def decide(
        self, machine: GroupShard, context: RequestContext, request: StreamsGroupDescribeRequest
    ) -> StreamsGroupDescribeResponse:
        """Describes the one group in `request`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if it is not a streams group.
        """
        (group_id,) = request.group_ids
        group = machine.groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        described = describe(group)
        authorizer = self._authorizer
        topics = frozenset[str]() if group.topology is None else group.topology.required_topics
        if authorizer is not None and not all(
            authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in sorted(topics)
        ):
            return self.error(
                context,
                request,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the client may not DESCRIBE all topics of the group",
            )
        if request.include_authorized_operations:
            described.authorized_operations = authorized_operations(authorizer, context, ResourceType.GROUP, group_id)
        return StreamsGroupDescribeResponse(groups=[described])

    def error(
        self,
        context: RequestContext,
        request: StreamsGroupDescribeRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> StreamsGroupDescribeResponse:
        """Returns a response with the code for every group, without a state."""
        return StreamsGroupDescribeResponse(
            groups=[
                DescribedGroup(error_code=code, error_message=message, group_id=group_id)
                for group_id in request.group_ids
            ]
        )


def _merged(parts: list[StreamsGroupDescribeResponse]) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=[group for part in parts for group in part.groups])
