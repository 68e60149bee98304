"""Consumer groups under any interleaving of members, faults, topics and restarts, in virtual time.

A seed determines all events: heartbeats, lost responses, duplicate requests, crashes and returns of clients,
subscriptions, changes of topics, restarts and failed commits of the server. After every step the invariants of the
group are checked. Once the faults stop, the group must reconcile within a bounded number of heartbeats, with every
partition of every subscribed topic at exactly one member.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.states import MemberState
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.group.consumer.members import GROUP, Owned, World, reported
from tests.seeds import first_of

STEPS = 250
SESSION_MS = 6_000
REBALANCE_MS = 4_000
BEAT_MS = 1_000
TOPICS = ("ta", "tb", "tc", "other")
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
AWAY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
Partition = tuple[bytes, int]


def flat(owned: Owned) -> set[Partition]:
    return {(topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions}


class Client:
    """A consumer of KIP-848. It sends a full heartbeat after an error, and drops all partitions when it is fenced."""

    def __init__(self, world: World, member_id: str, instance_id: str | None, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.member_id, self.instance_id = member_id, instance_id
        self.epoch = 0
        self.uses: Owned = {}
        self.doubts = True
        self.names: list[str] | None = None
        self.regex: str | None = None
        self.choose()

    def choose(self) -> None:
        """Chooses a random subscription."""
        self.names = sorted(self.rng.sample(TOPICS, self.rng.randint(1, 3)))
        self.regex = self.rng.choice(["", "", "", "t.*", "t[ab]"])

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Returns the next heartbeat. After an error and for a join, it contains all fields; otherwise it reports at
        most the owned partitions.
        """
        everything = self.epoch == 0 or self.doubts
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if everything else -1,
            subscribed_topic_names=self.names if everything else None,
            subscribed_topic_regex=self.regex if everything else None,
            topic_partitions=reported(self.uses) if everything or self.rng.random() < 0.7 else None,
        )

    def take(self, response: ConsumerGroupHeartbeatResponse | None) -> None:
        """Applies a response to the client's state. None means that the response was lost."""
        if response is None or response.error_code in AWAY:
            self.doubts = True
        elif response.error_code in (*FENCED, ErrorCode.UNRELEASED_INSTANCE_ID):
            self.epoch, self.uses = 0, {}
        else:
            assert response.error_code == ErrorCode.NONE, response
            self.epoch, self.doubts = response.member_epoch, False
            if response.assignment is not None:
                self.uses = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}


