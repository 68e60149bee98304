"""What happens when time is up: for a member's session, for an id that nobody came with, for a sync phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.classic.rebalance import complete_join_phase, maybe_prepare_rebalance, prepare_rebalance
from kcore.group.classic.states import COMPLETING, EMPTY, PREPARING, STABLE

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.group.classic.member import Member, PendingMember
    from kcore.runtime.machine import Record


def expire_member(group: ClassicGroup, member: Member) -> list[Record]:
    """A member was silent for its session timeout: it is out, and the others rebalance.

    Not while an answer of ours is what it waits for: its session begins anew with that answer. A new member is out
    all the same when its first join was not answered in five minutes: it may have gone unseen.
    """
    if group.members.get(member.member_id) is not member:
        return []
    if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
        return []
    group.remove_member(member)
    return _after_removal(group, "a member's session is over")


def expire_pending(group: ClassicGroup, pending: PendingMember) -> list[Record]:
    """Nobody joined with an id that was given out: nobody waits for it any longer."""
    if group.pending_joins.get(pending.member_id) is not pending:
        return []
    del group.pending_joins[pending.member_id]
    if group.state is PREPARING and group.has_all_members_joined():
        return complete_join_phase(group)
    return []


def expire_sync_phase(group: ClassicGroup, generation_id: int) -> list[Record]:
    """Members that have not synced within the rebalance timeout are out, though they may send heartbeats.

    Also when the leader has synced and the group is Stable: a follower that never asks for its assignment does not
    work on it either.
    """
    group.sync_phase = None
    if generation_id != group.generation_id:
        return []
    if group.state is not COMPLETING and group.state is not STABLE:
        return []
    if not group.pending_syncs:
        return []
    for member_id in list(group.pending_syncs):
        member = group.members.get(member_id)
        if member is not None:
            group.remove_member(member)
    return prepare_rebalance(group, "members did not sync in time")


def _after_removal(group: ClassicGroup, reason: str) -> list[Record]:
    """A member is gone. A join phase ends even if it is the initial one, when nobody is missing any more."""
    if group.state is PREPARING:
        return complete_join_phase(group) if group.has_all_members_joined() else []
    return maybe_prepare_rebalance(group, reason) if group.state is not EMPTY else []
