"""Properties of the members' state machines under random orders, losses, pauses and user calls, in virtual time."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kcore.errors import CommitFailedError, ConnectionClosedError
from kcore.protocol.topic_partition import TopicPartition
from tests.consumer_coordinator.test_scenarios import KINDS
from tests.consumer_coordinator.world import Handled, World
from tests.kit import committed

STEPS = 400
SEEDS = range(int(os.environ.get("KCORE_MEMBER_SEEDS", "5")))


class Chaos:
    """Random actions on a world, and the properties that hold after each action."""

    def __init__(self, seed: int, kind: dict[str, Any], silence: bool) -> None:
        self.world = World(seed, t=5, u=2)
        self.kind = kind
        self.silence = silence
        self.random = self.world.random
        self.diligence: dict[str, float] = {}  # the probability that a member's listener ends in a step
        self.count = 0
        self.left: list[Handled] = []
        self.unfinished: list[str] = []  # members with a commit that did not end before they were closed
        self.positions: dict[str, dict[TopicPartition, int]] = {}

    def add(self) -> None:
        name = f"m{self.count}"
        self.count += 1
        self.diligence[name] = self.random.choice([0.05, 0.7])
        positions = self.positions.setdefault(name, {})
        settings = {"auto_commit_ms": self.random.choice([None, 1_000]), "consumed": lambda: positions}
        if self.random.random() < 0.3:
            settings["instance_id"] = f"static-{name}"
        self.world.manual.add(name)  # the events are handled at random times
        self.world.member(name, *self.random.choice([["t"], ["t", "u"]]), **settings, **self.kind)

    def act(self) -> None:
        world, members = self.world, self.world.members
        choice = self.random.random()
        if choice < 0.02 and len(members) < 4:
            self.add()
        elif choice < 0.03 and len(members) > 1:
            member = self.random.choice(members)
            member.machine.close(world.now_ms, timeout_ms=5_000)
        elif choice < 0.06 and world.responses:
            index = self.random.randrange(len(world.responses))
            member, outgoing, _ = world.responses[index]
            lost = self.random.choice([ConnectionClosedError("lost"), TimeoutError("late")])
            world.responses[index] = (member, outgoing, lost)
        elif choice < 0.35 and world.responses:
            world.deliver(self.random.randrange(len(world.responses)))
        elif choice < 0.7 and members:
            self.step(self.random.choice(members))
        elif choice < 0.8 and members:
            self.consume(self.random.choice(members))
        elif choice < 0.85 and members:
            member = self.random.choice(members)
            if member.owned:
                offsets = dict.fromkeys(member.owned, self.random.randrange(100))
                member.commits.append(member.machine.commit(offsets, world.now_ms, timeout_ms=10_000))
        elif choice < 0.87 and self.silence and members:
            world.cut.symmetric_difference_update({self.random.choice(members).name})
        elif choice < 0.875:
            world.engine.advance(12_000)  # longer than a session: silent members are removed
        else:
            world.engine.advance(self.random.choice([1, 50, 300, 1_000]))
        self.check()

    def step(self, member: Handled) -> None:
        world = self.world
        world.step(member, poll=self.random.random() < 0.9)
        if member.machine.event is not None and self.random.random() < self.diligence[member.name]:
            member.handle(RuntimeError("listener") if self.random.random() < 0.03 else None)
        if member.machine.closed:
            world.members.remove(member)
            self.left.append(member)

    def consume(self, member: Handled) -> None:
        positions = self.positions[member.name]
        for partition in member.owned:
            positions[partition] = positions.get(partition, 0) + 1

    def check(self) -> None:
        """Checks the properties that hold at every moment.

        According to the members' events, no partition has two owners that the coordinator still considers members. A
        member gains or loses a partition only with an event.
        """
        for member in self.world.members:
            machine = member.machine
            if machine.closed:
                continue  # its listener may not have ended in time
            event = machine.event
            pending = set() if event is None else set(event.partitions)
            owned = set(member.owned)
            assert owned <= machine.assignment | pending, f"{member.name} lost {owned - machine.assignment} silently"
            new = machine.assignment - owned - pending - member.repeated
            assert not new, f"{member.name} got {new} silently"
        owners: dict[TopicPartition, Handled] = {}
        for member in self.world.members:
            for partition in member.owned:
                other = owners.setdefault(partition, member)
                if other is not member:
                    valid = [each.name for each in (member, other) if self.is_member(each)]
                    assert len(valid) < 2, f"{partition} belongs to {valid}"

    def is_member(self, member: Handled) -> bool:
        """Returns True if the coordinator would accept a commit of the member."""
        return self.world.is_member(member.machine.member_id, member.machine.epoch)

    def settle(self) -> None:
        """Stops the faults. Waits until the group is stable and every pending operation has ended."""
        world = self.world
        world.cut.clear()
        world.manual.clear()
        if not world.members:
            self.add()
            world.manual.clear()
        world.until(self.at_rest, limit_ms=600_000)
        world.run(15_000)  # longer than the time limit of a commit
        # A close would end these commits, too.
        members = [*world.members, *self.left]
        self.unfinished = [each.name for each in members if not all(commit.done for commit in each.commits)]
        for member in list(world.members):
            member.machine.close(world.now_ms)
        world.until(lambda: all(member.machine.closed for member in world.members), limit_ms=60_000)

    def owners(self) -> list[str]:
        """Returns the names of members that own partitions."""
        return [member.name for member in self.world.members if member.owned]

    def at_rest(self) -> bool:
        self.check()
        self.world.members[:] = [each for each in self.world.members if not each.machine.closed]
        if not self.world.members:
            return True
        subscribed = {topic for each in self.world.members for topic in each.machine.settings.topics}
        return self.world.complete(*subscribed)


def run_chaos(kind: dict[str, Any], seed: int, silence: bool) -> Chaos:
    """Runs random actions, then lets the members come to rest and close.

    Raises:
        AssertionError: a property of `Chaos.check`, `Handled.handle` or `World.check_commit` does not hold.
    """
    chaos = Chaos(seed, kind, silence)
    try:
        chaos.add()
        for _ in range(STEPS):
            chaos.act()
        chaos.settle()
    finally:
        chaos.world.close()
    return chaos


@pytest.mark.parametrize("silence", [False, True], ids=["losses", "silence"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join([kind["protocol"], *kind.get("assignors", [])]))
def test_after_random_faults_every_commit_ends_and_closed_members_own_nothing(
    kind: dict[str, Any], seed: int, silence: bool
) -> None:
    """The commits end, and the closed members own nothing, although requests were lost and members fell silent."""
    chaos = run_chaos(kind, seed, silence)
    assert chaos.unfinished == []
    assert chaos.owners() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fenced_member_commits_nothing(seed: int) -> None:
    world = World(seed, t=2)
    one, two = world.member("one", "t"), world.member("two", "t")
    world.until(lambda: len(one.owned) == len(two.owned) == 1)
    world.cut.add("one")
    world.until(lambda: len(two.owned) == 2)
    before = committed(world.engine, "g")
    world.cut.clear()
    late = one.machine.commit(dict.fromkeys(one.owned, world.random.randrange(1, 100)), world.now_ms)
    world.until(lambda: late.done)
    assert isinstance(late.error, CommitFailedError)
    assert committed(world.engine, "g") == before
    world.close()
