"""LeaveGroup on a classic group, sent by members or by an administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.rebalance import maybe_complete_join_phase, maybe_prepare_rebalance
from kcore.group.classic.states import EMPTY, PREPARING
from kcore.protocol.error_codes import NO_ERROR, ErrorCode

if TYPE_CHECKING:
    from kcore.protocol.messages.leave_group import MemberIdentity
    from kcore.runtime.machine import Record


def leave_group(group: ClassicGroup, members: Sequence[MemberIdentity]) -> tuple[list[ErrorCode], list[Record]]:
    """Removes the members one by one, then rebalances once.

    Args:
        group: the group; its state is not Dead.
        members: the leaving members.

    Returns:
        A pair: the error code for each member, in order, and the records to write (not empty if the group became
        empty).
    """
    codes = [_leave(group, identity.member_id, identity.group_instance_id) for identity in members]
    if NO_ERROR not in codes or group.state is EMPTY:
        return codes, []
    if group.state is PREPARING:
        return codes, maybe_complete_join_phase(group)
    return codes, maybe_prepare_rebalance(group, "members left")


def _leave(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode:
    if not member_id:
        # An administrator removes a static member by its group instance id (KIP-345).
        static_id = group.static_members.get(group_instance_id) if group_instance_id is not None else None
        if static_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group.remove_by_id(static_id)
        return NO_ERROR
    if member_id not in group.pending_joins:
        code = group.validate_member(member_id, group_instance_id)
        if code:
            return code
    group.remove_by_id(member_id)
    return NO_ERROR
