"""Metrics of members that join, leave and expire, and of the durations of rebalances, in virtual time."""

from __future__ import annotations

from typing import Any

from kcore.group.meters import GroupMeters
from tests.group.classic.world import REBALANCE_MS, SESSION_MS
from tests.group.classic.world import World as ClassicWorld
from tests.group.consumer.members import Member, World


def counted(meters: GroupMeters, kind: str) -> tuple[int, int, int]:
    """Returns the numbers of joins, leaves and expirations for a type of group."""
    return meters.joins[kind], meters.leaves[kind], meters.expirations[kind]


def measured(meters: GroupMeters, kind: str) -> tuple[int, float]:
    """Returns the number of rebalances and their total duration in seconds."""
    times = meters.rebalance_times[kind]
    return times.count, times.total


def classic_group(world: Any) -> tuple[str, str]:
    """Makes a stable group of two members. The rebalance waits 3 s for members and 2 s for the leader's SyncGroup."""
    leader, follower = world.assign_id(), world.assign_id()
    calls = [world.join(leader), world.join(follower)]
    world.context.advance(3_000)
    world.context.advance(3_000)
    assert all(call.done for call in calls)
    waiting = world.sync(follower)
    world.context.advance(2_000)
    assert world.sync(leader, {leader: b"1", follower: b"2"}).done
    assert waiting.done
    return leader, follower


def test_a_classic_rebalance_lasts_until_the_assignment() -> None:
    world = ClassicWorld({"group.initial.rebalance.delay.ms": 3_000})
    leader, follower = classic_group(world)
    meters = world.context.machine.meters
    assert counted(meters, "classic") == (2, 0, 0)
    first = measured(meters, "classic")
    assert first == (1, 8.0), "twice the initial delay, because a member joined in the first, and the sync"
    world.leave(follower)
    assert counted(meters, "classic") == (2, 1, 0)
    assert measured(meters, "classic") == first, "the rebalance has only begun"
    world.context.advance(1_500)
    world.join(leader)
    world.sync(leader, {leader: b"all"})
    assert measured(meters, "classic") == (2, 9.5)


def test_a_rebalance_without_members_left_is_not_measured() -> None:
    world = ClassicWorld({"group.initial.rebalance.delay.ms": 3_000})
    leader, follower = classic_group(world)
    meters = world.context.machine.meters
    first = measured(meters, "classic")
    world.context.advance(SESSION_MS)
    assert world.context.machine.groups.counts["classic", "Empty"] == 1
    assert counted(meters, "classic") == (2, 2, 2), (leader, follower)
    assert measured(meters, "classic") == first


def test_members_that_miss_the_rebalance_expire() -> None:
    world = ClassicWorld({"group.initial.rebalance.delay.ms": 3_000})
    leader, follower = classic_group(world)
    meters = world.context.machine.meters
    newcomer = world.assign_id()
    world.join(newcomer)
    world.join(leader)
    left_ms = REBALANCE_MS
    while left_ms:
        world.beat(follower)
        step_ms = min(SESSION_MS - 1, left_ms)
        world.context.advance(step_ms)
        left_ms -= step_ms
    assert counted(meters, "classic") == (3, 1, 1), "heartbeats do not replace a join"


def test_a_load_counts_no_members() -> None:
    world = ClassicWorld({"group.initial.rebalance.delay.ms": 3_000})
    classic_group(world)
    world.restart()
    meters = world.context.machine.meters
    assert world.context.machine.groups.counts["classic", "Stable"] == 1
    assert counted(meters, "classic") == (0, 0, 0)
    assert measured(meters, "classic") == (0, 0.0)


def test_a_rebalance_of_a_consumer_group_lasts_until_all_have_their_target() -> None:
    world = World({"a": 4})
    one, two = Member(world, "m1"), Member(world, "m2")
    meters = world.machine.meters
    one.join(["a"])
    world.settle(one)
    count, total = measured(meters, "consumer")
    assert total == 0.0, "a single member gets its target at once"
    two.join(["a"])
    world.advance(1_200)
    one.beat()
    world.advance(800)
    world.settle(one, two)
    assert measured(meters, "consumer") == (count + 1, 2.0)
    assert counted(meters, "consumer") == (2, 0, 0)
    two.leave()
    assert counted(meters, "consumer") == (2, 1, 0)
    world.settle(one)
    world.advance(50_000)
    assert world.describe().group_state == "Empty"
    assert counted(meters, "consumer") == (2, 2, 1)
