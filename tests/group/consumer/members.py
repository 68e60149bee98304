"""Test members of consumer groups that report their assignments, as clients do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi
from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.consumer.group import ConsumerGroup
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.group.context import GroupContext

GROUP = "g"
Owned = dict[bytes, list[int]]


class World(GroupContext):
    """A group shard with the APIs of consumer groups. Targets are computed at once, unless the test changes that."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__({"group.consumer.assignment.interval.ms": 0, **named}, topics)

    @property
    def heartbeats(self) -> ConsumerGroupHeartbeatApi:
        return ConsumerGroupHeartbeatApi(self.shards, self.consumer)

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat with only the given fields."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        response: ConsumerGroupHeartbeatResponse = self.call(self.heartbeats, request)
        return response

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        (found,) = self.call(ConsumerGroupDescribeApi(self.shards, self.consumer), request).groups
        assert isinstance(found, DescribedGroup)
        return found

    @property
    def group(self) -> ConsumerGroup:
        """Returns the group in memory."""
        group = self.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def topic_id(self, name: str) -> bytes:
        topic = self.topics.by_name(name)
        assert topic is not None
        return topic.topic_id

    def settle(self, *members: Member, rounds: int = 20) -> int:
        """Sends heartbeats of all members until each member owns its target assignment. Returns the number of
        heartbeats that each member has sent.
        """
        for done in range(rounds):
            if self.group.state_name() == "Stable" and all(m.epoch == self.group.group_epoch for m in members):
                return done
            for member in members:
                member.ack()
        raise AssertionError(f"not at rest after {rounds} rounds: {self.describe()}")


class Member:
    """A member that stores its epoch and its assignment."""

    def __init__(self, world: World, member_id: str, instance_id: str | None = None) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Owned = {}

    def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat, and stores the values of a successful response."""
        body = {"member_id": self.member_id, "instance_id": self.instance_id, "member_epoch": self.epoch, **fields}
        response = self.world.beat(**body)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = {t.topic_id: list(t.partitions) for t in response.assignment.topic_partitions}
        return response

    def join(self, topics: Sequence[str] | None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends the first heartbeat."""
        body = {"member_epoch": 0, "rebalance_timeout_ms": 10_000, "topic_partitions": [], **fields}
        response = self.send(subscribed_topic_names=topics, **body)
        assert response.error_code == ErrorCode.NONE, response
        return response

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat that changes nothing."""
        return self.send(**fields)

    def ack(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat that reports the last assignment as owned."""
        return self.send(topic_partitions=reported(self.owned), **fields)

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        return self.send(member_epoch=epoch)

    def has(self) -> dict[str, list[int]]:
        """Returns the partitions of the member, by topic name."""
        found = {}
        for topic_id, partitions in self.owned.items():
            topic = self.world.topics.by_id(topic_id)
            assert topic is not None
            found[topic.name] = sorted(partitions)
        return found


def reported(owned: Owned) -> list[TopicPartitions]:
    """Returns partitions in the format in which a heartbeat reports them."""
    return [TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in owned.items()]
