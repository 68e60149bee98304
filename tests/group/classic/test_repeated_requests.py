"""Members that join again: static members (KIP-345), and requests sent twice."""

from __future__ import annotations

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from tests.group.classic.world import (
    CHANGED,
    COMPLETING,
    META,
    PREPARING,
    REBALANCE_MS,
    SESSION_MS,
    STABLE,
    World,
    group_record,
    join_refused,
    member_record,
    sync_refused,
    synced,
)

# ---------------------------------------------------------------- static members (KIP-345)


@pytest.mark.parametrize("version", [5, 7, 8, 9])
def test_a_static_leader_rejoins_without_a_rebalance(version: int) -> None:
    """A static leader joins again under a new member id, which the group's record contains. Generation and assignments
    stay.

    The response of version 9 tells the leader to skip the assignment. Earlier versions name the old id as the leader.
    """
    world = World()
    old = world.join(instance="one", client="old", version=version)
    world.context.advance(0)
    old_id = old.response.member_id
    world.sync(old_id, {old_id: b"A"})
    stamp = world.group().state_timestamp_ms
    world.context.records()
    world.context.advance(3000)
    call = world.join(instance="one", client="new", version=version, session_ms=20_000)
    new_id = call.response.member_id
    everybody = [JoinGroupResponseMember(member_id=new_id, group_instance_id="one", metadata=META)]
    assert call.response == JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer" if version >= 7 else None,
        protocol_name="range",
        leader=new_id if version >= 9 else old_id,
        skip_assignment=version >= 9,
        member_id=new_id,
        members=everybody if version >= 9 else [],
    )
    member = member_record(new_id, b"A", instance="one", client_id="old", session_timeout=20_000)
    assert world.context.records() == [group_record(1, new_id, [member], at=stamp)]
    assert world.group().members[new_id].timer.deadline_ms == world.context.now.now_ms + SESSION_MS  # the old session
    assert world.sync(new_id).response == synced(b"A")
    assert world.beat(old_id, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    assert world.beat(old_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_rejoins_while_others_sync() -> None:
    """In CompletingRebalance, a static member joins again, which starts a rebalance.

    The SyncGroup that the member had parked under its old id gets FENCED_INSTANCE_ID. Parked SyncGroups of other
    members get REBALANCE_IN_PROGRESS.
    """
    world = World().build(COMPLETING, pending=False)
    mine, other = world.sync(world.static), world.sync(world.follower)
    call = world.join(instance="one")
    assert mine.response == sync_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert other.response == sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not call.done
    assert world.state is PREPARING


def test_static_member_replaced_before_its_sync_stays_in_pending_syncs() -> None:
    """A static member gets a new id before it has sent SyncGroup, and sends SyncGroup under the new id.

    As in Kafka, the group still waits for the SyncGroup of the old id, and rebalances at the timeout.
    """
    world = World().build(COMPLETING, pending=False)
    world.sync(world.leader, {})
    world.sync(world.follower)
    new_id = world.join(instance="one").response.member_id
    assert world.sync(new_id).response == synced(b"")
    for _ in range(REBALANCE_MS // 5000):
        assert world.state is STABLE
        for member_id in (world.leader, world.follower, new_id):
            assert world.beat(member_id) == 0
        world.context.advance(5000)
    assert world.state is PREPARING
    assert set(world.group().members) == {world.leader, world.follower, new_id}


def test_static_member_rejoins_with_metadata_too_large_for_a_record() -> None:
    """The record of the generation would be too large with the new id, so the group rebalances."""
    world = World().build(COMPLETING, pending=False)
    assert world.sync(world.leader, {world.leader: bytes(1_047_000)}).done
    world.context.records()
    assert not world.join(instance="one", offer=[("range", bytes(2000))]).done
    assert world.state is PREPARING
    assert world.context.records() == []


# ---------------------------------------------------------------- requests sent twice


def test_join_sent_twice_gets_two_responses() -> None:
    """At most two joins of a member are parked, and both get the same response. When a third join arrives, the oldest
    join is refused at once.
    """
    world = World().build(PREPARING, pending=False)
    second = world.join(world.follower, offer=[("range", CHANGED)])
    third = world.join(world.follower, offer=[("range", CHANGED)])
    assert world.waiting.response == join_refused(ErrorCode.REBALANCE_IN_PROGRESS, world.follower)
    assert not second.done
    world.join(world.static)
    world.join(world.leader)
    assert second.response == third.response
    assert third.response.generation_id == 3
    assert world.group().superseded == {}


def test_join_sent_twice_in_two_versions_is_refused_in_both() -> None:
    """Each refusal has the format of its own request's version: since v7, a missing protocol name is null."""
    world = World()
    old = world.join(version=3)
    (member_id,) = world.group().members
    new = world.join(member_id, version=9)
    world.leave(member_id)
    assert old.response == join_refused(ErrorCode.UNKNOWN_MEMBER_ID, "", 3)
    assert new.response == join_refused(ErrorCode.UNKNOWN_MEMBER_ID, "", 9)


def test_sync_sent_twice_gets_two_responses() -> None:
    """At most two SyncGroups of a member are parked, and both get the assignment. When a third SyncGroup arrives, the
    oldest is refused at once.
    """
    world = World().build(COMPLETING, pending=False)
    first, second, third = (world.sync(world.follower) for _ in range(3))
    assert first.response == sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    world.sync(world.leader, {world.follower: b"F"})
    assert second.response == third.response == synced(b"F")
    assert world.group().superseded == {}
