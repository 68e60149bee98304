"""Heartbeat (API key 12), v0-4: keeps a member of a classic group alive.

An error code in the response shows that the member must rejoin.

v3 adds static members (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.apis.base import READ_GROUP, GroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.member import Member
from kcore.group.classic.replies import HEARTBEAT
from kcore.group.classic.states import DEAD
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration import classic_members
from kcore.group.shard import GroupShard
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore_ext.group.heartbeat import HeartbeatFastPath

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shards import Shards


class HeartbeatApi(GroupApi[HeartbeatRequest, HeartbeatResponse]):
    """Handler of Heartbeat requests.

    The fast path serves dynamic members that send the group's current generation.

    Args:
        shards: the group shards.
        authorizer: checks the permission to READ a group; None allows all.
    """

    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (0, 4)
    small_responses = True
    caches_requests = True

    __slots__ = ("fast", "fast_path")

    def __init__(self, shards: Shards[GroupShard], authorizer: Authorizer | None = None) -> None:
        super().__init__(shards, authorizer)
        self.fast_path = HeartbeatFastPath(
            self,
            shards,
            authorizer,
            READ_GROUP,
            HEARTBEAT[ErrorCode.GROUP_AUTHORIZATION_FAILED],
            request=HeartbeatRequest,
            machine=GroupShard,
            group=ClassicGroup,
            member=Member,
            dead=DEAD,
        )
        self.fast = self.fast_path.serve

    def handle(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        """Authorizes the client, validates the group id, and runs the request in the group's shard."""
        code = self.refusal(context, Operation.READ, request.group_id)
        if code:
            return HEARTBEAT[code]
        return self._shards.of(request.group_id).run(self, context, request)

    def decide(self, machine: GroupShard, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        """Validates member and generation in Kafka's order, and re-arms the member's session."""
        group = machine.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if isinstance(group, ConsumerGroup):
                return classic_members.heartbeat(group, request)
            return HEARTBEAT[ErrorCode.UNKNOWN_MEMBER_ID]
        if group.state is DEAD:
            return group.heartbeat_reply
        code = group.validate_member(request.member_id, request.group_instance_id)
        if code:
            return HEARTBEAT[code]
        if request.generation_id != group.generation_id:
            return HEARTBEAT[ErrorCode.ILLEGAL_GENERATION]
        if group.rules.keeps_session:
            group.keep_session(group.members[request.member_id])
        return group.heartbeat_reply

    def error(
        self, context: RequestContext, request: HeartbeatRequest, code: ErrorCode, message: str | None = None
    ) -> HeartbeatResponse:
        """Returns a response with the code.

        While the shard is loading, the response has the code NONE, as in Kafka, so that no member rejoins.
        """
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HEARTBEAT[ErrorCode.NONE]
        return HEARTBEAT[code]
