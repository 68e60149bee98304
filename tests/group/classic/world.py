"""A classic group in any state, with members of every kind, and methods that send their requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.list_groups import ListGroupsApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.classic.states import GroupState
from kcore.protocol.consumer_protocol import Subscription
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kcore.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tests.group.context import CLIENT_HOST, Call, GroupContext

SESSION_MS = 10_000
REBALANCE_MS = 60_000
META = Subscription(topics=["topic"]).encode_versioned(3)
CHANGED = Subscription(topics=["other"]).encode_versioned(3)
NOBODY = "client-nobody"

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

Offer = Sequence[tuple[str, bytes]]
RANGE: Offer = [("range", META)]


class World:
    """The APIs of classic groups on one shard, and a group `g` that can be put into any state.

    Attributes:
        leader, follower, static: ids of the group's members after `build`; the static member's instance id is "one".
        pending: an id that was assigned and not used.
        generation: the generation of the group.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1, **(settings or {})}
        self.context = GroupContext(settings)
        self.leader = self.follower = self.static = self.pending = ""
        self.boot()

    def boot(self) -> None:
        """Creates the APIs, at the start and after each restart."""
        shards = self.context.shards
        self.join_api = JoinGroupApi(shards, self.context.config)
        self.sync_api = SyncGroupApi(shards)
        self.heartbeat_api = HeartbeatApi(shards)
        self.leave_api = LeaveGroupApi(shards)
        self.describe_api = DescribeGroupsApi(shards)
        self.list_api = ListGroupsApi(shards)
        self.delete_api = DeleteGroupsApi(shards)

    def restart(self) -> None:
        """Stops the process and starts it again."""
        self.context.restart()
        self.boot()

    def group(self, group_id: str = "g") -> ClassicGroup:
        """Returns the group in memory."""
        group = self.context.machine.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def generation(self) -> int:
        return self.group().generation_id

    @property
    def state(self) -> GroupState:
        return self.group().state

    # ---- requests

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        offer: Offer = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client: str = "client",
    ) -> Call:
        """Sends a JoinGroup."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offer],
        )
        return self.context.send(self.join_api, request, version=version, client_id=client)

    def assign_id(self, **options: Any) -> str:
        """Sends a dynamic member's first JoinGroup. Returns the assigned member id."""
        response = self.join(**options).response
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = response.member_id
        return member_id

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Call:
        """Sends a SyncGroup."""
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.group(group).generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return self.context.send(self.sync_api, request, version=version)

    def beat(
        self, member_id: str, *, generation: int | None = None, group: str = "g", instance: str | None = None
    ) -> int:
        """Sends a Heartbeat. Returns its error code."""
        request = HeartbeatRequest(
            group_id=group,
            generation_id=self.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        response = self.context.call(self.heartbeat_api, request)
        code: int = response.error_code
        return code

    def leave(self, *members: tuple[str, str | None] | str, group: str = "g", version: int = 5) -> LeaveGroupResponse:
        """Sends a LeaveGroup for members, each given as an id or an (id, instance id) pair. Returns the response."""
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=pairs[0][0])
        else:
            identities = [MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in pairs]
            request = LeaveGroupRequest(group_id=group, members=identities)
        response = self.context.call(self.leave_api, request, version=version)
        assert isinstance(response, LeaveGroupResponse)
        return response

    def describe(self, group: str = "g", version: int = 6) -> DescribedGroup:
        """Returns the DescribeGroups response for one group."""
        (described,) = self.context.call(
            self.describe_api, DescribeGroupsRequest(groups=[group]), version=version
        ).groups
        assert isinstance(described, DescribedGroup)
        return described

    def list(self, version: int = 5, **filters: Any) -> Any:
        """Returns the ListGroups response."""
        return self.context.call(self.list_api, ListGroupsRequest(**filters), version=version)

    def delete(self, *groups: str) -> dict[str, int]:
        """Sends a DeleteGroups. Returns the error code of each group."""
        response = self.context.call(self.delete_api, DeleteGroupsRequest(groups_names=groups))
        return {result.group_id: result.error_code for result in response.results}

    # ---- a group in any state

    def build(self, state: GroupState | None, *, pending: bool = True) -> World:
        """Puts group `g` into a state. With None, the group does not exist.

        In every state except Empty, the group has a leader, a follower and a static member. In PreparingRebalance, only
        the follower has rejoined; its join is parked.
        """
        if state is None:
            self.leader = self.follower = self.static = self.pending = "client-gone"
            return self
        self._stabilise()
        if state is EMPTY:
            self.leave(self.leader, self.follower, self.static)
        elif state is PREPARING:
            self.waiting = self.join(self.follower, offer=[("range", CHANGED)])
        elif state is COMPLETING:
            self.join(self.follower, offer=[("range", CHANGED)])
            self.join(self.static, instance="one")
            self.join(self.leader)
        if pending:
            self.pending = self.assign_id()
        if state is DEAD:
            self.group().transition(DEAD, "the test wants it")
        assert self.state is state, (self.state, state)
        self.context.records()
        return self

    def _stabilise(self) -> None:
        self.leader = self.assign_id(client="leader")
        self.join(self.leader)
        self.context.advance(1)
        self.follower = self.assign_id(client="follower")
        self.join(self.follower)
        static = self.join(instance="one")
        self.join(self.leader)
        self.static = static.response.member_id
        parked = [self.sync(self.follower), self.sync(self.static)]
        self.sync(self.leader, {self.leader: b"l", self.follower: b"f", self.static: b"s"})
        assert all(call.done for call in parked)
        self.context.records()


# ---- whole responses and records


def join_refused(code: ErrorCode, member_id: str, version: int = 9) -> JoinGroupResponse:
    """Returns the whole response of a refused JoinGroup."""
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name=None if version >= 7 else "", member_id=member_id
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """Returns the whole response of a refused SyncGroup."""
    return SyncGroupResponse(error_code=code)


def synced(assignment: bytes) -> SyncGroupResponse:
    """Returns the whole response of a successful SyncGroup."""
    return SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=assignment)


def member_record(
    member_id: str, assignment: bytes = b"", *, instance: str | None = None, subscription: bytes = META, **changes: Any
) -> MemberMetadata:
    """Returns the entry that a GroupMetadata record has for a member that joined by `World.join`."""
    fields: dict[str, Any] = {
        "member_id": member_id,
        "group_instance_id": instance,
        "client_id": "client",
        "client_host": CLIENT_HOST,
        "rebalance_timeout": REBALANCE_MS,
        "session_timeout": SESSION_MS,
        "subscription": subscription,
        "assignment": assignment,
    }
    return MemberMetadata(**{**fields, **changes})


def group_record(
    generation: int,
    leader: str | None = None,
    members: Sequence[MemberMetadata] = (),
    *,
    at: int,
    protocol_type: str = "consumer",
    group: str = "g",
) -> tuple[GroupMetadataKey, GroupMetadataValue]:
    """Returns a whole GroupMetadata record. `at` is the timestamp of the group's state."""
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol="range" if members else None,
        leader=leader,
        current_state_timestamp=at,
        members=members,
    )
    return GroupMetadataKey(group=group), value
