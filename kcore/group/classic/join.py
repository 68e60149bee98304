"""JoinGroup on a classic group: admits, parks or refuses the member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.group.classic.group import NEW_MEMBER_TIMEOUT_MS, ClassicGroup
from kcore.group.classic.member import Member, Protocols
from kcore.group.classic.protocols import protocols_of, select_protocol
from kcore.group.classic.rebalance import maybe_complete_join_phase, prepare_rebalance
from kcore.group.classic.records import group_created, group_snapshot, size_bound_bytes
from kcore.group.classic.replies import is_leader, join_error, join_success, response_members
from kcore.group.classic.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from kcore.group.group import GroupType
from kcore.group.metadata_bound import has_room, protocols_bytes
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse
from kcore.runtime.machine import Outcome
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.group.group import Group
    from kcore.group.shard import GroupShard
    from kcore.protocol.messages.join_group import JoinGroupRequest
    from kcore.runtime.api import Api, RequestContext

NO_MEMBER_ID: Final = ""
REQUIRES_KNOWN_MEMBER_ID: Final = 4  # from this version on, a dynamic member gets an id to join with (KIP-394)
SKIPS_ASSIGNMENT: Final = 9  # from this version on, a restarted static leader gets `skip_assignment` (KIP-814)

Result = JoinGroupResponse | Pending | Outcome


def join_group(shard: GroupShard, api: Api[Any, Any], context: RequestContext, request: JoinGroupRequest) -> Result:
    """Decides a JoinGroup.

    A join without a member id creates the group if it is missing. This function writes the record of the new group even
    if it refuses the join.

    Args:
        shard: the shard of the group.
        api: the JoinGroup API, which completes a parked request with an error when the shard is unloaded.
        context: version, client id and host.
        request: the request; group id and session timeout have been checked.
    """
    group = shard.groups.get(request.group_id)
    if type(group) is ClassicGroup:
        return _Join(group, api, context, request).decide()
    if group is None or _is_empty_of_another_kind(group):
        if request.member_id != NO_MEMBER_ID:
            return join_error(context.api_version, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        records = [] if group is None else group.tombstones()
        if group is not None:
            group.on_replaced()
        created = ClassicGroup(shard, request.group_id)
        shard.groups[created.group_id] = created
        result = _Join(created, api, context, request).decide()
        assert not isinstance(result, Outcome), "the first join of a group writes nothing but its creation"
        return Outcome([*records, group_created(created.group_id, shard.now.wall_ms)], result)
    return join_error(context.api_version, NO_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _is_empty_of_another_kind(group: Group) -> bool:
    """Returns True for a consumer or streams group without members: a classic group may replace it."""
    return group.group_type in (GroupType.CONSUMER, GroupType.STREAMS) and group.is_empty()


class _Join:
    """The decision of one JoinGroup: the request, and the values that the steps of the decision share."""

    __slots__ = ("api", "context", "group", "protocols", "request")

    def __init__(
        self, group: ClassicGroup, api: Api[Any, Any], context: RequestContext, request: JoinGroupRequest
    ) -> None:
        self.group = group
        self.api = api
        self.context = context
        self.request = request
        self.protocols: Protocols = protocols_of(request.protocols)

    def decide(self) -> Result:
        """Checks the size of the group, its state, the protocol and the member id, in Kafka's order, and admits the
        member.
        """
        group, request = self.group, self.request
        member_id = request.member_id
        if not self._has_room():
            group.remove_by_id(member_id)
            return self._refuse(NO_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is DEAD:
            return self._refuse(member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not group.supports_protocols(request.protocol_type, self.protocols):
            return self._refuse(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if member_id == NO_MEMBER_ID:
            return self._join_without_id()
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Only dynamic members get assigned ids. The refusal does not invalidate the assigned id.
                return self._refuse(NO_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add_member(member_id)
        code = group.validate_member(member_id, request.group_instance_id)
        if code:
            return self._refuse(member_id, code)
        return self._join_of_member(group.members[member_id])

    def _refuse(self, member_id: str, code: ErrorCode) -> JoinGroupResponse:
        return join_error(self.context.api_version, member_id, code)

    def _has_room(self) -> bool:
        """Returns True if neither `group.max.size` nor the limit on members' metadata prevents the join.

        Assigned member ids that are not used yet do not count as members.
        """
        group, state = self.group, self.group.state
        member = group.members.get(self.request.member_id)
        if member is None or member.protocols != self.protocols:
            growth = protocols_bytes(self.protocols) - (0 if member is None else protocols_bytes(member.protocols))
            if not has_room(group, growth):
                return False
        max_size = group.shard.config.group_max_size
        if state is EMPTY or state is DEAD:
            return True
        if state is PREPARING:
            # A group that exceeds the limit shrinks: it keeps the members that join first.
            return group.members_awaiting_join < max_size or (member is not None and member.awaiting_join is not None)
        return member is not None or len(group.members) < max_size

    # ---- requests without a member id

    def _join_without_id(self) -> Result:
        group, request, context = self.group, self.request, self.context
        instance_id = request.group_instance_id
        if instance_id is not None:
            new_id = f"{instance_id}-{group.shard.ids()}"
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                return self._add_member(new_id)
            return self._replace_static_member(group.members[old_id], new_id)
        new_id = f"{context.client_id}-{group.shard.ids()}"
        if context.api_version < REQUIRES_KNOWN_MEMBER_ID:
            return self._add_member(new_id)
        group.add_pending(new_id, request.session_timeout_ms)
        return self._refuse(new_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _rebalance_timeout_ms(self) -> int:
        """Returns the request's rebalance timeout; version 0 has none and uses the session timeout."""
        request = self.request
        return request.rebalance_timeout_ms if self.context.api_version >= 1 else request.session_timeout_ms

    def _park(self, member: Member) -> Pending:
        pending = Pending(self.api, self.context, self.request, parked=True)
        self.group.park_join(member, pending)
        return pending

    def _add_member(self, member_id: str) -> Result:
        """Adds a member, which waits for the next generation, and starts the rebalance if none is in progress."""
        group, request, context = self.group, self.request, self.context
        member = Member(
            group,
            member_id,
            request.group_instance_id,
            context.client_id,
            context.client_host,
            self._rebalance_timeout_ms(),
            request.session_timeout_ms,
            self.protocols,
            is_new=True,
        )
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        pending = Pending(self.api, context, request, parked=True)
        group.add_member(member, pending)
        group.arm_session(member, NEW_MEMBER_TIMEOUT_MS)
        return self._after_join(pending, "a member joined")

    # ---- requests of members

    def _join_of_member(self, member: Member) -> Result:
        group = self.group
        state = group.state
        if state is PREPARING:
            return self._rejoin(member, "a member joined again")
        if state is COMPLETING:
            if member.protocols != self.protocols:
                return self._rejoin(member, "a member changed its protocols")
            # The client did not receive the response to its join: send it again.
            leader_view = response_members(group) if is_leader(group, member) else ()
            return join_success(group, member.member_id, leader_view)
        assert state is STABLE, f"{group!r} has members"
        if is_leader(group, member):
            return self._rejoin(member, "the leader joined again")
        if member.protocols != self.protocols:
            return self._rejoin(member, "a member changed its protocols")
        return join_success(group, member.member_id)

    def _rejoin(self, member: Member, reason: str) -> Result:
        """Updates the member's protocols and parks its join until the next generation."""
        self._update(member)
        return self._after_join(self._park(member), reason)

    def _update(self, member: Member) -> None:
        member.rebalance_timeout_ms = self._rebalance_timeout_ms()
        member.session_timeout_ms = self.request.session_timeout_ms
        if member.protocols != self.protocols:
            self.group.set_protocols(member, self.protocols)

    def _after_join(self, pending: Pending, reason: str) -> Result:
        """Begins a rebalance after a join was parked, or ends the join phase if this was the last missing join."""
        group = self.group
        begins = group.rules.can_rebalance
        records = prepare_rebalance(group, reason) if begins else maybe_complete_join_phase(group)
        assert not records, "a group with a parked join does not become empty"
        return pending

    # ---- static members that restarted

    def _replace_static_member(self, old: Member, new_id: str) -> Result:
        """Replaces a restarted static member (KIP-345); the generation continues if the protocol stays the same."""
        group = self.group
        if group.state is not STABLE:
            assert group.state is not EMPTY, f"{group!r} has members"
            member = group.replace_static_member(old, new_id)
            return self._rejoin(member, "a static member rejoined")
        former_leader_id = group.leader_id or ""
        member = group.replace_static_member(old, new_id)
        self._update(member)
        leader = group.members[group.leader_id or ""]
        if select_protocol(group.members, group.supported_protocols, leader) != group.protocol_name:
            return self._after_join(self._park(member), "a static member rejoined with other protocols")
        record = group_snapshot(group)
        if size_bound_bytes(record) > group.shard.max_record_bytes:
            return self._after_join(
                self._park(member), "a static member rejoined and the group record became too large"
            )
        return Outcome([record], self._same_generation_response(member, former_leader_id))

    def _same_generation_response(self, member: Member, former_leader_id: str) -> JoinGroupResponse:
        """Returns the response for a restarted static member while the generation continues (KIP-814).

        A restarted leader must not compute a new assignment. From version 9 on, the response sets `SkipAssignment`.
        Older responses name the old member id as the leader, so that the client acts as a follower.
        """
        group = self.group
        if self.context.api_version < SKIPS_ASSIGNMENT:
            response = join_success(group, member.member_id)
            response.leader = former_leader_id
            return response
        if not is_leader(group, member):
            return join_success(group, member.member_id)
        response = join_success(group, member.member_id, response_members(group))
        response.skip_assignment = True
        return response
