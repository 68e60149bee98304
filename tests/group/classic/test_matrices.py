"""Truth tables of the classic protocol: the response to each kind of caller in each state of the group.

Each row is one of Kafka's rules. In a table, a number stands for the error code of the response, and `PARK` means that
the request is parked. The tests compare whole responses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.group.classic.states import STATES, GroupState, may_follow
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_groups import DescribedGroup
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from tests.group.classic.world import (
    CHANGED,
    COMPLETING,
    DEAD,
    EMPTY,
    META,
    NOBODY,
    PREPARING,
    STABLE,
    World,
    group_record,
    join_refused,
    member_record,
    sync_refused,
    synced,
)
from tests.group.context import Call
from tests.harness import WALL_MS

PARK = "park"
ABSENT = None
COLUMNS = (ABSENT, EMPTY, PREPARING, COMPLETING, STABLE, DEAD)

Ask = Callable[[World], Call]


def cells(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Returns every cell of a table as a test case: (row, state, expected)."""
    return [
        pytest.param(row, state, value, id=f"{row}-{state.value if state else 'absent'}")
        for row, expected in table.items()
        for state, value in zip(COLUMNS, expected, strict=True)
        if value != "-"
    ]


# ---------------------------------------------------------------- JoinGroup

FOREIGN = [("other", META)]

JOIN_REQUESTS: dict[str, tuple[Callable[[World], str], dict[str, Any]]] = {
    "no id, v4 and later": (lambda w: "", {"version": 4}),
    "no id, v3": (lambda w: "", {"version": 3}),
    "no id, new instance": (lambda w: "", {"instance": "two"}),
    "no id, known instance": (lambda w: "", {"instance": "one", "offer": [("range", CHANGED)]}),
    "pending id": (lambda w: w.pending or NOBODY, {}),
    "member": (lambda w: w.follower, {"offer": [("range", CHANGED), ("added", b"")]}),
    "unknown id": (lambda w: NOBODY, {}),
    "member, instance of another": (lambda w: w.follower, {"instance": "one"}),
    "member, unknown instance": (lambda w: w.follower, {"instance": "nine"}),
    "unknown id, instance of another": (lambda w: NOBODY, {"instance": "one"}),
    "pending id with an instance": (lambda w: w.pending or NOBODY, {"instance": "one"}),
    "no common protocol": (lambda w: w.follower, {"offer": FOREIGN}),
    "no common protocol, no id": (lambda w: "", {"offer": FOREIGN}),
    "another protocol type": (lambda w: w.follower, {"protocol_type": "connect"}),
    "no protocols": (lambda w: "", {"offer": []}),
    "no protocol type": (lambda w: "", {"protocol_type": ""}),
    "unknown id, no common protocol": (lambda w: NOBODY, {"offer": FOREIGN}),
}

JOIN = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "no id, v4 and later":              (79,   79,    79,       79,        79,    15),
    "no id, v3":                        (PARK, PARK,  PARK,     PARK,      PARK,  15),
    "no id, new instance":              (PARK, PARK,  PARK,     PARK,      PARK,  15),
    "no id, known instance":            (PARK, PARK,  PARK,     PARK,      0,     15),
    "pending id":                       (25,   PARK,  PARK,     PARK,      PARK,  15),
    "member":                           (25,   25,    PARK,     PARK,      PARK,  15),
    "unknown id":                       (25,   25,    25,       25,        25,    15),
    "member, instance of another":      (25,   25,    82,       82,        82,    15),
    "member, unknown instance":         (25,   25,    25,       25,        25,    15),
    "unknown id, instance of another":  (25,   25,    82,       82,        82,    15),
    "pending id with an instance":      (25,   -1,    -1,       -1,        -1,    15),
    "no common protocol":               (25,   25,    23,       23,        23,    15),
    "no common protocol, no id":        (79,   79,    23,       23,        23,    15),
    "another protocol type":            (25,   25,    23,       23,        23,    15),
    "no protocols":                     (23,   23,    23,       23,        23,    15),
    "no protocol type":                 (23,   23,    23,       23,        23,    15),
    "unknown id, no common protocol":   (25,   25,    23,       23,        23,    15),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(JOIN))
