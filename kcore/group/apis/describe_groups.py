"""DescribeGroups (API key 15), v0-6: state, protocol and members of classic groups.

v3 may ask for authorized operations (KIP-430), v4 shows instance ids (KIP-345), v6 says that a group is not there
instead of calling it Dead (KIP-1043). Groups of other kinds are not there for this API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.errors import KafkaError
from kcore.group.apis.front import allowed
from kcore.group.classic.describe import describe
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import GroupState
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kcore.runtime.api import Api
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards

NOT_FOUND_SINCE: Final = 6


class DescribeGroupsApi(Api[DescribeGroupsRequest, DescribeGroupsResponse]):
    """Serves DescribeGroups: every group by its own shard, each with an answer of its own.

    Args:
        shards: the group shards.
        authorizer: who may describe groups; None allows all.
    """

    key = ApiKey.DESCRIBE_GROUPS
    request_type = DescribeGroupsRequest
    response_type = DescribeGroupsResponse
    versions = (0, 6)

    __slots__ = ("_authorizer", "_shards")

    def __init__(self, shards: Shards[GroupShard], authorizer: Authorizer | None = None) -> None:
        self._shards = shards
        self._authorizer = authorizer

    def handle(self, context: RequestContext, request: DescribeGroupsRequest) -> Any:
        """Asks each group's shard; the answers come in the order of the request."""
        parts = [self._part(context, group_id, request) for group_id in request.groups]
        return gather(self, context, request, parts, _merged)

    def _part(self, context: RequestContext, group_id: str, request: DescribeGroupsRequest) -> Any:
        asked = DescribeGroupsRequest(
            groups=(group_id,), include_authorized_operations=request.include_authorized_operations
        )
        if not allowed(self._authorizer, context, Operation.DESCRIBE, group_id):
            return self.error(context, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            return self._shards.of(group_id).run(self, context, asked)
        except KafkaError as error:
            return self.error(context, asked, error.code, error.message)

    def decide(
        self, machine: GroupShard, context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        """Describes the one group that is left in `request`."""
        (group_id,) = request.groups
        group = machine.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            described = describe(group)
        else:
            described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
            if context.api_version >= NOT_FOUND_SINCE:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = f"Group {group_id} not found."
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                self._authorizer, context, ResourceType.GROUP, group_id
            )
        return DescribeGroupsResponse(groups=[described])

    def error(
        self, context: RequestContext, request: DescribeGroupsRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeGroupsResponse:
        """The code for every group, without a state."""
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
        )


def _merged(parts: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[group for part in parts for group in part.groups])
