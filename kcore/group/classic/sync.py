"""SyncGroup on a classic group: the leader sends the assignment, the other members wait for theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.rebalance import fail_sync_phase, prepare_rebalance
from kcore.group.classic.records import group_snapshot, size_bound_bytes
from kcore.group.classic.replies import is_leader, sync_error, sync_success
from kcore.group.classic.states import DEAD, EMPTY, STABLE
from kcore.protocol.error_codes import NO_ERROR, ErrorCode
from kcore.protocol.messages.sync_group import SyncGroupResponse
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.group.classic.member import Member
    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.sync_group import SyncGroupRequest
    from kcore.runtime.api import Api, RequestContext

Result = SyncGroupResponse | Pending | Outcome


def sync_group(shard: GroupShard, api: Api[Any, Any], context: RequestContext, request: SyncGroupRequest) -> Result:
    """Decides a SyncGroup.

    Args:
        shard: the shard of the group.
        api: the SyncGroup API, which completes a parked request with an error when the shard is unloaded.
        context: version and client.
        request: the request; the group id has been checked.
    """
    group = shard.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        return sync_error(ErrorCode.UNKNOWN_MEMBER_ID)
    code = validate_sync(group, request)
    if code:
        return sync_error(code)
    member = group.members[request.member_id]
    group.mark_synced(member)
    if group.state is STABLE:
        return sync_success(group, member.assignment)
    if is_leader(group, member):
        return _assign(group, member, request)
    pending = Pending(api, context, request, parked=True)
    group.park_sync(member, pending)
    return pending


def validate_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    """Returns NONE if the request is valid in the group's state, else the first error in Kafka's order of checks."""
    state = group.state
    if state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and group.protocol_name not in (None, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return group.rules.sync or NO_ERROR


def _assign(group: ClassicGroup, leader: Member, request: SyncGroupRequest) -> Result:
    """Writes the leader's assignment and completes all parked syncs with it.

    A member without an entry receives an empty assignment; entries of unknown members are ignored. The group
    becomes Stable when the record is replayed, right after this decision. No client sees the assignment before the
    record is durable.
    """
    shard = group.shard
    assignments = {entry.member_id: entry.assignment for entry in request.assignments}
    record = group_snapshot(group, assignments)
    if size_bound_bytes(record) > shard.max_record_bytes:
        # As in Kafka, clients get UNKNOWN_SERVER_ERROR for a record that is too large. They join again; the leader's
        # next assignment may be smaller.
        fail_sync_phase(group, ErrorCode.UNKNOWN_SERVER_ERROR)
        group.keep_session(leader)
        records = prepare_rebalance(group, "the assignment exceeds the maximum record size")
        assert not records, "no joins are parked in the sync phase"
        return sync_error(ErrorCode.UNKNOWN_SERVER_ERROR)
    for member in group.members.values():
        if member.awaiting_sync is not None:
            group.respond_sync(member, sync_success(group, assignments.get(member.member_id, b"")))
            group.keep_session(member)
    group.keep_session(leader)
    shard.completed_rebalances += 1
    return Outcome([record], sync_success(group, assignments.get(leader.member_id, b"")))
