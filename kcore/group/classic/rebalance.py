"""The rebalance of classic groups: begins and ends join phases.

The functions change the group's soft state and complete parked requests. They return the records to write, which the
caller puts into its Outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.group.classic.delayed import DelayedJoin, DelayedSync, InitialDelayedJoin
from kcore.group.classic.protocols import select_protocol
from kcore.group.classic.records import group_emptied
from kcore.group.classic.replies import join_success, response_members, sync_error
from kcore.group.classic.states import COMPLETING, DEAD, EMPTY, PREPARING
from kcore.group.removed_member import log_removed_member
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup
    from kcore.runtime.machine import Record


MIN_CONTINUED_MS: Final = 100
"""Minimum time in ms that a join phase continues for absent static members.

A client may send any rebalance timeout. With a timeout of 0 or less, the timer would fire again and again without a
pause, until the session of the last absent member ends.
"""


def maybe_prepare_rebalance(group: ClassicGroup, reason: str) -> list[Record]:
    """Begins a join phase if the group's state permits one."""
    return prepare_rebalance(group, reason) if group.rules.can_rebalance else []


def prepare_rebalance(group: ClassicGroup, reason: str) -> list[Record]:
    """Begins a join phase.

    In the state Empty, the *initial* join phase begins, which waits `group.initial.rebalance.delay.ms` for further
    members (KIP-134). In other states, the join phase lasts until all members have joined, but at most for the longest
    rebalance timeout of the current members. Members that join later do not prolong it.
    """
    if group.state is COMPLETING:
        fail_sync_phase(group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.end_sync_phase()
    timeout_ms = group.rebalance_timeout_ms()
    if group.state is EMPTY:
        delay_ms = group.shard.config.group_initial_rebalance_delay_ms
        remaining_ms = max(timeout_ms - delay_ms, 0)
        group.transition(PREPARING, reason)
        group.arm_join_phase(InitialDelayedJoin(group, delay_ms, remaining_ms), delay_ms)
        return []
    group.transition(PREPARING, reason)
    if group.has_all_members_joined():
        return complete_join_phase(group)
    group.arm_join_phase(DelayedJoin(group), timeout_ms)
    return []


def maybe_complete_join_phase(group: ClassicGroup) -> list[Record]:
    """Ends the join phase if all members have joined. Does not end an initial join phase: only its timer ends it."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.has_all_members_joined():
        return complete_join_phase(group)
    return []


def initial_delay_over(group: ClassicGroup, operation: InitialDelayedJoin) -> list[Record]:
    """Starts another initial delay if a member joined during the last delay and time remains; otherwise ends the join
    phase.
    """
    if group.new_member_added and operation.remaining_ms:
        group.new_member_added = False
        delay_ms = min(group.shard.config.group_initial_rebalance_delay_ms, operation.remaining_ms)
        remaining_ms = max(operation.remaining_ms - operation.delay_ms, 0)
        group.arm_join_phase(InitialDelayedJoin(group, delay_ms, remaining_ms), delay_ms)
        return []
    return complete_join_phase(group)


def fail_sync_phase(group: ClassicGroup, code: ErrorCode) -> None:
    """Completes parked syncs with `code` and no assignment, and restarts their members' sessions."""
    response = sync_error(code)
    for member in group.members.values():
        member.assignment = b""
        if member.awaiting_sync is not None:
            group.respond_sync(member, response)
            group.keep_session(member)


def complete_join_phase(group: ClassicGroup) -> list[Record]:
    """Ends the join phase: the members that have joined form the next generation.

    Dynamic members that have not joined are removed. Static members stay (KIP-345), because they may be restarting;
    their session timeout removes them. If only absent static members remain, the phase continues.

    Returns:
        The record of the empty generation if no member remains, else no record. The sync phase writes the record of a
        generation with members, together with the assignment.
    """
    group.end_join_phase()
    absent = [
        member for member in group.members.values() if member.awaiting_join is None and member.group_instance_id is None
    ]
    for member in absent:
        reason = "it did not join again within the rebalance timeout"
        log_removed_member(group.group_id, member.member_id, member, reason)
        group.remove_member(member)
        group.shard.meters.expirations["classic"] += 1
    if group.state is DEAD:
        return []
    if not group.members:
        group.end_sync_phase()
        return [group_emptied(group, group.shard.now.wall_ms)]
    if not _has_present_leader(group):
        group.arm_join_phase(DelayedJoin(group), max(group.rebalance_timeout_ms(), MIN_CONTINUED_MS))
        return []
    _begin_generation(group)
    return []


def _has_present_leader(group: ClassicGroup) -> bool:
    """Returns True if a leader has joined.

    If the leader is absent, the first member that has joined becomes the leader.
    """
    leader = group.members.get(group.leader_id) if group.leader_id is not None else None
    if leader is not None and leader.awaiting_join is not None:
        return True
    for member in group.members.values():
        if member.awaiting_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def _begin_generation(group: ClassicGroup) -> None:
    """Begins the next generation with all current members: completes their joins and waits for their syncs."""
    members = group.members
    assert group.leader_id is not None
    group.generation_id += 1
    group.protocol_name = select_protocol(members, group.supported_protocols, members[group.leader_id])
    group.find_subscribed_topics()
    group.transition(COMPLETING, "the join phase ended")
    group.new_member_added = False
    leader_view = response_members(group)
    for member in members.values():
        if member.awaiting_join is not None:
            leads = member.member_id == group.leader_id
            group.respond_join(member, join_success(group, member.member_id, leader_view if leads else ()))
        member.is_new = False
        group.keep_session(member)
    group.pending_syncs = dict.fromkeys(members)
    group.arm_sync_phase(DelayedSync(group, group.generation_id), group.rebalance_timeout_ms())
