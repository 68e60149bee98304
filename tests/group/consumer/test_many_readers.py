"""A topic changes to which many groups subscribe: the groups are notified in slices."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group import shard as group_shard
from kcore.group.consumer.group import ConsumerGroup
from tests.group.consumer.members import World

GROUPS = [f"g{number}" for number in range(7)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(group_shard, "FEW_READERS", 3)
    monkeypatch.setattr(group_shard, "READERS_PER_SLICE", 2)
    return World({"a": 1, "b": 1, "c": 1})


def join(world: World, groups: list[str], *names: str) -> None:
    """Adds a member `m` to each group. Its second heartbeat registers that the group knows the current topics."""
    for group_id in groups:
        joined = world.beat(
            group_id=group_id, member_id="m", member_epoch=0, rebalance_timeout_ms=1_000,
            subscribed_topic_names=names, topic_partitions=[],
        )  # fmt: skip
        world.beat(group_id=group_id, member_id="m", member_epoch=joined.member_epoch)


def unaware(world: World) -> list[str]:
    """Returns the groups that have not been notified of a change."""
    return [group_id for group_id, group in world.machine.groups.items() if not group.refresh_due()]  # type: ignore[attr-defined]


def test_few_groups_are_notified_of_a_change_at_once(world: World) -> None:
    join(world, GROUPS[:3], "a")
    world.machine.on_topic_changed("a")
    assert not unaware(world)
    assert not world.slices


def test_many_groups_are_notified_of_a_change_in_slices(world: World) -> None:
    """Each slice notifies a few groups of the change. In one slice, each topic that a request deletes would take 10 ms
    to notify 60,000 groups.
    """
    join(world, GROUPS, "a")
    join(world, ["other", "another"], "b")
    world.machine.on_topic_changed("a")
    left = [len(unaware(world))]
    while world.slices.step():
        left.append(len(unaware(world)))
    assert left == [9, 7, 5, 3]
    assert unaware(world) == ["other", "another"]
    assert not world.machine.changed_topics


def test_groups_of_several_changed_topics_are_notified_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    join(world, GROUPS, "a", "b", "c")
    notified: list[Any] = []

    def topic_changed(group: Any) -> None:
        notified.append(group)

    monkeypatch.setattr(ConsumerGroup, "topic_changed", topic_changed)
    for topic in ("a", "b", "c"):
        world.machine.on_topic_changed(topic)
    world.slices.finish()
    assert [group.group_id for group in notified] == GROUPS


def test_a_change_between_slices_is_not_lost(world: World) -> None:
    join(world, GROUPS, "a", "b")
    world.machine.on_topic_changed("a")
    world.slices.step()
    join(world, GROUPS, "a", "b")
    world.machine.on_topic_changed("b")
    world.slices.finish()
    assert not unaware(world)