def test_join_depends_on_caller_and_state(row: str, state: GroupState | None, expected: Any) -> None:
    """Checks the table of JoinGroup responses by caller and state."""
    world = World().build(state)
    who, options = JOIN_REQUESTS[row]
    member_id = who(world)
    version = options.get("version", 9)
    call = world.join(member_id, **options)
    if expected == PARK:
        assert not call.done
        assert world.state is PREPARING
        return
    assert call.done
    if expected == 79:
        member_id = f"client-{world.context.last_id}"
    if expected == -1:
        member_id = ""
    if expected == 0:  # the static follower rejoined: KIP-814
        assert call.response.error_code == 0
        assert world.state is STABLE
        return
    assert call.response == join_refused(ErrorCode(expected), member_id, version)
    creates = state is ABSENT and not who(world)
    assert ("g" in world.context.machine.groups) is (creates or state is not ABSENT)
    created = [group_record(0, at=WALL_MS, protocol_type="")] if creates else []
    assert world.context.records() == created


OVER_SIZE = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "no id, v4 and later":              (79,   79,    81,       81,        81,    15),
    "no id, v3":                        (PARK, PARK,  81,       81,        81,    15),
    "no id, new instance":              (PARK, PARK,  81,       81,        81,    15),
    "no id, known instance":            ("-",  PARK,  81,       81,        81,    15),
    "pending id":                       (25,   PARK,  81,       81,        81,    15),
    "unknown id":                       (25,   25,    81,       81,        81,    15),
    "unknown id, no common protocol":   (25,   25,    81,       81,        81,    15),
    "no common protocol, no id":        (79,   79,    81,       81,        81,    15),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(OVER_SIZE))
def test_join_of_a_full_group_depends_on_caller_and_state(row: str, state: GroupState | None, expected: Any) -> None:
    """The coordinator checks `group.max.size` before everything else, except that a Dead group is refused first.

    If the caller has an assigned member id that it has not used yet, the refusal releases this id.
    """
    world = World().build(state)
    if state in (PREPARING, COMPLETING, STABLE):
        # As if the limit had been lowered: three members, one of them parked in PreparingRebalance.
        world.context.config.group_max_size = 1
    who, options = JOIN_REQUESTS[row]
    call = world.join(who(world), **options)
    if expected == PARK:
        assert not call.done
        return
    if expected != 81:
        assert call.response.error_code == expected
        return
    assert call.response == join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "", options.get("version", 9))
    assert (world.pending in world.group().pending_joins) is (row != "pending id")


@pytest.mark.parametrize(("who", "code"), [("leader", 81), ("follower", None), ("static", 81)])
def test_first_members_to_join_stay_in_a_full_rebalance(who: str, code: int | None) -> None:
    """In PreparingRebalance, a member that joins late is removed if enough other members have already joined."""
    world = World().build(PREPARING)
    world.context.config.group_max_size = 1
    call = world.join(getattr(world, who))
    assert (call.response.error_code if call.done else None) == code
    assert (getattr(world, who) in world.group().members) is (code is None)


@pytest.mark.parametrize("state", [COMPLETING, STABLE])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_members_of_a_full_group_may_rejoin(state: GroupState, who: str) -> None:
    """A member of a group that exceeds group.max.size may rejoin."""
    world = World().build(state)
    world.context.config.group_max_size = 1
    call = world.join(getattr(world, who), offer=[("range", CHANGED), ("added", b"")])
    assert not call.done
    assert world.state is PREPARING


AT_ONCE, REBALANCE = "at once", "rebalance"


