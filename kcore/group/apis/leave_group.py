"""LeaveGroup (API key 13), v0-5: removes members.

Up to v2 a request removes one member, whose error is in the response. From v3 on it removes several members, each with
its own error (KIP-345). v5 adds reasons (KIP-800).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kcore.group.apis.base import GroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.leave import leave_group
from kcore.group.classic.states import DEAD
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration import classic_members
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import gather
from kcore.runtime.sliced import SLICE_COST_US

if TYPE_CHECKING:
    from kcore.group.shard import GroupShard
    from kcore.runtime.api import RequestContext
    from kcore.runtime.sliced import Work

SEVERAL_SINCE: Final = 3
FEW_MEMBERS: Final = 500
"""Maximum number of members that one decision removes. In a consumer group, each removal takes 20 µs."""


class LeaveGroupApi(GroupApi[LeaveGroupRequest, LeaveGroupResponse]):
    """Handler of LeaveGroup requests, which need READ on the group."""

    key = ApiKey.LEAVE_GROUP
    request_type = LeaveGroupRequest
    response_type = LeaveGroupResponse
    versions = (0, 5)
    small_responses = True
    differs: ClassVar[str] = (
        f"If a request names more than {FEW_MEMBERS} members, they leave in several steps. Between two steps, other "
        "members may join."
    )

    __slots__ = ()

    def handle(self, context: RequestContext, request: LeaveGroupRequest) -> Any:
        """Validates the fields of the request, and runs it in the group's shard."""
        group_id = request.group_id
        code = self.refusal(context, Operation.READ, group_id)
        if code:
            return self.error(context, request, code)
        slices = self._shards.slices
        if slices is None or len(request.members) <= FEW_MEMBERS or context.api_version < SEVERAL_SINCE:
            return self._shards.of(group_id).run(self, context, request)

        def join(parts: list[Any]) -> Any:
            return gather(self, context, request, parts, _joined)

        return slices.requests.run(self, context, request, self._parts(context, request), join)

    def _parts(self, context: RequestContext, request: LeaveGroupRequest) -> Work:
        """Handles the request in parts, each for some of its members. Each part has its own commit."""
        parts = []
        for first in range(0, len(request.members), FEW_MEMBERS):
            some = LeaveGroupRequest(group_id=request.group_id, members=request.members[first : first + FEW_MEMBERS])
            parts.append(self._shards.of(request.group_id).run(self, context, some))
            yield SLICE_COST_US
        return parts

    def decide(self, machine: GroupShard, context: RequestContext, request: LeaveGroupRequest) -> Any:
        """Decides the removal with `classic.leave`, or with `migration.classic_members` for consumer groups."""
        several = context.api_version >= SEVERAL_SINCE
        members = request.members if several else (MemberIdentity(member_id=request.member_id),)
        group = machine.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            codes, records = classic_members.leave_group(group, members)
            response = _response(several, members, codes)
            return Outcome(records, response) if records else response
        if not isinstance(group, ClassicGroup):
            return _response(several, members, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members))
        if group.state is DEAD:
            return self.error(context, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        codes, records = leave_group(group, members)
        response = _response(several, members, codes)
        return Outcome(records, response) if records else response

    def error(
        self, context: RequestContext, request: LeaveGroupRequest, code: ErrorCode, message: str | None = None
    ) -> LeaveGroupResponse:
        """Returns a response with the code for the whole request, without members."""
        return LeaveGroupResponse(error_code=code)


def _joined(parts: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """Joins the responses of the parts.

    If a part was refused as a whole, its response becomes the response of the request.
    """
    for part in parts:
        if part.error_code:
            return part
    return LeaveGroupResponse(members=[member for part in parts for member in part.members])


def _response(several: bool, members: Sequence[MemberIdentity], codes: list[ErrorCode]) -> LeaveGroupResponse:
    if not several:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            for identity, code in zip(members, codes, strict=True)
        ]
    )
