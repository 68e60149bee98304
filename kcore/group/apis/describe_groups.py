"""DescribeGroups (API key 15), v0-6: state, protocol and members of classic groups.

v3 can request authorized operations (KIP-430), v4 returns instance ids (KIP-345), v6 returns an error for a missing
group instead of the state Dead (KIP-1043). This API treats groups of other kinds as missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.group.apis.base import GroupApi
from kcore.group.classic.describe import describe
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import GroupState
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext

NOT_FOUND_SINCE: Final = 6


class DescribeGroupsApi(GroupApi[DescribeGroupsRequest, DescribeGroupsResponse]):
    """Handler of DescribeGroups requests, which need DESCRIBE on a group. Each group is described by its own shard."""

    key = ApiKey.DESCRIBE_GROUPS
    request_type = DescribeGroupsRequest
    response_type = DescribeGroupsResponse
    versions = (0, 6)

    __slots__ = ()

    def handle(self, context: RequestContext, request: DescribeGroupsRequest) -> Any:
        """Runs the request in the shard of each group; the response preserves request order."""
        return gather_each(
            self,
            context,
            request,
            request.groups,
            lambda group_id: self._part(context, group_id, request),
            _merged,
            self._shards.slices,
            self.cost_of_description,
        )

    def _part(self, context: RequestContext, group_id: str, request: DescribeGroupsRequest) -> Any:
        part = DescribeGroupsRequest(
            groups=(group_id,), include_authorized_operations=request.include_authorized_operations
        )
        refusal = self.refusal(context, Operation.DESCRIBE, group_id, may_be_empty=True)
        return self.run_part(context, group_id, part, refusal)

    def decide(
        self, machine: GroupShard, context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        """Describes the group that `request` names."""
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
        """Returns a response with the code for every group, without a state."""
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
        )


def _merged(parts: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[group for part in parts for group in part.groups])
