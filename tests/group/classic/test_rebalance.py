"""Rebalances in virtual time: parked requests, timeouts, and removed members."""

from __future__ import annotations

import pytest

from kcore.group.classic.group import NEW_MEMBER_TIMEOUT_MS
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kcore.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from tests.group.classic.world import (
    CHANGED,
    COMPLETING,
    EMPTY,
    META,
    PREPARING,
    REBALANCE_MS,
    SESSION_MS,
    STABLE,
    World,
    group_record,
    join_refused,
    sync_refused,
    synced,
)
from tests.harness import WALL_MS

DELAY_MS = 3000


def delayed_world(**settings: int) -> World:
    """Returns a world with an initial rebalance delay."""
    return World({"group.initial.rebalance.delay.ms": DELAY_MS, **settings})


# ---------------------------------------------------------------- the initial delay (KIP-134)


def test_initial_delay_is_not_repeated_without_new_members() -> None:
    """The first member of an empty group gets its response when the delay ends."""
    world = delayed_world()
    call = world.join(version=3)
    world.context.advance(DELAY_MS - 1)
    assert not call.done
    world.context.advance(1)
    assert call.response == JoinGroupResponse(
        generation_id=1,
        protocol_name="range",
        leader=call.response.member_id,
        member_id=call.response.member_id,
        members=[JoinGroupResponseMember(member_id=call.response.member_id, metadata=META)],
    )


def test_initial_delay_is_repeated_while_members_join() -> None:
    """A member that joins during the initial delay starts a further delay. All delays together last at most as long as
    the first member's rebalance timeout.
    """
    world = delayed_world()
    first = world.join(version=3, rebalance_ms=10_000)
    others = []
    for at_ms in (1000, 4000, 7000, 9500):  # one new member in each delay, the last of which is 1 s long
        world.context.advance(at_ms - world.context.clock.monotonic_ms())
        assert not first.done
        others.append(world.join(version=3))
    world.context.advance(499)
    assert not first.done
    world.context.advance(1)
    assert first.done
    assert all(call.done for call in others)
    assert len(world.group().members) == 5
    assert world.context.clock.monotonic_ms() == 10_000


def test_initial_delay_does_not_end_when_all_members_have_joined() -> None:
    """In the initial join phase, the group waits for the delay even if all its members have joined. A later join phase
    would end at this point.
    """
    world = delayed_world()
    call = world.join(version=3)
    assert world.group().has_all_members_joined()
    world.join(version=3)
    assert world.state is PREPARING
    assert not call.done


def test_initial_delay_longer_than_the_rebalance_timeout_is_not_repeated() -> None:
    """If the initial delay exceeds the first member's rebalance timeout, new members do not prolong the delay."""
    world = delayed_world()
    call = world.join(version=3, rebalance_ms=1000)
    world.context.advance(2000)
    world.join(version=3)
    world.context.advance(999)
    assert not call.done
    world.context.advance(1)
    assert call.done


def test_initial_delay_applies_again_after_the_group_was_empty() -> None:
    """The delay applies to every group that leaves Empty, not only to new groups."""
    world = delayed_world()
    member = world.join(version=3)
    world.context.advance(DELAY_MS)
    world.sync(member.response.member_id)
    world.leave(member.response.member_id)
    assert world.state is EMPTY
    again = world.join(version=3)
    world.context.advance(DELAY_MS - 1)
    assert not again.done
    world.context.advance(1)
    assert again.response.generation_id == 3


def test_assigned_ids_neither_prolong_nor_delay_the_initial_phase() -> None:
    """Assigned member ids do not count in the initial phase, and stay valid after it."""
    world = delayed_world()
    call = world.join(version=3)
    world.context.advance(1000)
    pending = world.assign_id()
    world.context.advance(DELAY_MS - 1000)
    assert call.done
    assert pending in world.group().pending_joins


def test_initial_phase_ends_early_when_the_last_missing_id_expires() -> None:
    """A member id is assigned but never used, and all members are parked. When the id expires, the initial phase ends
    before its delay, as in Kafka 4.
    """
    world = delayed_world()
    world.assign_id(session_ms=500)
    call = world.join(version=3)
    world.context.advance(499)
    assert not call.done
    world.context.advance(1)
    assert call.done


def test_all_members_leave_during_the_initial_phase() -> None:
    """The phase continues until its timer fires, and ends with an empty generation."""
    world = delayed_world()
    call = world.join(version=3, client="a")
    member_id = next(iter(world.group().members))
    world.context.records()
    world.leave(member_id)
    assert call.response == join_refused(ErrorCode.UNKNOWN_MEMBER_ID, "", 3)
    assert world.state is PREPARING
    world.context.advance(DELAY_MS)
    assert world.state is EMPTY
    assert world.context.records() == [group_record(1, at=WALL_MS + DELAY_MS)]


