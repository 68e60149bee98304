"""A live group that migrates from one protocol to the other and back, member by member, in any order.

Classic members are cooperative consumers; some are killed, and some send late heartbeats. A seed decides all events.
Two unfenced members never use the same partition, and in the end all partitions are used.
"""

from __future__ import annotations

import random

import pytest

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.group import ConsumerGroup
from tests.group.consumer.members import GROUP, Member, World
from tests.group.migration.members import ClassicClient
from tests.seeds import first_of

PARTITIONS = 6
SESSION_MS = 6_000
Client = ClassicClient | Member


class Roll:
    """Members of both protocols in one group."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            {"a": PARTITIONS},
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            group_consumer_min_session_timeout_ms=1,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_min_heartbeat_interval_ms=1,
            group_consumer_heartbeat_interval_ms=1,
        )
        self.clients: list[Client] = []
        self.numbers = 0

    def start(self, classic: bool) -> Client:
        self.numbers += 1
        client: Client
        if classic:
            client = ClassicClient(self.world, ["a"], f"c{self.numbers}")
        else:
            client = Member(self.world, f"m{self.numbers}")
        self.clients.append(client)
        return client

    def step(self, client: Client) -> None:
        """Sends one heartbeat, or the next request of a classic client."""
        if isinstance(client, ClassicClient):
            client.step()
        elif client.epoch:
            if client.ack().error_code:
                client.epoch, client.owned = 0, {}
        else:
            client.send(
                member_epoch=0, rebalance_timeout_ms=SESSION_MS, subscribed_topic_names=["a"], topic_partitions=[]
            )
        self.check()

    def used(self, client: Client) -> set[int]:
        if isinstance(client, ClassicClient):
            return {partition for _, partition in client.uses}
        return set(client.has().get("a", ()))

    def check(self) -> None:
        """Checks that unfenced members share no partition. Epochs and generations determine which members are
        unfenced.
        """
        group = self.world.machine.groups.get(GROUP)
        owners: dict[int, str] = {}
        for client in self.clients:
            if not self.is_current(group, client):
                continue
            for partition in self.used(client):
                assert partition not in owners, f"{partition}: {owners[partition]} and {client.member_id}"
                owners[partition] = client.member_id

    def is_current(self, group: object, client: Client) -> bool:
        """Returns True if the coordinator would accept an offset commit of the client, because its epoch or generation
        is current.
        """
        if isinstance(group, ConsumerGroup):
            member = group.members.get(client.member_id)
            epoch = client.generation_id if isinstance(client, ClassicClient) else client.epoch
            return member is not None and member.current.member_epoch == epoch
        if isinstance(group, ClassicGroup):
            return (
                isinstance(client, ClassicClient)
                and client.member_id in group.members
                and client.generation_id == group.generation_id
            )
        return False

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.rng.choice(self.clients))
            self.world.advance(self.rng.randint(1, 300))

    def stop(self, client: Client) -> None:
        """Stops a client: the client leaves the group, or is killed."""
        self.clients.remove(client)
        if self.rng.random() < 0.5:
            client.leave()

    def settle(self) -> None:
        """Runs all clients until each partition has exactly one owner again."""
        for _ in range(200):
            for client in self.clients:
                self.step(client)
            self.world.advance(100)
            owned = sorted(partition for client in self.clients for partition in self.used(client))
            group = self.world.machine.groups.get(GROUP)
            if owned == list(range(PARTITIONS)) and group is not None and group.state_name() == "Stable":
                return
        raise AssertionError(f"not at rest: {[(client.member_id, self.used(client)) for client in self.clients]}")


@pytest.mark.parametrize("seed", first_of(range(20), 8))
def test_a_live_group_migrates_and_back(seed: int) -> None:
    """Consumer members replace the classic members, and then classic members replace the consumer members. Clients
    crash, and the server restarts.
    """
    roll = Roll(seed)
    size = roll.rng.randint(2, 4)
    for _ in range(size):
        roll.start(classic=True)
    roll.settle()
    for classic in (False, True):
        for _ in range(size):
            old = roll.clients[0]
            roll.start(classic)
            roll.run(roll.rng.randint(5, 30))
            roll.stop(old)
            if roll.rng.random() < 0.2:
                roll.world.restart()
                for client in roll.clients:
                    if isinstance(client, ClassicClient):
                        client.waiting, client.phase = None, "join"
            roll.run(roll.rng.randint(5, 30))
        roll.settle()
        kind = ClassicGroup if classic else ConsumerGroup
        assert isinstance(roll.world.machine.groups[GROUP], kind)
