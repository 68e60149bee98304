"""DeleteGroups (API key 42), v0-2: deletes groups without members, with their offsets (KIP-229).

A group may have more offsets than one decision can remove. Then several decisions remove its offsets, and the last
decision also removes the group. After a crash between two decisions, the group still exists with its remaining offsets.

A share group is deleted after the share coordinator has deleted the states of its share partitions (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kcore.group.apis.base import GroupApi
from kcore.group.offsets.records import tombstones_of_group
from kcore.group.share.chain import chain
from kcore.group.share.deletion import StateDeletion, begin_deletion, emptied_lists, failures
from kcore.group.share.group import ShareGroup
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import FEW_NAMES, gather
from kcore.runtime.sliced import step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.group.shard import GroupShard
    from kcore.group.share.services import ShareGroupServices
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record
    from kcore.runtime.shards import Shards
    from kcore.runtime.sliced import Work


DELETION_COST_US: Final = 40
"""The cost of deleting one group, in microseconds."""
OFFSET_COST_US: Final = 2
"""The cost of deleting one offset of a group, in microseconds."""


class Deletion:
    """One decision of a group's deletion. The last decision deletes the group; earlier decisions only delete offsets.

    Attributes:
        groups_names: the group's id, as the only entry.
        count: number of offsets that the decision removed. The decision sets this attribute.
        ends: whether this was the last decision. The decision sets this attribute.
    """

    __slots__ = ("count", "ends", "groups_names")

    def __init__(self, group_id: str) -> None:
        self.groups_names = (group_id,)
        self.count = 0
        self.ends = True


class StatesDeleted(NamedTuple):
    """The input of the second decision of a share group's deletion.

    The share coordinator has deleted the group's share-partition states before this decision.

    Attributes:
        groups_names: the group's id, as the only entry.
    """

    groups_names: tuple[str, ...]


class DeleteGroupsApi(GroupApi[DeleteGroupsRequest, DeleteGroupsResponse]):
    """Handler of DeleteGroups requests, which need DELETE on a group. Each group is deleted by its own shard, with its
    own error.

    Args:
        shards: the group shards.
        authorizer: checks permissions; None allows all.
        share: provides the persister, which deletes share-partition states; None if there are no such states.
    """

    key = ApiKey.DELETE_GROUPS
    request_type = DeleteGroupsRequest
    response_type = DeleteGroupsResponse
    versions = (0, 2)
    differs: ClassVar[str] = (
        "If the offsets of a group do not fit into one batch of tombstones, several batches delete the group. After a "
        "crash between them, the group still exists, with the remaining offsets."
    )

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
        """Runs the request in the shard of each group; a group that the request names twice is deleted once."""
        names = tuple(dict.fromkeys(request.groups_names))

        def join(parts: list[Any]) -> Any:
            return gather(self, context, request, parts, _merged)

        work, slices = self._parts(context, names), self._shards.slices
        if slices is None:
            return join(step(work, -1)[1])
        return slices.requests.run(self, context, request, work, join, eager=len(names) <= FEW_NAMES)

    def _parts(self, context: RequestContext, names: Iterable[str]) -> Work:
        """Deletes the groups one after the other; returns the response to the deletion of each group."""
        parts = []
        for group_id in names:
            refusal = self.refusal(context, Operation.DELETE, group_id, may_be_empty=True)
            while True:
                deletion = Deletion(group_id)
                part = self._part(context, deletion, refusal)
                yield DELETION_COST_US + OFFSET_COST_US * deletion.count
                if deletion.ends:
                    break
            parts.append(part)
        return parts

    def _part(self, context: RequestContext, part: Deletion, refusal: ErrorCode) -> Any:
        result = self.run_part(context, part.groups_names[0], part, refusal)  # type: ignore[arg-type]
        if isinstance(result, DeleteGroupsResponse):
            part.ends = part.ends or bool(result.results[0].error_code)
            return result
        return chain(
            self,
            context,
            part,
            result,
            lambda deletion: self._delete_states(context, part, deletion),
            lambda deleted: self.run_part(context, part.groups_names[0], deleted, ErrorCode.NONE),
        )

    def _delete_states(self, context: RequestContext, part: Deletion, deletion: StateDeletion) -> Any:
        """Sends the share coordinator a request to delete the states of a share group.

        Returns a `StatesDeleted` or the error response, or a `Pending` for one of these.
        """
        persister = None if self._share is None else self._share.persister
        assert persister is not None, "a served node has a persister"

        def build(results: list[Any]) -> Any:
            for code, _ in failures(results[0]).values():
                return self.error(context, part, ErrorCode(code))
            return StatesDeleted(part.groups_names)

        return gather(self, context, part, [persister.delete(deletion.request)], build)

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: Deletion | StatesDeleted
    ) -> Any:
        """Deletes the group that `request` names: first its offsets, then the group itself.

        If a share group has share-partition states, the first decision records that they are being deleted, and the
        second decision deletes the group.
        """
        (group_id,) = request.groups_names
        group = machine.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
        if group is None or code is not ErrorCode.NONE:
            return self.error(context, request, code)
        first: list[Record] = []
        if isinstance(group, ShareGroup) and isinstance(request, Deletion):
            deletion = begin_deletion(group)
            if deletion is not None:
                return deletion
            first = emptied_lists(group)
        response = self.error(context, request, ErrorCode.NONE)
        records, ends = tombstones_of_group(machine.offsets, group_id, machine.max_record_bytes // 2)
        records = [*first, *records]
        if isinstance(request, Deletion):
            request.count, request.ends = len(records), ends
        return Outcome([*records, *group.tombstones()] if ends else records, response)

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> DeleteGroupsResponse:
        """Returns a response with the code for every group."""
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
        )


def _merged(parts: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for part in parts for result in part.results])