# ---------------------------------------------------------------- join phases


def test_first_join_of_a_group_is_recorded_and_starts_the_rebalance() -> None:
    """A JoinGroup v3 creates the group, writes a record of the new group, and starts a rebalance. The replay of this
    record does not end the rebalance.
    """
    world = World()
    call = world.join(version=3)
    assert world.context.records() == [group_record(0, at=WALL_MS, protocol_type="")]
    assert (world.state, world.generation, len(world.group().members)) == (PREPARING, 0, 1)
    world.context.advance(0)
    assert call.response.generation_id == 1


def test_rebalance_timeout_drops_dynamic_members_and_keeps_static_ones() -> None:
    """At the timeout the members that have joined form the generation. An absent static member stays in the group with
    its metadata.
    """
    world = World().build(PREPARING, pending=False)
    for _ in range(6):
        world.context.advance(9_990)
        assert not world.waiting.done
        assert world.beat(world.leader) == ErrorCode.REBALANCE_IN_PROGRESS
        world.beat(world.static)
    world.context.advance(60)
    assert world.waiting.response == JoinGroupResponse(
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader=world.follower,
        member_id=world.follower,
        members=[
            JoinGroupResponseMember(member_id=world.follower, metadata=CHANGED),
            JoinGroupResponseMember(member_id=world.static, group_instance_id="one", metadata=META),
        ],
    )
    assert world.beat(world.leader) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(world.static) == ErrorCode.NONE


@pytest.mark.parametrize("timeout_ms", [0, -2, -(1 << 31), 99])
def test_a_join_phase_for_absent_static_members_pauses_between_its_timeouts(timeout_ms: int) -> None:
    """A static member with a short rebalance timeout is the last one, and does not join again. After the first timeout
    of the join phase, each further timeout takes 100 ms, until the session of the member ends.
    """
    world = World().build(EMPTY, pending=False)
    leader = world.join(version=3)
    world.context.advance(0)
    static = world.join(instance="two", rebalance_ms=timeout_ms)
    leader = world.join(leader.response.member_id, version=3)
    waiting = world.sync(static.response.member_id, instance="two")
    world.sync(leader.response.member_id)
    assert waiting.response == synced(b"")
    world.leave(leader.response.member_id)
    phase = world.group().join_phase
    assert phase is not None
    phase.payload()
    continued = world.group().join_phase
    assert continued is not None
    assert continued.deadline_ms == world.context.now.now_ms + 100
    assert world.state is PREPARING
    world.context.advance(SESSION_MS)
    assert world.state is EMPTY


def test_absent_static_members_alone_wait_for_their_sessions() -> None:
    """If only absent static members remain, the phase is prolonged until their sessions end. Then
    the group is Empty.
    """
    world = World()
    one = world.join(instance="one", rebalance_ms=1000)
    world.context.advance(0)
    static = one.response.member_id
    world.sync(static, {static: b"s"})
    dynamic = world.assign_id(rebalance_ms=1000)
    world.join(dynamic, rebalance_ms=1000)
    assert world.state is PREPARING
    world.leave(dynamic)
    assert world.state is PREPARING
    world.context.records()
    world.context.advance(SESSION_MS - 1)
    assert world.state is PREPARING
    world.context.advance(1)
    assert world.state is EMPTY
    assert world.context.records() == [group_record(2, at=world.context.now.wall_ms)]


def test_later_joiners_do_not_prolong_a_rebalance() -> None:
    """The timeout of a rebalance is the maximum of the timeouts of the members at its start."""
    world = World()
    first = world.join(version=3, rebalance_ms=2000)
    world.context.advance(0)
    world.sync(first.response.member_id)
    newcomer = world.join(version=3, rebalance_ms=2000)
    world.join(version=3, rebalance_ms=300_000)
    world.context.advance(1999)
    assert not newcomer.done
    world.context.advance(1)
    assert newcomer.done


