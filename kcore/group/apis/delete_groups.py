"""DeleteGroups (API key 42), v0-2: deletes groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.apis.base import GroupApi
from kcore.group.offsets.records import tombstones_of_group
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import gather_each

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext


DELETION_COST = 40
"""The cost of deleting one group, in microseconds."""


class DeleteGroupsApi(GroupApi[DeleteGroupsRequest, DeleteGroupsResponse]):
    """Serves DeleteGroups to clients with DELETE on a group. Each group is deleted by its own shard, with its own
    error."""

    key = ApiKey.DELETE_GROUPS
    request_type = DeleteGroupsRequest
    response_type = DeleteGroupsResponse
    versions = (0, 2)

    __slots__ = ()

    def handle(self, context: RequestContext, request: DeleteGroupsRequest) -> Any:
        """Runs the request in the shard of each group, once for duplicates."""
        names = tuple(dict.fromkeys(request.groups_names))
        slices = self._shards.slices
        return gather_each(
            self,
            context,
            request,
            names,
            lambda group_id: self._part(context, group_id),
            _merged,
            slices,
            DELETION_COST,
        )

    def _part(self, context: RequestContext, group_id: str) -> Any:
        part = DeleteGroupsRequest(groups_names=(group_id,))
        refusal = self.refusal(context, Operation.DELETE, group_id, may_be_empty=True)
        return self.ask(context, group_id, part, refusal)

    def decide(self, machine: GroupShard, context: RequestContext, request: DeleteGroupsRequest) -> Any:
        """Deletes the one group in `request`: its offsets first, then itself."""
        (group_id,) = request.groups_names
        group = machine.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
        if group is None or code is not ErrorCode.NONE:
            return self.error(context, request, code)
        return Outcome(
            [*tombstones_of_group(machine.offsets, group_id), *group.tombstones()],
            self.error(context, request, ErrorCode.NONE),
        )

    def error(
        self, context: RequestContext, request: DeleteGroupsRequest, code: ErrorCode, message: str | None = None
    ) -> DeleteGroupsResponse:
        """Returns a response with the code for every group."""
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
        )


def _merged(parts: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for part in parts for result in part.results])
