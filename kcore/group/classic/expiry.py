"""Expiration of member sessions, of unused member ids and of sync phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.classic.rebalance import complete_join_phase, maybe_prepare_rebalance, prepare_rebalance
from kcore.group.classic.states import COMPLETING, EMPTY, PREPARING, STABLE
from kcore.group.removed_member import log_removed_member

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.group.classic.member import Member, PendingMember
    from kcore.runtime.machine import Record


def expire_member(group: ClassicGroup, member: Member) -> list[Record]:
    """Removes a member whose session timeout has expired, and rebalances the group.

    A member with a parked join or sync is not removed, because the response to the parked request restarts the member's
    session. A new member is an exception: it is removed if its first join is parked for five minutes, because its
    client may be gone.
    """
    if group.members.get(member.member_id) is not member:
        return []
    if not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
        return []
    reason = f"it sent no heartbeat for {member.session_timeout_ms} ms (session timeout)"
    log_removed_member(group.group_id, member.member_id, member, reason)
    group.remove_member(member)
    group.shard.meters.expirations["classic"] += 1
    return _after_removal(group, "member session expired")


def expire_pending(group: ClassicGroup, pending: PendingMember) -> list[Record]:
    """Removes an assigned member id that was never used to join. Ends the join phase if it waited only for this id."""
    if group.pending_joins.get(pending.member_id) is not pending:
        return []
    del group.pending_joins[pending.member_id]
    pending.disarm()
    group.shard.unused_member_ids.discard(pending.member_id)
    if group.state is PREPARING and group.has_all_members_joined():
        return complete_join_phase(group)
    return []


def expire_sync_phase(group: ClassicGroup, generation_id: int) -> list[Record]:
    """Removes the members that have not synced within the rebalance timeout, even if they send heartbeats.

    These members are removed even if the leader has synced and the group is Stable. A follower that sends no SyncGroup
    does not know its partitions, so no member processes them.
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
            reason = "it sent no SyncGroup within the rebalance timeout"
            log_removed_member(group.group_id, member_id, member, reason)
            group.remove_member(member)
            group.shard.meters.expirations["classic"] += 1
    return prepare_rebalance(group, "members did not sync within the rebalance timeout")


def _after_removal(group: ClassicGroup, reason: str) -> list[Record]:
    """Rebalances the group after a removal. In a join phase, ends the phase if all remaining members have joined."""
    if group.state is PREPARING:
        return complete_join_phase(group) if group.has_all_members_joined() else []
    return maybe_prepare_rebalance(group, reason) if group.state is not EMPTY else []
