"""ShareGroupDescribe (API key 77), v1: epochs, members and their assignments (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.apis.base import GroupApi
from kcore.group.consumer.heartbeat import not_found
from kcore.group.share.describe import describe, topics_of
from kcore.group.share.group import ShareGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


class ShareGroupDescribeApi(GroupApi[ShareGroupDescribeRequest, ShareGroupDescribeResponse]):
    """Serves ShareGroupDescribe.

    The client needs DESCRIBE on a group and on all topics in its assignments. Each group is described by its own shard,
    with its own error.

    Args:
        shards: the group shards.
        services: the switch of share groups.
        authorizer: checks permissions; None allows all.
    """

    key = ApiKey.SHARE_GROUP_DESCRIBE
    request_type = ShareGroupDescribeRequest
    response_type = ShareGroupDescribeResponse
    versions = (1, 1)

    __slots__ = ("_services",)

    def __init__(
        self, shards: Shards[GroupShard], services: ShareGroupServices, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shards, authorizer)
        self._services = services

    def handle(self, context: RequestContext, request: ShareGroupDescribeRequest) -> Any:
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
        part = ShareGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=include_operations)
        return self.ask(context, group_id, part, self.refusal(context, Operation.DESCRIBE, group_id))

    def decide(
        self, machine: GroupShard, context: RequestContext, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse:
        """Describes the one group in `request`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND if it is not a share group.
        """
        (group_id,) = request.group_ids
        group = machine.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise not_found(group_id)
        described = describe(group)
        authorizer = self._authorizer
        if authorizer is not None and not all(
            authorizer.allowed(context, Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics_of(described)
        ):
            return self.error(
                context,
                request,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "the client may not DESCRIBE all topics of the group",
            )
        if request.include_authorized_operations:
            described.authorized_operations = authorized_operations(authorizer, context, ResourceType.GROUP, group_id)
        return ShareGroupDescribeResponse(groups=[described])

    def error(
        self,
        context: RequestContext,
        request: ShareGroupDescribeRequest,
        code: ErrorCode,
        message: str | None = None,
    ) -> ShareGroupDescribeResponse:
        """Returns a response with the code for every group, without a state."""
        return ShareGroupDescribeResponse(
            groups=[
                DescribedGroup(error_code=code, error_message=message, group_id=group_id)
                for group_id in request.group_ids
            ]
        )


def _merged(parts: list[ShareGroupDescribeResponse]) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[group for part in parts for group in part.groups])