@pytest.mark.parametrize(
    ("state", "who", "same", "expected"),
    [
        (PREPARING, "leader", True, REBALANCE),
        (PREPARING, "leader", False, REBALANCE),
        (PREPARING, "follower", True, REBALANCE),
        (COMPLETING, "leader", True, AT_ONCE),
        (COMPLETING, "leader", False, REBALANCE),
        (COMPLETING, "follower", True, AT_ONCE),
        (COMPLETING, "follower", False, REBALANCE),
        (COMPLETING, "static", True, AT_ONCE),
        (COMPLETING, "static", False, REBALANCE),
        (STABLE, "leader", True, REBALANCE),
        (STABLE, "leader", False, REBALANCE),
        (STABLE, "follower", True, AT_ONCE),
        (STABLE, "follower", False, REBALANCE),
        (STABLE, "static", True, AT_ONCE),
        (STABLE, "static", False, REBALANCE),
    ],
)
def test_a_rejoin_without_changes_completes_at_once(state: GroupState, who: str, same: bool, expected: str) -> None:
    """A rejoin completes at once if nothing changes; otherwise it is parked until the next generation."""
    world = World().build(state)
    member_id = getattr(world, who)
    present = world.group().members[member_id].protocols
    offer = present if same else [*present, ("added", b"")]
    call = world.join(member_id, offer=offer, session_ms=77, rebalance_ms=88)
    assert call.done is (expected is AT_ONCE)
    member = world.group().members[member_id]
    if not call.done:
        assert world.state is PREPARING
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (77, 88)
        return
    assert world.state is state
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 60_000)  # only a rebalance updates them
    everybody = [
        JoinGroupResponseMember(member_id=world.leader, metadata=META),
        JoinGroupResponseMember(member_id=world.follower, metadata=CHANGED if state is COMPLETING else META),
        JoinGroupResponseMember(member_id=world.static, group_instance_id="one", metadata=META),
    ]
    assert call.response == JoinGroupResponse(
        generation_id=world.generation,
        protocol_type="consumer",
        protocol_name="range",
        leader=world.leader,
        member_id=member_id,
        members=everybody if who == "leader" else [],
    )


# ---------------------------------------------------------------- SyncGroup

SYNC_REQUESTS: dict[str, tuple[Callable[[World], str], dict[str, Any]]] = {
    "follower": (lambda w: w.follower, {}),
    "static": (lambda w: w.static, {"instance": "one"}),
    "static, no instance": (lambda w: w.static, {}),
    "leader": (lambda w: w.leader, {}),
    "other generation": (lambda w: w.follower, {"generation": 99}),
    "other generation and protocol": (lambda w: w.follower, {"generation": 99, "protocol_name": "other"}),
    "unknown id": (lambda w: NOBODY, {"generation": 99}),
    "pending id": (lambda w: w.pending or NOBODY, {}),
    "instance of another": (lambda w: w.follower, {"instance": "one", "generation": 99}),
    "unknown instance": (lambda w: w.follower, {"instance": "nine"}),
    "other protocol type": (lambda w: w.follower, {"protocol_type": "connect"}),
    "other protocol": (lambda w: w.follower, {"protocol_name": "other"}),
    "v4 says no protocol": (lambda w: w.follower, {"version": 4}),
    "no protocol type": (lambda w: NOBODY, {"protocol_type": None}),
    "no protocol name": (lambda w: NOBODY, {"protocol_name": None}),
}

