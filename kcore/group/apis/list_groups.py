"""ListGroups (API key 16), v0-5: lists all groups of this node.

v4 filters by state (KIP-518), v5 by type of group (KIP-848). Clients send the request to every node, and merge the
responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.group.apis.base import GroupApi
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import CLUSTER_NAME, Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kcore.runtime.pending import gather

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work


GROUP_COST_US = 3
"""The cost of listing one group, in microseconds."""


class Selection(NamedTuple):
    """The filters of a request, in lower case; an empty filter passes all groups.

    Attributes:
        states: names of states.
        types: names of group types.
    """

    states: frozenset[str]
    types: frozenset[str]


class ListGroupsApi(GroupApi[ListGroupsRequest, ListGroupsResponse]):
    """Handler of ListGroups requests: lists all groups in this node's shards that the client may DESCRIBE."""

    key = ApiKey.LIST_GROUPS
    request_type = ListGroupsRequest
    response_type = ListGroupsResponse
    versions = (0, 5)

    __slots__ = ()

    def handle(self, context: RequestContext, request: ListGroupsRequest) -> Any:
        """Runs the request in every shard. If a shard is loading, the response is COORDINATOR_LOAD_IN_PROGRESS."""
        selection = Selection(
            frozenset(state.strip().lower() for state in request.states_filter),
            frozenset(group_type.strip().lower() for group_type in request.types_filter),
        )

        def work() -> Work:
            parts = []
            for shard in self._shards:
                parts.append(shard.run(self, context, selection))
                yield len(shard.machine.groups) * GROUP_COST_US
            return parts

        def join(parts: list[Any]) -> Any:
            return gather(self, context, request, parts, _merged)

        slices = self._shards.slices
        if slices is None:
            return join([])
        return slices.requests.run(self, context, request, work(), join)

    def decide(  # type: ignore[override]
        self, machine: GroupShard, context: RequestContext, request: Selection
    ) -> ListGroupsResponse:
        """Lists the groups of one shard that pass the filters and that the client may DESCRIBE."""
        states, types = request
        authorizer = self._authorizer
        sees_all = authorizer is None or authorizer.allowed(
            context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        )
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state_name(),
                    group_type=group.group_type.value,
                )
                for group in machine.groups.values()
                if (not states or group.state_filter_name() in states)
                and (not types or group.group_type.value in types)
                and (sees_all or self.allowed(context, Operation.DESCRIBE, group.group_id))
            ]
        )

    def error(
        self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None
    ) -> ListGroupsResponse:
        """Returns a response with the code, without groups."""
        return ListGroupsResponse(error_code=code)


def _merged(parts: list[ListGroupsResponse]) -> ListGroupsResponse:
    """Merges the shards' responses.

    Ignores NOT_COORDINATOR, because the shard moved to another node during the request.
    """
    for part in parts:
        if part.error_code and part.error_code != ErrorCode.NOT_COORDINATOR:
            return part
    return ListGroupsResponse(groups=[group for part in parts for group in part.groups])
