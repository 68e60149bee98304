"""SyncGroup (API key 14), v0-5: distributes the assignments of a classic group.

The leader sends the assignments of all members, and the response to each member contains its own assignment.

v3 adds static members (KIP-345), v5 protocol type and name, to detect members of another protocol early (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.group.apis.base import READ, GroupApi
from kcore.group.classic.replies import sync_error
from kcore.group.classic.sync import sync_group
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration import classic_members
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext

PROTOCOL_SINCE: Final = 5


class SyncGroupApi(GroupApi[SyncGroupRequest, SyncGroupResponse]):
    """Handler of SyncGroup requests, which need READ on the group."""

    key = ApiKey.SYNC_GROUP
    request_type = SyncGroupRequest
    response_type = SyncGroupResponse
    versions = (0, 5)

    __slots__ = ()

    def handle(self, context: RequestContext, request: SyncGroupRequest) -> Any:
        """Validates the fields of the request, and runs it in the group's shard."""
        if context.api_version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
            return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group_id = request.group_id
        code = self.refusal(context, READ, group_id)
        if code:
            return sync_error(code)
        return self._shards.of(group_id).run(self, context, request)

    def decide(self, machine: GroupShard, context: RequestContext, request: SyncGroupRequest) -> Any:
        """Decides the sync with `classic.sync`, or with `migration.classic_members` for classic members of consumer
        groups."""
        group = machine.groups.get(request.group_id)
        if type(group) is ConsumerGroup:
            return classic_members.sync_group(group, request)
        return sync_group(machine, self, context, request)

    def error(
        self, context: RequestContext, request: SyncGroupRequest, code: ErrorCode, message: str | None = None
    ) -> SyncGroupResponse:
        """Returns a response with the code, without an assignment."""
        return sync_error(code)