SYNC = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "follower":                         (25,   25,    27,       PARK,      b"f",  15),
    "static":                           (25,   25,    27,       PARK,      b"s",  15),
    "static, no instance":              (25,   25,    27,       PARK,      b"s",  15),
    "leader":                           (25,   25,    27,       b"",       b"l",  15),
    "other generation":                 (25,   25,    22,       22,        22,    15),
    "other generation and protocol":    (25,   25,    22,       22,        22,    15),
    "unknown id":                       (25,   25,    25,       25,        25,    15),
    "pending id":                       (25,   25,    25,       25,        25,    15),
    "instance of another":              (25,   25,    82,       82,        82,    15),
    "unknown instance":                 (25,   25,    25,       25,        25,    15),
    "other protocol type":              (25,   25,    23,       23,        23,    15),
    "other protocol":                   (25,   25,    23,       23,        23,    15),
    "v4 says no protocol":              (25,   25,    27,       PARK,      b"f",  15),
    "no protocol type":                 (23,   23,    23,       23,        23,    23),
    "no protocol name":                 (23,   23,    23,       23,        23,    23),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(SYNC))
def test_sync_depends_on_caller_and_state(row: str, state: GroupState | None, expected: Any) -> None:
    """Checks the table of SyncGroup responses by caller and state."""
    world = World().build(state)
    who, options = SYNC_REQUESTS[row]
    if state is ABSENT:
        options = {"generation": 1, **options}
    version = options.get("version", 5)
    call = world.sync(who(world), **options)
    if expected == PARK:
        assert not call.done
        assert world.state is COMPLETING
    elif isinstance(expected, bytes):
        response = synced(expected)
        if version < 5:
            response.protocol_type = response.protocol_name = None
        assert call.response == response
        assert world.state is STABLE
    else:
        assert call.response == sync_refused(ErrorCode(expected))
        assert state is ABSENT or world.state is state


# ---------------------------------------------------------------- Heartbeat

HEARTBEAT_REQUESTS: dict[str, tuple[Callable[[World], str], dict[str, Any]]] = {
    "member": (lambda w: w.follower, {}),
    "static": (lambda w: w.static, {"instance": "one"}),
    "static, no instance": (lambda w: w.static, {}),
    "other generation": (lambda w: w.follower, {"generation": 99}),
    "no generation": (lambda w: w.follower, {"generation": -1}),
    "unknown id": (lambda w: NOBODY, {"generation": 99}),
    "no id": (lambda w: "", {}),
    "no id, known instance": (lambda w: "", {"instance": "one"}),
    "pending id": (lambda w: w.pending or NOBODY, {}),
    "instance of another": (lambda w: w.follower, {"instance": "one", "generation": 99}),
    "unknown instance": (lambda w: w.follower, {"instance": ""}),
}

HEARTBEAT = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "member":                           (25,   25,    27,       0,         0,     15),
    "static":                           (25,   25,    27,       0,         0,     15),
    "static, no instance":              (25,   25,    27,       0,         0,     15),
    "other generation":                 (25,   25,    22,       22,        22,    15),
    "no generation":                    (25,   25,    22,       22,        22,    15),
    "unknown id":                       (25,   25,    25,       25,        25,    15),
    "no id":                            (25,   25,    25,       25,        25,    15),
    "no id, known instance":            (25,   25,    82,       82,        82,    15),
    "pending id":                       (25,   25,    25,       25,        25,    15),
    "instance of another":              (25,   25,    82,       82,        82,    15),
    "unknown instance":                 (25,   25,    25,       25,        25,    15),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(HEARTBEAT))
def test_heartbeat_depends_on_caller_and_state(row: str, state: GroupState | None, expected: int) -> None:
    """Checks the table of Heartbeat responses by caller and state.

    Only heartbeats with the error codes 0 and 27 (REBALANCE_IN_PROGRESS) re-arm the session.
    """
    world = World().build(state)
    who, options = HEARTBEAT_REQUESTS[row]
    member = world.group().members.get(who(world)) if state is not ABSENT else None
    deadline_ms = member.timer.deadline_ms if member is not None else 0
    world.context.clock.advance(5)
    request = HeartbeatRequest(
        group_id="g",
        generation_id=options.get("generation", world.generation if state is not ABSENT else 1),
        member_id=who(world),
        group_instance_id=options.get("instance"),
    )
    assert world.context.call(world.heartbeat_api, request) == HeartbeatResponse(error_code=expected)
    if member is not None:
        kept = member.timer.deadline_ms == world.context.now.now_ms + member.session_timeout_ms
        assert kept is (expected in (0, 27))
        assert kept or member.timer.deadline_ms == deadline_ms


