"""Responses of the classic protocol. Constant responses are created once and shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kcore.group.classic.states import STATES, GroupState
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatResponse
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.group.classic.member import Member

UNKNOWN_GENERATION: Final = -1

HEARTBEAT: Final[dict[ErrorCode, HeartbeatResponse]] = {code: HeartbeatResponse(error_code=code) for code in ErrorCode}
"""The heartbeat response for each error code; immutable by convention, like all shared responses of this module."""

HEARTBEAT_IN_STATE: Final[dict[GroupState, HeartbeatResponse]] = {
    state: HEARTBEAT[rules.heartbeat] for state, rules in STATES.items()
}
"""The heartbeat response for a valid member, by the group's state."""

_SYNC_ERRORS: Final[dict[ErrorCode, SyncGroupResponse]] = {
    code: SyncGroupResponse(error_code=code) for code in ErrorCode if code is not ErrorCode.NONE
}


def sync_error(code: ErrorCode) -> SyncGroupResponse:
    """Returns the response to a refused SyncGroup: no assignment, no protocol."""
    return _SYNC_ERRORS[code]


def sync_success(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """Returns the SyncGroup response with a member's assignment and the group's protocol (KIP-559)."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def join_error(api_version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """Returns the response to a refused JoinGroup.

    A missing protocol name is null from version 7 on (KIP-559), and empty in older versions.
    """
    return JoinGroupResponse(
        error_code=code,
        generation_id=UNKNOWN_GENERATION,
        protocol_name=None if api_version >= 7 else "",
        member_id=member_id,
    )


def join_success(
    group: ClassicGroup, member_id: str, members: Sequence[JoinGroupResponseMember] = ()
) -> JoinGroupResponse:
    """Returns the response for a member of the current generation; only the leader receives `members`."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=members,
    )


def response_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """Returns all members with their metadata of the chosen protocol, for the leader."""
    name = group.protocol_name
    return [
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata(name)
        )
        for member in group.members.values()
    ]


def is_leader(group: ClassicGroup, member: Member) -> bool:
    """Returns True if the member leads the group."""
    return group.leader_id == member.member_id
