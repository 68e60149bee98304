"""DeleteGroups (API key 42), v0-2: deletes groups without members, with their offsets (KIP-229).

A share group is deleted after the share coordinator has deleted the states of its share partitions (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.group.apis.base import GroupApi
from kcore.group.offsets.records import tombstones_of_group
from kcore.group.share.chain import chain
from kcore.group.share.deletion import StateDeletion, begin_deletion, failures
from kcore.group.share.group import ShareGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import gather, gather_each

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


DELETION_COST = 40
"""The cost of deleting one group, in microseconds."""


class StatesDeleted(NamedTuple):
    """The input of the second decision about a share group, whose states are deleted.

    Attributes:
        groups_names: the group's id, as the only entry.
    """

    groups_names: tuple[str, ...]


class DeleteGroupsApi(GroupApi[DeleteGroupsRequest, DeleteGroupsResponse]):
    """Serves DeleteGroups to clients with DELETE on a group. Each group is deleted by its own shard, with its own
    error.

    Args:
        shards: the group shards.
        authorizer: checks permissions; None allows all.
        share: has the persister of share partitions; None if no share group has states.
    """

    key = ApiKey.DELETE_GROUPS
    request_type = DeleteGroupsRequest
    response_type = DeleteGroupsResponse
    versions = (0, 2)

    __slots__ = ("_share",)

    def __init__(
        self,
        shards: Shards[GroupShard],
        authorizer: Authorizer | None = None,
        share: ShareGroupServices | None = None,
    ) -> None:
        super().__init__(shards, authorizer)
        self._share = share

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
        result = self.ask(context, group_id, part, refusal)
        if isinstance(result, DeleteGroupsResponse):
            return result
        return chain(
            self,
            context,
            part,
            result,
            lambda deletion: self._delete_states(context, part, deletion),
            lambda deleted: self.ask(context, group_id, deleted, ErrorCode.NONE),
        )

    def _delete_states(self, context: RequestContext, part: DeleteGroupsRequest, deletion: StateDeletion) -> Any:
        """Asks the share coordinator to delete the states of a share group."""
        persister = None if self._share is None else self._share.persister
        assert persister is not None, "a served node has a persister"

        def build(results: list[Any]) -> Any:
            for code, _ in failures(results[0]).values():
                return self.error(context, part, ErrorCode(code))
            return StatesDeleted(tuple(part.groups_names))

        return gather(self, context, part, [persister.delete(deletion.request)], build)

    def decide(self, machine: GroupShard, context: RequestContext, request: DeleteGroupsRequest | StatesDeleted) -> Any:
        """Deletes the one group in `request`: first its offsets, then the group itself.

        If a share group has states, the first decision lists them as deleting, and the second one deletes the group.
        """
        (group_id,) = request.groups_names
        group = machine.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
        if group is None or code is not ErrorCode.NONE:
            return self.error(context, request, code)
        if isinstance(group, ShareGroup) and not isinstance(request, StatesDeleted):
            deletion = begin_deletion(group)
            if deletion is not None:
                return deletion
        return Outcome(
            [*tombstones_of_group(machine.offsets, group_id), *group.tombstones()],
            self.error(context, request, ErrorCode.NONE),
        )

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DeleteGroupsResponse:
        """Returns a response with the code for every group."""
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
        )


def _merged(parts: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for part in parts for result in part.results])
