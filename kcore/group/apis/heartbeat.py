"""Heartbeat (API key 12), v0-4: a member is alive, and hears whether it must rejoin.

v3 brings static members (KIP-345). The most frequent request of all: its way is two look-ups and one store, by compiled
code, which does what is said here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.member import Member
from kcore.group.classic.replies import HEARTBEAT
from kcore.group.classic.states import DEAD
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration import classic_calls
from kcore.group.shard import GroupShard
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.runtime.api import Api, RequestContext
from kcore_ext.heartbeat import HeartbeatCore

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.shards import Shards


class HeartbeatApi(HeartbeatCore, Api[HeartbeatRequest, HeartbeatResponse]):
    """Serves Heartbeat to those who may READ the group.

    `handle_any` and `decide_any` are the definition of what a heartbeat means. `handle` and `decide` are compiled and
    do the same for a dynamic member in the generation that it believes to be in: see `HeartbeatCore`.

    Args:
        shards: the group shards.
        authorizer: who may do what; None allows all.
    """

    key = ApiKey.HEARTBEAT
    request_type = HeartbeatRequest
    response_type = HeartbeatResponse
    versions = (0, 4)
    brief = True
    repeats = True

    __slots__ = ()

    def __init__(self, shards: Shards[GroupShard], authorizer: Authorizer | None = None) -> None:
        super().__init__(
            shards,
            authorizer,
            request=HeartbeatRequest,
            machine=GroupShard,
            group=ClassicGroup,
            member=Member,
            dead=DEAD,
        )

    def handle_any(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        """Checks what does not need the group, then goes to its shard."""
        group_id = request.group_id
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.allowed(context, Operation.READ, ResourceType.GROUP, group_id):
            return HEARTBEAT[ErrorCode.GROUP_AUTHORIZATION_FAILED]
        if not group_id:
            return HEARTBEAT[ErrorCode.INVALID_GROUP_ID]
        return self._shards.of(group_id).run(self, context, request)

    def decide_any(self, machine: GroupShard, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        """Re-arms the member's session and says how its group is."""
        group = machine.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if isinstance(group, ConsumerGroup):
                return classic_calls.heartbeat(group, request)
            return HEARTBEAT[ErrorCode.UNKNOWN_MEMBER_ID]
        member = group.members.get(request.member_id)
        if (
            member is None
            or request.group_instance_id is not None
            or request.generation_id != group.generation_id
            or group.state is DEAD
        ):
            return self._checked(group, request)
        member.timer.extend(machine.now.now_ms + member.session_timeout_ms)
        return group.heartbeat_reply

    def _checked(self, group: ClassicGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        """The same with every check, in Kafka's order."""
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
        """The code; but while the group is still being loaded every heartbeat is fine, so that nobody rejoins."""
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HEARTBEAT[ErrorCode.NONE]
        return HEARTBEAT[code]
