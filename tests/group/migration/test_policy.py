"""Every value of `group.consumer.migration.policy`: the joins that it permits, and the resulting conversions."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration.policy import POLICIES, migration_policy
from kcore.protocol.error_codes import ErrorCode
from tests.group.consumer.members import GROUP, Member, World
from tests.group.migration.members import ClassicClient

JOIN: dict[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 6_000,
    "subscribed_topic_names": ["a"],
    "topic_partitions": [],
}


def world_with(policy: str) -> World:
    return World(
        {"a": 4},
        group_consumer_migration_policy=policy,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1,
    )


def classic_alone(world: World) -> ClassicClient:
    """Creates a stable classic group with one member. Returns the member."""
    client = ClassicClient(world, ["a"])
    for _ in range(10):
        client.step()
        world.advance(10)
    assert client.uses == {("a", partition) for partition in range(4)}
    return client


@pytest.mark.parametrize("policy", POLICIES)
def test_the_policy_decides_whether_a_consumer_member_may_join_a_classic_group(policy: str) -> None:
    """Either the group becomes a consumer group, or the member gets GROUP_ID_NOT_FOUND and nothing changes."""
    world = world_with(policy)
    client = classic_alone(world)
    world.records()
    response = Member(world, "m1").send(**JOIN)
    if migration_policy(policy).upgrade:
        assert response.error_code == ErrorCode.NONE
        assert isinstance(world.machine.groups[GROUP], ConsumerGroup)
    else:
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.records() == []
        assert isinstance(world.machine.groups[GROUP], ClassicGroup)
    client.beat()
    assert client.member_id, "the classic member has joined nevertheless"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_classic_member_joins_a_consumer_group(policy: str) -> None:
    """Every policy except `disabled` admits the member."""
    world = world_with(policy)
    Member(world, "m1").join(["a"])
    client = ClassicClient(world, ["a"])
    code = client.join().response.error_code
    expected = ErrorCode.MEMBER_ID_REQUIRED if migration_policy(policy).mixed else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code == expected


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "disabled"])
def test_the_last_consumer_member_leaves(policy: str) -> None:
    """The group becomes a classic group and rebalances, or stays a consumer group of classic members."""
    world = world_with(policy)
    member = Member(world, "m1")
    member.join(["a"])
    client = ClassicClient(world, ["a"])
    for _ in range(12):
        client.step()
        member.ack()
    assert len(client.uses) == 2
    member.leave()
    kind = ClassicGroup if migration_policy(policy).downgrade else ConsumerGroup
    assert isinstance(world.machine.groups[GROUP], kind)
    for _ in range(12):
        client.step()
        world.advance(200)
    assert len(client.uses) == 4
    before = world.machine.groups[GROUP].state_name()
    world.restart()
    assert isinstance(world.machine.groups[GROUP], kind)
    assert world.machine.groups[GROUP].state_name() == before == "Stable"


@pytest.mark.parametrize("policy", POLICIES)
def test_empty_groups_convert_under_every_policy(policy: str) -> None:
    """An empty classic group becomes a consumer group, and an empty consumer group becomes a classic group."""
    world = world_with(policy)
    client = classic_alone(world)
    client.leave()
    member = Member(world, "m1")
    member.join(["a"])
    assert isinstance(world.machine.groups[GROUP], ConsumerGroup)
    member.leave()
    classic_alone(world)
    assert isinstance(world.machine.groups[GROUP], ClassicGroup)


def test_a_policy_name_is_case_insensitive() -> None:
    """As in Kafka, the name may have upper and lower case."""
    assert migration_policy("Bidirectional") == migration_policy("bidirectional")


def test_a_failed_conversion_leaves_the_classic_group_as_it_was() -> None:
    """After the failed commit the shard is reloaded. The classic group still exists, and its member continues."""
    world = world_with("bidirectional")
    client = classic_alone(world)
    world.fail_next_commit()
    response = Member(world, "m1").send(**JOIN)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    assert isinstance(world.machine.groups[GROUP], ClassicGroup)
    client.beat()
    assert len(client.uses) == 4


def test_a_classic_member_that_does_not_rejoin_is_removed() -> None:
    """A classic member learns of the rebalance from a heartbeat response, but sends only heartbeats instead of joining
    again. It is removed when its rebalance timeout has passed since this response.
    """
    world = world_with("bidirectional")
    client = classic_alone(world)
    member = Member(world, "m1")
    member.join(["a"])
    for _ in range(6):
        client.phase = "work"
        client.beat()
        assert client.uses
        world.advance(1_000)
    assert list(world.group.members) == ["m1"]
