"""Records and epochs after a member has changed its subscription to patterns or to topics that do not exist."""

from __future__ import annotations

from typing import Any

from kcore.protocol.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions
from kcore.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey as CurrentKey,
)
from kcore.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey as MemberKey
from kcore.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataKey as EpochKey,
)
from kcore.protocol.records.consumer_group_metadata import (
    ConsumerGroupMetadataValue as EpochValue,
)
from kcore.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey as RegexKey
from kcore.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey as TargetKey,
)
from tests.group.consumer.members import GROUP, Member, World

INTERVAL_MS = 15_000
"""The assignment interval: no new target is computed until it ends."""


def epochs(world: World) -> list[tuple[Any, Any]]:
    """Returns the records of new group epochs since the last call."""
    return [(key, value) for key, value in world.records() if type(key) is EpochKey]


def with_a_replaced_pattern(world: World) -> tuple[Member, Member]:
    """Returns two members. The first one subscribes to `a`; the second one has replaced the pattern `.*` by `b`, which
    the group has not resolved.
    """
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"])
    two.join(None, subscribed_topic_regex=".*")
    everything = world.shard.machine.consumer.metadata.hash_of({"a", "b", "c"})
    assert epochs(world)[-1] == (EpochKey(group_id=GROUP), EpochValue(epoch=3, metadata_hash=everything))
    two.beat(subscribed_topic_regex="b")
    records = world.records()
    assert [type(key) for key, _ in records] == [MemberKey, RegexKey, CurrentKey]
    assert records[1] == (RegexKey(group_id=GROUP, regular_expression=".*"), None)
    return one, two


def test_the_hash_of_a_join_leaves_out_a_pattern_that_was_replaced() -> None:
    """A member replaces its pattern by one that is not resolved, which removes the old pattern without a new group
    epoch. A later join starts a new epoch, and its hash has only the topics to which the group still subscribes.
    """
    world = World({"a": 1, "b": 1, "c": 1}, group_consumer_assignment_interval_ms=INTERVAL_MS)
    with_a_replaced_pattern(world)
    Member(world, "m3").join(["a"])
    remaining = world.shard.machine.consumer.metadata.hash_of({"a"})
    assert epochs(world)[0] == (EpochKey(group_id=GROUP), EpochValue(epoch=4, metadata_hash=remaining))


def test_the_hash_of_a_leave_leaves_out_a_pattern_that_was_replaced() -> None:
    """As above, and the first member leaves: no subscription names an existing topic, so the hash is 0."""
    world = World({"a": 1, "b": 1, "c": 1}, group_consumer_assignment_interval_ms=INTERVAL_MS)
    one, _ = with_a_replaced_pattern(world)
    one.leave()
    assert world.records() == [
        (CurrentKey(group_id=GROUP, member_id="m1"), None),
        (TargetKey(group_id=GROUP, member_id="m1"), None),
        (MemberKey(group_id=GROUP, member_id="m1"), None),
        (EpochKey(group_id=GROUP), EpochValue(epoch=4, metadata_hash=0)),
    ]


def test_a_subscription_to_missing_topics_keeps_the_previous_epoch() -> None:
    """A member that subscribes only to topics that do not exist adds a pattern. Its assignment does not change, so its
    previous epoch remains valid: a repeated request with this epoch is accepted.
    """
    world = World({"a": 1}, group_consumer_assignment_interval_ms=INTERVAL_MS)
    member = Member(world, "m1")
    member.join(["missing"])
    Member(world, "m2").join(["a"])
    world.advance(INTERVAL_MS)
    assert member.beat().member_epoch == 3
    world.records()
    member.beat(subscribed_topic_regex="m.*")
    assert [type(key) for key, _ in world.records() if type(key) is not RegexKey] == [MemberKey]
    repeated = member.send(member_epoch=2, topic_partitions=[])
    assert repeated == ConsumerGroupHeartbeatResponse(member_id="m1", member_epoch=3, heartbeat_interval_ms=5_000)


def test_a_member_that_drops_all_topics_has_its_epoch_as_the_previous_one() -> None:
    """A member without any topic and partition has its current epoch as the previous one after the change, so a request
    with the older epoch is fenced.
    """
    world = World({"a": 2})
    member = Member(world, "m1")
    response = member.join(["a"])
    topic_id = world.topic_id("a")
    owned = Assignment(topic_partitions=(TopicPartitions(topic_id=topic_id, partitions=(0, 1)),))
    assert response == ConsumerGroupHeartbeatResponse(
        member_id="m1", member_epoch=2, heartbeat_interval_ms=5_000, assignment=owned
    )
    member.beat(subscribed_topic_names=[], topic_partitions=[])
    assert (world.group.members["m1"].current.member_epoch, world.group.members["m1"].current.previous_epoch) == (3, 2)
    member.beat(subscribed_topic_regex="none.*", topic_partitions=[])
    assert (world.group.members["m1"].current.member_epoch, world.group.members["m1"].current.previous_epoch) == (3, 3)