# ---------------------------------------------------------------- LeaveGroup

LEAVE_REQUESTS: dict[str, Callable[[World], tuple[str, str | None]]] = {
    "member": lambda w: (w.follower, None),
    "static": lambda w: (w.static, "one"),
    "static, no instance": lambda w: (w.static, None),
    "no id, known instance": lambda w: ("", "one"),
    "no id, unknown instance": lambda w: ("", "nine"),
    "no id": lambda w: ("", None),
    "pending id": lambda w: (w.pending or NOBODY, None),
    "unknown id": lambda w: (NOBODY, None),
    "instance of another": lambda w: (w.follower, "one"),
    "unknown instance": lambda w: (w.follower, "nine"),
}

TOP = "top-level 15"

LEAVE = {
    #                                   absent Empty  Preparing Completing Stable Dead
    "member":                           (25,   25,    0,        0,         0,     TOP),
    "static":                           (25,   25,    0,        0,         0,     TOP),
    "static, no instance":              (25,   25,    0,        0,         0,     TOP),
    "no id, known instance":            (25,   25,    0,        0,         0,     TOP),
    "no id, unknown instance":          (25,   25,    25,       25,        25,    TOP),
    "no id":                            (25,   25,    25,       25,        25,    TOP),
    "pending id":                       (25,   0,     0,        0,         0,     TOP),
    "unknown id":                       (25,   25,    25,       25,        25,    TOP),
    "instance of another":              (25,   25,    82,       82,        82,    TOP),
    "unknown instance":                 (25,   25,    25,       25,        25,    TOP),
}  # fmt: skip


@pytest.mark.parametrize(("row", "state", "expected"), cells(LEAVE))
def test_leave_depends_on_caller_and_state(row: str, state: GroupState | None, expected: Any) -> None:
    """Checks the table of LeaveGroup responses by caller and state. A successful leave starts a rebalance if the state
    permits it.
    """
    world = World().build(state)
    member_id, instance_id = LEAVE_REQUESTS[row](world)
    response = world.leave((member_id, instance_id))
    if expected == TOP:
        assert response == LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    entry = MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=expected)
    assert response == LeaveGroupResponse(members=[entry])
    if expected == 0:
        removed = world.static if row == "no id, known instance" else member_id
        assert removed not in world.group().members
        assert removed not in world.group().pending_joins
        assert world.state is (EMPTY if state is EMPTY else PREPARING)
    elif state is not ABSENT:
        assert world.state is state


@pytest.mark.parametrize(("row", "state", "expected"), cells({"member": (25, 25, 0, 0, 0, 15)}))
@pytest.mark.parametrize("version", [0, 1, 2])
def test_leave_up_to_v2_depends_on_caller_and_state(
    version: int, row: str, state: GroupState | None, expected: int
) -> None:
    """Up to v2 the request names one member, and the response has the error of this member."""
    world = World().build(state)
    assert world.leave(world.follower, version=version) == LeaveGroupResponse(error_code=expected)


# ---------------------------------------------------------------- administration