class Model:
    """The world, its clients, and the invariants."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            {"ta": 4, "tb": 3, "other": 5},
            group_consumer_min_session_timeout_ms=1,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_min_heartbeat_interval_ms=1,
            group_consumer_assignment_interval_ms=self.rng.choice([0, 0, 1000]),
            group_consumer_heartbeat_interval_ms=BEAT_MS,
        )
        if self.rng.random() < 0.3:
            self.world.consumer.inline_members = 0  # every target is computed and written in slices
        self.ids = 0
        self.clients = [self.new_client() for _ in range(self.rng.randint(2, 8))]
        self.crashed: list[Client] = []
        self.epochs = (0, 0)

    def new_client(self) -> Client:
        self.ids += 1
        instance_id = f"i{self.ids}" if self.rng.random() < 0.3 else None
        return Client(self.world, f"m{self.ids}", instance_id, self.rng)

    def group(self) -> ConsumerGroup | None:
        group = self.world.machine.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    # ---- events

    def beat(self, client: Client, faults: bool = True) -> None:
        """Sends one heartbeat. The request may be lost, duplicated or fail to commit, and the response may be lost."""
        chance = self.rng.random() if faults else 1.0
        request = client.request()
        if chance < 0.05:
            client.take(None)
            return
        if 0.05 <= chance < 0.10:
            self.world.fail_next_commit()
        response = self.world.call(self.world.heartbeats, request)
        self.world.engine.failures_left = 0
        if 0.10 <= chance < 0.18 and client.epoch:
            self.world.call(self.world.heartbeats, request)  # the client does not see the response to the second one
        client.take(None if 0.18 <= chance < 0.26 else response)

    def step(self) -> None:
        """Runs one event."""
        rng = self.rng
        what = rng.random()
        if what < 0.70 and self.clients:
            self.beat(rng.choice(self.clients))
        elif what < 0.80:
            self.world.advance(rng.randint(100, BEAT_MS))
        elif what < 0.84 and self.clients:
            client = rng.choice(self.clients)
            client.choose()
            client.doubts = True
        elif what < 0.87 and len(self.clients) > 1:
            self.crashed.append(self.clients.pop(rng.randrange(len(self.clients))))
        elif what < 0.89 and len(self.clients) > 1:
            self.leave(self.clients.pop(rng.randrange(len(self.clients))))
        elif what < 0.93 and len(self.clients) < 8:
            self.clients.append(self.come())
        elif what < 0.97:
            self.change_topics()
        else:
            self.world.restart()

    def leave(self, client: Client) -> None:
        """Makes a member leave. A static member may leave temporarily, to return under another id."""
        if not client.epoch:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            instance_id=client.instance_id,
            member_epoch=-2 if client.instance_id is not None and self.rng.random() < 0.5 else -1,
        )
        response = self.world.call(self.world.heartbeats, request)
        known = (*FENCED, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE)
        assert response.error_code in known, response
        if response.member_epoch == -2:
            self.crashed.append(client)

    def come(self) -> Client:
        """Adds a new member, or a static member that had left temporarily."""
        away = [client for client in self.crashed if client.instance_id is not None]
        if not away or self.rng.random() < 0.4:
            return self.new_client()
        old = self.rng.choice(away)
        self.crashed.remove(old)
        self.ids += 1
        back = Client(self.world, f"m{self.ids}", old.instance_id, self.rng)
        back.names, back.regex = old.names, old.regex
        return back

    def change_topics(self) -> None:
        """Creates, grows or deletes a topic."""
        name = self.rng.choice(TOPICS)
        topic = self.world.topics.by_name(name)
        if topic is not None and self.rng.random() < 0.3:
            self.world.drop_topic(name)
        else:
            self.world.make_topic(name, self.rng.randint(1, 4) if topic is None else topic.partitions + 1)
        self.world.finish()

    # ---- invariants

    def check(self) -> None:
        """Checks that no partition has two owners, that unfenced clients use only their own partitions, and that epochs
        never decrease.
        """
        group = self.group()
        if group is None:
            return
        owners: dict[Partition, str] = {}
        for member in group.members.values():
            current = member.current
            own = flat({t: list(p) for t, p in current.assigned.items()})
            own |= flat({t: list(p) for t, p in current.revoking.items()})
            for partition in own:
                assert partition not in owners, f"{partition} is {owners[partition]}'s and {member.member_id}'s"
                owners[partition] = member.member_id
            if current.member_epoch >= 0:
                assert bool(current.revoking) == (current.state is MemberState.UNREVOKED), member
        for client in self.clients:
            found = group.members.get(client.member_id)
            if found is not None and client.epoch in (found.current.member_epoch, found.current.previous_epoch):
                for partition in flat(client.uses):
                    assert owners.get(partition) == client.member_id, f"{client.member_id} uses {partition} of others"
        epochs = (group.group_epoch, group.assignment_epoch)
        assert epochs[0] >= self.epochs[0], f"the group epoch fell from {self.epochs} to {epochs}"
        assert epochs[1] >= self.epochs[1], f"the assignment epoch fell from {self.epochs} to {epochs}"
        self.epochs = epochs

    def come_to_rest(self) -> int:
        """Stops the faults and sends heartbeats of all members, once per interval. Returns the number of heartbeats of
        each member.

        The bound on the heartbeats allows for the expiry of silent members, the resolution of patterns every ten
        seconds, and several heartbeats for moving partitions.
        """
        bound = (SESSION_MS + REBALANCE_MS + 20_000) // BEAT_MS + 15
        for done in range(bound):
            if self.is_at_rest() and done > (SESSION_MS + 20_000) // BEAT_MS:
                return done
            for client in self.clients:
                self.beat(client, faults=False)
                self.check()
            self.world.advance(BEAT_MS)
        raise AssertionError(f"not at rest after {bound} rounds: {self.world.describe()}")

    def is_at_rest(self) -> bool:
        group = self.group()
        return (
            group is not None
            and group.state_name() == "Stable"
            and group.members.keys() == {client.member_id for client in self.clients}
        )

    def check_rest(self) -> None:
        """Checks that every client uses exactly its target, and that each subscribed partition has an owner."""
        group = self.group()
        assert group is not None
        used: dict[Partition, str] = {}
        for client in self.clients:
            target = {t: list(p) for t, p in group.target_of(client.member_id).items()}
            assert flat(client.uses) == flat(target), client.member_id
            used.update(dict.fromkeys(flat(client.uses), client.member_id))
        assert set(used) == set(self.readable(group))

    def readable(self, group: ConsumerGroup) -> Iterator[Partition]:
        for name in group.subscriptions:
            topic = self.world.topics.by_name(name)
            if topic is not None:
                yield from ((topic.topic_id, partition) for partition in range(topic.partitions))


@pytest.mark.parametrize("seed", first_of(range(40), 12))
def test_partitions_have_one_owner_and_groups_come_to_rest(seed: int) -> None:
    """The invariants hold for every seed; the parameter of the test is the seed."""
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
        model.check()
    model.come_to_rest()
    model.check_rest()
    before = model.world.describe()
    model.world.restart()
    assert model.world.describe() == before


def test_one_seed_gives_one_log() -> None:
    """The same seed writes the same log, so that a failure can be reproduced."""
    logs = []
    for _ in range(2):
        model = Model(7)
        for _ in range(STEPS):
            model.step()
        logs.append([(str(key), str(value)) for key, value in model.world.records()])
    assert logs[0] == logs[1]
    assert len(logs[0]) > 100