def test_first_join_without_a_response_expires_after_five_minutes() -> None:
    """While a new member's first join is parked, its session is suspended for at most five minutes (KAFKA-7610)."""
    world = World()
    member = world.join(version=3, session_ms=100)
    world.context.advance(0)
    other = world.assign_id(rebalance_ms=2_000_000)
    waiting = world.join(other, rebalance_ms=2_000_000, session_ms=100)
    member_id = member.response.member_id
    while world.context.clock.monotonic_ms() < NEW_MEMBER_TIMEOUT_MS - 50:
        world.context.advance(50)
        assert world.beat(member_id) == ErrorCode.REBALANCE_IN_PROGRESS
        assert not waiting.done
    world.context.advance(50)
    assert waiting.response == join_refused(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_parked_member_does_not_expire_and_its_session_starts_with_the_response() -> None:
    """A member that waits for a response cannot send heartbeats. Its session restarts with the response."""
    world = World().build(PREPARING, pending=False)
    for _ in range(3):
        world.context.advance(SESSION_MS - 1)
        world.beat(world.leader)
        world.beat(world.static)
    assert world.follower in world.group().members
    world.join(world.static)
    world.join(world.leader)
    assert world.waiting.done
    member = world.group().members[world.follower]
    assert member.timer.deadline_ms == world.context.now.now_ms + SESSION_MS


def test_leader_that_left_is_replaced() -> None:
    """When the leader leaves, the member that joined first becomes the leader."""
    world = World().build(STABLE, pending=False)
    world.leave(world.leader)
    assert world.group().leader_id == world.follower


def test_protocol_is_chosen_by_vote() -> None:
    """Each member votes for its first protocol that all members support. If the votes are equal, the order of Java's
    hash map decides, which has "a" before "b".
    """
    world = World()
    leader = world.join(version=3, offer=[("a", b"a1"), ("b", b"b1"), ("c", b"c1")])
    world.context.advance(0)
    leader_id = leader.response.member_id
    second = world.join(version=3, offer=[("x", b""), ("b", b"b2"), ("a", b"a2")])
    world.join(leader_id, offer=[("a", b"a1"), ("b", b"b1"), ("c", b"c1")])
    assert second.response.protocol_name == "a"  # one vote each
    third = world.join(version=3, offer=[("b", b"b3"), ("a", b"a3")])
    world.join(second.response.member_id, offer=[("x", b""), ("b", b"b2"), ("a", b"a2")])
    last = world.join(leader_id, offer=[("a", b"a1"), ("b", b"b1"), ("c", b"c1")])
    assert third.response.protocol_name == "b"  # two votes to one
    assert [member.metadata for member in last.response.members] == [b"b1", b"b2", b"b3"]


@pytest.mark.parametrize(
    ("leader_offer", "other_offer", "chosen"),
    [
        (["cooperative-sticky", "range"], ["range", "cooperative-sticky"], "range"),
        (["range", "cooperative-sticky"], ["cooperative-sticky", "range"], "range"),
        (["roundrobin", "range"], ["range", "roundrobin"], "range"),
        (["sticky", "roundrobin"], ["roundrobin", "sticky"], "sticky"),
        (["sticky", "cooperative-sticky"], ["cooperative-sticky", "sticky"], "sticky"),
    ],
)
def test_a_tie_of_votes_is_broken_by_the_order_of_a_hash_map(
    leader_offer: list[str], other_offer: list[str], chosen: str
) -> None:
    """The protocol that a Java `HashMap` of the names yields first is chosen, not the one that the leader prefers."""
    world = World()
    leader = world.join(version=3, offer=[(name, b"") for name in leader_offer])
    world.context.advance(0)
    other = world.join(version=3, offer=[(name, b"") for name in other_offer])
    world.join(leader.response.member_id, offer=[(name, b"") for name in leader_offer])
    assert other.response.protocol_name == chosen


def test_protocol_named_twice_counts_once() -> None:
    """A member that names a protocol twice counts once, with the first metadata."""
    world = World()
    call = world.join(version=3, offer=[("range", b"first"), ("range", b"second")])
    world.context.advance(0)
    assert [member.metadata for member in call.response.members] == [b"first"]
    other = world.join(version=3)
    world.join(call.response.member_id, offer=[("range", b"first"), ("range", b"second")])
    assert other.response.error_code == 0


def test_emptied_group_takes_another_protocol_type() -> None:
    """An Empty group keeps its protocol type until a member joins. This member may set another type."""
    world = World().build(EMPTY, pending=False)
    assert world.describe().protocol_type == "consumer"
    call = world.join(version=3, protocol_type="connect", offer=[("sessioned", b"\x00")])
    world.context.advance(0)
    assert call.response.generation_id == 4
    assert world.describe().protocol_type == "connect"


def test_undecodable_metadata_does_not_prevent_completion() -> None:
    """A member joins with metadata that is not a valid subscription. The join completes nevertheless, and the group's
    topics are unknown.
    """
    world = World()
    call = world.join(version=3, offer=[("range", b"text, no subscription")])
    world.context.advance(0)
    assert call.response.error_code == 0
    assert world.group().subscribed_topics is None


# ---------------------------------------------------------------- the sync phase


def test_members_that_do_not_sync_are_removed() -> None:
    """Members that have not sent SyncGroup within the rebalance timeout are removed, and the others rebalance
    (KAFKA-12890).
    """
    world = World().build(COMPLETING, pending=False)
    sync = world.sync(world.follower)
    for _ in range(REBALANCE_MS // 5000 - 1):
        world.context.advance(5000)
        assert world.beat(world.leader) == world.beat(world.static) == 0
    assert not sync.done
    world.context.advance(5000)
    assert sync.response == sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert set(world.group().members) == {world.follower}
    assert world.state is PREPARING


def test_follower_that_does_not_sync_is_removed_from_a_stable_group() -> None:
    """The sync phase continues in Stable until every member has sent SyncGroup."""
    world = World().build(COMPLETING, pending=False)
    world.sync(world.leader, {})
    world.sync(world.static)
    assert world.state is STABLE
    for _ in range(REBALANCE_MS // 5000):
        for member_id in (world.leader, world.follower, world.static):
            assert world.beat(member_id) == 0
        world.context.advance(5000)
    assert set(world.group().members) == {world.leader, world.static}
    assert world.state is PREPARING


def test_sync_phase_ends_with_the_last_sync() -> None:
    """Once all members have sent SyncGroup, none is removed."""
    world = World().build(COMPLETING, pending=False)
    world.sync(world.leader, {})
    world.sync(world.static)
    assert world.group().sync_phase is not None
    world.sync(world.follower)
    assert world.group().sync_phase is None


def test_sync_in_stable_does_not_re_arm_the_session() -> None:
    """Since Kafka 4, neither a SyncGroup in Stable nor a rejoin that completes at once re-arms the session."""
    world = World().build(STABLE, pending=False)
    world.context.advance(SESSION_MS - 1)
    assert world.sync(world.follower).response == synced(b"f")
    assert world.join(world.follower).done
    world.beat(world.leader)
    world.beat(world.static)
    world.context.advance(1)
    assert world.follower not in world.group().members


def test_completed_syncs_restart_sessions() -> None:
    """The leader's assignment completes parked syncs and restarts their members' sessions."""
    world = World().build(COMPLETING, pending=False)
    world.sync(world.follower)
    world.context.advance(SESSION_MS - 1)
    world.sync(world.leader, {})
    for member_id in (world.leader, world.follower):
        assert world.group().members[member_id].timer.deadline_ms == world.context.now.now_ms + SESSION_MS
    world.context.advance(1)
    assert world.static not in world.group().members  # its session continued


def test_assignment_that_is_too_large_fails_the_sync_phase() -> None:
    """A record that is too large is refused before any member gets its assignment. All members get error -1, and the
    group rebalances.
    """
    world = World().build(COMPLETING, pending=False)
    sync = world.sync(world.follower)
    call = world.sync(world.leader, {world.follower: bytes(1_100_000)})
    assert call.response == sync.response == sync_refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.state is PREPARING
    assert world.context.records() == []
    assert {member.assignment for member in world.group().members.values()} == {b""}


def test_largest_assignment_that_fits_is_written() -> None:
    """An assignment that is a few hundred bytes smaller than the largest batch is accepted."""
    world = World().build(COMPLETING, pending=False)
    call = world.sync(world.leader, {world.leader: bytes(1_048_588 - 1200)})
    assert call.response.error_code == 0
    assert len(world.context.records()) == 1


# ---------------------------------------------------------------- leaving


def test_all_members_leave_at_once() -> None:
    """The join phase ends at once: the group is Empty in the next generation, and a record is written."""
    world = World().build(STABLE, pending=False)
    generation = world.generation
    response = world.leave(world.leader, world.follower, ("", "one"))
    assert response == LeaveGroupResponse(
        members=[
            MemberResponse(member_id=world.leader, group_instance_id=None),
            MemberResponse(member_id=world.follower, group_instance_id=None),
            MemberResponse(member_id="", group_instance_id="one"),
        ]
    )
    assert world.state is EMPTY
    assert world.context.records() == [group_record(generation + 1, at=world.context.now.wall_ms)]


def test_leave_of_a_pending_member_ends_a_join_phase_that_waited_for_it() -> None:
    """A rebalance waits for assigned member ids until they join, leave or expire."""
    world = World().build(PREPARING)
    world.join(world.static)
    world.join(world.leader)
    assert not world.waiting.done
    world.leave(world.pending)
    assert world.waiting.done


def test_leave_completes_a_parked_sync() -> None:
    """The parked SyncGroup of a member that leaves gets UNKNOWN_MEMBER_ID, and the others rebalance."""
    world = World().build(COMPLETING, pending=False)
    gone, stays = world.sync(world.follower), world.sync(world.static)
    world.leave(world.follower)
    assert gone.response == sync_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert stays.response == sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_leave_without_members_changes_nothing() -> None:
    """An empty list of members is valid, with or without a group."""
    world = World().build(STABLE)
    assert world.leave() == world.leave(group="absent") == LeaveGroupResponse()
    assert world.state is STABLE