@pytest.mark.parametrize(("row", "state", "expected"), cells({"g": (69, 0, 68, 68, 68, 69)}))
def test_delete_depends_on_the_state(row: str, state: GroupState | None, expected: int) -> None:
    """Checks the table of DeleteGroups responses by state. Assigned member ids do not prevent a deletion."""
    world = World().build(state)
    world.context.records()
    assert world.delete("g", "g") == {"g": expected}
    key = group_record(0, at=0)[0]
    assert world.context.records() == ([(key, None)] if expected == 0 else [])
    assert ("g" in world.context.machine.groups) is (state not in (ABSENT, EMPTY))


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("state", COLUMNS)
def test_describe_depends_on_the_state(state: GroupState | None, version: int) -> None:
    """Checks DescribeGroups by state: the response has protocol and metadata while the group is Stable, and the last
    assignments during a rebalance.
    """
    world = World().build(state)
    described = world.describe(version=version)
    if state is ABSENT:
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        message = "Group g not found." if version >= 6 else None
        assert described == DescribedGroup(group_id="g", error_code=code, error_message=message, group_state=DEAD.value)
        return
    members = {member.member_id: member for member in described.members}
    shown = (described.error_code, described.group_state, described.protocol_type, described.protocol_data)
    assert shown == (0, state.value, "consumer", "range" if state is STABLE else "")
    there = {world.leader: b"l", world.follower: b"f", world.static: b"s"}
    if state is EMPTY:
        there = {}
    assert {name: member.member_assignment for name, member in members.items()} == there
    assert {member.member_metadata for member in members.values()} <= {META if state is STABLE else b""}


def test_authorized_operations_are_returned_on_request() -> None:
    """Without an authorizer, DescribeGroups returns all five operations of groups (bit field 3400).

    For a missing group, versions up to 5 return these operations, too. Later versions return an error instead.
    """
    world = World().build(STABLE)
    from kcore.protocol.messages.describe_groups import DescribeGroupsRequest

    for version, group, expected in ((3, "g", 3400), (5, "absent", 3400), (6, "absent", -(1 << 31)), (6, "g", 3400)):
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        (described,) = world.context.call(world.describe_api, request, version=version).groups
        assert described.authorized_operations == expected


# ---------------------------------------------------------------- the state machine itself


@pytest.mark.parametrize(
    ("state", "following"),
    [
        (EMPTY, {PREPARING, DEAD}),
        (PREPARING, {EMPTY, COMPLETING, DEAD}),
        (COMPLETING, {PREPARING, STABLE, DEAD}),
        (STABLE, {PREPARING, DEAD}),
        (DEAD, {DEAD}),
    ],
)
def test_each_state_has_its_allowed_successors(state: GroupState, following: set[GroupState]) -> None:
    """From each state, the group may change only to the listed states. Any other change fails an assertion.

    Replayed records may also change a group from Empty or Stable to either of these two states.
    """
    assert {other for other in GroupState if may_follow(state, other, recorded=False)} == following
    recorded = following | ({EMPTY, STABLE} if state in (EMPTY, STABLE) else set())
    assert {other for other in GroupState if may_follow(state, other, recorded=True)} == recorded
    assert set(STATES) == set(GroupState)
    group = World().build(STABLE).group()
    group.state = state
    for other in GroupState:
        if other not in following:
            with pytest.raises(AssertionError, match="cannot become"):
                group.transition(other, "the test wants it")


def test_transition_sets_the_timestamp_and_the_previous_state() -> None:
    """`transition` sets `previous_state` and the timestamp of the new state."""
    world = World().build(STABLE)
    world.context.advance(500)
    world.join(world.leader)
    group = world.group()
    assert (group.state, group.previous_state, group.state_timestamp_ms) == (PREPARING, STABLE, WALL_MS + 501)


def test_a_leaders_sync_writes_one_record_with_all_members() -> None:
    """The record of the leader's SyncGroup has all members. Its timestamp is the time at which the join phase ended."""
    world = World().build(COMPLETING, pending=False)
    at = world.group().state_timestamp_ms
    world.context.advance(250)
    world.sync(world.leader, {world.static: b"S", world.leader: b"L", NOBODY: b"-"})
    assert world.context.records() == [
        group_record(
            world.generation,
            world.leader,
            [
                member_record(world.leader, b"L"),
                member_record(world.follower, b"", subscription=CHANGED),
                member_record(world.static, b"S", instance="one"),
            ],
            at=at,
        )
    ]
