"""Static members that return under the other protocol (KIP-345 with KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.protocol.consumer_protocol import Assignment, Subscription
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.protocol.records.consumer_group_current_member_assignment import ConsumerGroupCurrentMemberAssignmentKey
from tests.group.consumer.members import GROUP, Member, World


def join(world: World, instance_id: str, member_id: str = "") -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=Subscription(topics=["a"]).encode_versioned(3))],
    )
    return world.call(JoinGroupApi(world.shards, world.config), request)


def sync(world: World, joined: Any, instance_id: str) -> list[int]:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    response = world.call(SyncGroupApi(world.shards), request)
    assert response.error_code == ErrorCode.NONE
    (topic,) = Assignment.decode_versioned(response.assignment)[0].assigned_partitions
    return list(topic.partitions)


@pytest.mark.parametrize("member_id", ["", "m1"])
def test_the_only_consumer_member_returns_as_a_classic_one(member_id: str) -> None:
    """A static member, the only one of a consumer group, returns as a classic member, with a new id or with its own id.
    The group becomes a classic group without a rebalance. Its generation is the group epoch, and the member keeps its
    partitions.
    """
    world = World({"a": 3}, group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=0)
    member = Member(world, "m1", "i1")
    member.join(["a"])
    joined = join(world, "i1", member_id)
    expected = (ErrorCode.NONE, 2, "range", "", ())
    response = (joined.error_code, joined.generation_id, joined.protocol_name, joined.leader, tuple(joined.members))
    assert response == expected
    group = world.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name(), group.generation_id, list(group.members)) == ("Stable", 2, [joined.member_id])
    assert sync(world, joined, "i1") == [0, 1, 2]
    beat = HeartbeatRequest(group_id=GROUP, generation_id=2, member_id=joined.member_id, group_instance_id="i1")
    world.advance(5_999)
    assert world.call(HeartbeatApi(world.shards), beat).error_code == ErrorCode.NONE
    assert member.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert world.call(HeartbeatApi(world.shards), beat).error_code == ErrorCode.NONE
    world.advance(6_000)
    assert world.machine.groups[GROUP].state_name() == "Empty"


def test_the_log_has_the_last_assignment_of_a_member_that_returns_from_a_leave_as_a_classic_one() -> None:
    """A static member has left for a while (epoch -2), and returns as a classic member. As in Kafka, the log has the
    assignment that the member gets in the consumer group, and then the tombstones of the consumer group.
    """
    world = World({"a": 3}, group_min_session_timeout_ms=1, group_initial_rebalance_delay_ms=0)
    member = Member(world, "m1", "i1")
    member.join(["a"])
    member.leave(-2)
    world.records()
    joined = join(world, "i1")
    assert joined.generation_id == 2
    rows = [
        (key.member_id == joined.member_id, value and (value.member_epoch, value.previous_member_epoch, value.state))
        for key, value in world.records()
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
    ]
    assert rows == [(False, None), (True, (0, 0, 0)), (True, (2, 0, 0)), (True, None)]
    assert sync(world, joined, "i1") == [0, 1, 2]


def test_a_classic_static_member_returns_as_a_consumer_member() -> None:
    """In a mixed group, the member returns under another id, with its partitions and without a new group epoch."""
    world = World({"a": 4}, group_min_session_timeout_ms=1)
    other = Member(world, "m1")
    other.join(["a"])
    joined = join(world, "i1")
    other.ack()
    other.ack()
    joined = join_again(world, joined)
    has = sync(world, joined, "i1")
    assert len(has) == 2
    epoch = world.group.group_epoch
    back = Member(world, "m2", "i1")
    back.join(["a"])
    assert (back.has(), world.group.group_epoch) == ({"a": sorted(has)}, epoch)
    assert set(world.group.members) == {"m1", "m2"}
    assert world.group.subscriptions.classic_members == 0


def join_again(world: World, joined: Any) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id=joined.member_id,
        group_instance_id="i1",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=Subscription(topics=["a"]).encode_versioned(3))],
    )
    return world.call(JoinGroupApi(world.shards, world.config), request)
