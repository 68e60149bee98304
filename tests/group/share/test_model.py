"""Share groups under any interleaving of members, faults, topics and restarts, in virtual time.

A seed determines all events. After every step the invariants of the group are checked. Once the faults stop, every
member must get its target, and every initialized partition of a subscribed topic must have a member.
"""

from __future__ import annotations

import random

import pytest

from kcore.group.share.group import ShareGroup
from kcore.group.share.partitions import StatePartitions, from_value
from kcore.group.share.states import ABSENT, DELETING, INITIALIZED, INITIALIZING, PHASES, StatePhase
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.records.share_group_state_partition_metadata import ShareGroupStatePartitionMetadataKey
from tests.group.share.world import GROUP, Member, World

STEPS = 120
TOPICS = ("ta", "tb", "tc")
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
AWAY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
BEAT_MS = 5_000


class Model:
    """The world, its members, and the invariants."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        interval_ms = self.rng.choice([0, 0, 1_000])
        self.world = World({"ta": 3, "tb": 2}, group_share_assignment_interval_ms=interval_ms)
        self.names: dict[str, list[str]] = {}
        self.members: list[Member] = []
        self.epochs = (0, 0)
        self.ids = 0
        self.join()

    def join(self) -> None:
        self.ids += 1
        member = Member(self.world, f"m{self.ids}")
        self.members.append(member)
        self.choose(member)

    def choose(self, member: Member) -> None:
        self.names[member.member_id] = sorted(self.rng.sample(TOPICS, self.rng.randint(1, 3)))

    def beat(self, member: Member, full: bool = False) -> None:
        """Sends one heartbeat. A fenced member drops its partitions and rejoins."""
        names = self.names[member.member_id] if full or member.epoch == 0 else None
        code = member.beat(names).error_code
        if code in LOST:
            member.epoch, member.assigned = 0, {}
        else:
            assert code in (ErrorCode.NONE, *AWAY), code

    def step(self) -> None:
        """Runs one event."""
        rng, world = self.rng, self.world
        what = rng.random()
        if what < 0.55:
            self.beat(rng.choice(self.members), full=rng.random() < 0.2)
        elif what < 0.62:
            member = rng.choice(self.members)
            self.choose(member)
            self.beat(member, full=True)
        elif what < 0.70:
            world.advance(rng.randint(1, 2 * BEAT_MS))
        elif what < 0.76 and len(self.members) < 6:
            self.join()
        elif what < 0.81 and len(self.members) > 1:
            member = self.members.pop(rng.randrange(len(self.members)))
            if rng.random() < 0.5 and member.epoch:
                world.beat(member.member_id, -1)
        elif what < 0.87:
            self.change_topics()
        elif what < 0.92:
            world.persister.fail.append(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif what < 0.96:
            world.fail_next_commit()
            self.beat(rng.choice(self.members), full=True)
            world.stop_failing()
            world.advance(1)
        else:
            world.restart()

    def change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        topic = self.world.engine.topics.by_name(name)
        if topic is None:
            self.world.make_topic(name, self.rng.randint(1, 3))
        elif self.rng.random() < 0.5:
            self.world.drop_topic(name)
        else:
            self.world.grow_topic(name, topic.partitions + 1)
        self.world.advance(1)

    def group(self) -> ShareGroup | None:
        group = self.world.engine.groups.of(GROUP).machine.groups.get(GROUP)
        assert group is None or isinstance(group, ShareGroup)
        return group

    def check(self) -> None:
        """Checks that epochs never decrease, and that members have only initialized partitions of subscribed topics."""
        group = self.group()
        if group is None:
            return
        epochs = (group.group_epoch, group.assignment_epoch)
        assert epochs[0] >= self.epochs[0]
        assert epochs[1] >= self.epochs[1]
        assert epochs[0] >= epochs[1]
        self.epochs = epochs
        state = group.state_partitions
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                if self.world.engine.topics.by_id(topic_id) is not None:
                    assert state.initialized_of(topic_id).issuperset(partitions)
        assert group.targets.keys() <= group.members.keys()
        counted: dict[str, int] = {}
        for member in group.members.values():
            assert member.current.previous_epoch < member.current.member_epoch <= group.group_epoch
            for name in member.metadata.names:
                counted[name] = counted.get(name, 0) + 1
        assert group.names == counted

    def come_to_rest(self) -> None:
        """Stops the faults. All members that are not silent send heartbeats until the silent members expire."""
        self.world.persister.fail.clear()
        for _ in range(12):
            for member in self.members:
                self.beat(member, full=True)
            self.world.advance(BEAT_MS)
            self.check()
        group = self.group()
        assert group is not None
        assert group.members.keys() == {member.member_id for member in self.members}
        assert group.group_epoch == group.assignment_epoch
        assigned: dict[bytes, set[int]] = {}
        for member in self.members:
            target = {topic_id: list(partitions) for topic_id, partitions in group.target_of(member.member_id).items()}
            assert member.assigned == target
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        for name in {name for member in self.members for name in self.names[member.member_id]}:
            topic = self.world.engine.topics.by_name(name)
            if topic is not None:
                assert assigned[topic.topic_id] == set(range(topic.partitions)), name
        assert group.state_partitions.initializing == {}


def phases(state: StatePartitions) -> dict[tuple[bytes, int], StatePhase]:
    """Returns the phase of each partition in the group's three lists. The deleting list contains topics only, so each
    of its topics counts as partitions 0 to 9.
    """
    found = {(topic_id, index): DELETING for topic_id in state.deleting for index in range(10)}
    found |= {(key, index): INITIALIZED for key, topic in state.initialized.items() for index in topic.partitions}
    found |= {(key, index): INITIALIZING for key, topic in state.initializing.items() for index in topic.partitions}
    return found


def check_phases(world: World) -> None:
    """Checks that the records of the whole log change the phases of share partitions only as the table of phases
    allows.
    """
    before: dict[tuple[bytes, int], StatePhase] = {}
    for key, value in world.records():
        if isinstance(key, ShareGroupStatePartitionMetadataKey):
            after = {} if value is None else phases(from_value(value))
            for partition in before.keys() | after.keys():
                source, target = before.get(partition, ABSENT), after.get(partition, ABSENT)
                assert source is target or target in PHASES[source], (partition, source, target)
            before = after


@pytest.mark.parametrize("seed", range(15))
def test_groups_come_to_rest(seed: int) -> None:
    """The invariants hold for every seed, and a restart changes nothing. The parameter of the test is the seed."""
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
        model.check()
    model.come_to_rest()
    before, group = model.world.describe(), model.group()
    assert group is not None
    model.world.restart()
    after = model.group()
    assert after is not None
    check_phases(model.world)
    assert model.world.describe() == before
    assert (after.targets, after.names, after.state_partitions) == (group.targets, group.names, group.state_partitions)
