"""Permissions of consumer groups (KIP-848): subscriptions to topics and patterns, and descriptions.

`test_every_api_permissions` tests the permissions on the group itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kcore.group.consumer.group import ConsumerGroup
from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.consumer_protocol import Subscription
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kcore.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadStateData,
)
from tests.kit import create
from tests.security.guarded import ADMIN, ALICE, Guarded, acl

BOB = "User:bob"
TOPIC, GROUP = 29, 30  # ..._AUTHORIZATION_FAILED
LOOK_AGAIN_MS = 10_001


class World(Guarded):
    """Topics a, ab and hidden; alice may read the group, and describe the first two topics."""

    def __init__(self) -> None:
        super().__init__(group_consumer_assignment_interval_ms="0")
        assert self.codes(create("a", "ab", "hidden"), who=ADMIN) == set()
        self.allow(acl(Op.READ, Kind.GROUP, "g"), acl(Op.DESCRIBE, name="a"), acl(Op.READ, name="ab"))
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Sequence[TopicPartitions]] = {}

    def beat(self, member_id: str, who: str = ALICE, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Sends a heartbeat with the epoch and the partitions that the member's last response contained."""
        body = {
            "member_epoch": self.epochs.get(member_id, 0),
            "topic_partitions": self.owned.get(member_id, ()),
            **fields,
        }
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, **body)
        response: ConsumerGroupHeartbeatResponse = self.send(request, 1, who)
        if not response.error_code:
            self.epochs[member_id] = response.member_epoch
            if response.assignment is not None:
                assigned = response.assignment.topic_partitions
                self.owned[member_id] = [
                    TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in assigned
                ]
        return response

    def join(self, member_id: str, who: str = ALICE, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member_id, who, rebalance_timeout_ms=10_000, topic_partitions=[], member_epoch=0, **fields)

    def has(self, member_id: str, who: str = ALICE) -> list[str]:
        """Returns the topics of the member's partitions, once the pattern is resolved and the
        assignment has arrived.
        """
        for _ in range(4):
            self.engine.advance(1)
            assert not self.beat(member_id, who).error_code
        topics = [self.engine.topics.by_id(topic.topic_id) for topic in self.owned[member_id]]
        return sorted(topic.name for topic in topics if topic is not None)

    def resolved(self) -> set[str]:
        """Returns the topics that match each pattern of the group."""
        (shard,) = self.engine.groups
        group = shard.machine.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return {topic for regex in group.subscriptions.resolved.values() for topic in regex.topics}

    def described(self, who: str) -> DescribedGroup:
        (group,) = self.send(ConsumerGroupDescribeRequest(group_ids=["g"]), 1, who).groups
        assert isinstance(group, DescribedGroup)
        return group


@pytest.fixture
def world() -> World:
    return World()


def test_one_denied_topic_refuses_the_heartbeat(world: World) -> None:
    """The heartbeat gets TOPIC_AUTHORIZATION_FAILED (29) without a message, even for an absent topic, and changes
    nothing.
    """
    for names in (["a", "hidden"], ["nowhere"], ["a", "a", "hidden"]):
        response = world.join("m", subscribed_topic_names=names)
        assert response == ConsumerGroupHeartbeatResponse(error_code=TOPIC), names
    assert world.described(ADMIN).error_code == 69
    assert world.join("m", subscribed_topic_names=["a", "ab", "a"]).error_code == 0
    assert world.beat("m", subscribed_topic_names=["hidden"]).error_code == TOPIC
    assert world.has("m") == ["a", "ab"]


def test_the_group_is_authorized_before_the_topics(world: World) -> None:
    """A client without READ on the group gets no information about topics."""
    assert world.join("m", BOB, subscribed_topic_names=["hidden"]) == ConsumerGroupHeartbeatResponse(error_code=GROUP)


def test_a_heartbeat_without_topics_needs_only_the_group(world: World) -> None:
    """A permission on a topic is revoked. The member can still send heartbeats that do not name topics, but a heartbeat
    that names the topic is refused.
    """
    world.join("m", subscribed_topic_names=["a"])
    deny = DeleteAclsFilter(
        resource_type_filter=Kind.TOPIC, resource_name_filter="a", pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    world.send(DeleteAclsRequest(filters=[deny]), 3, ADMIN)
    assert world.has("m") == ["a"]
    assert world.beat("m", subscribed_topic_names=["a"]).error_code == TOPIC


def test_a_pattern_matches_only_topics_that_its_member_may_describe(world: World) -> None:
    """Topics that the member may not describe are left out, without an error."""
    assert world.join("m", subscribed_topic_regex=".*").error_code == 0
    assert world.has("m") == ["a", "ab"]


def test_patterns_are_resolved_with_the_permissions_of_the_heartbeats_principal(world: World) -> None:
    """A heartbeat resolves all patterns of its group with its sender's permissions, as in Kafka.

    In this test, the sender is bob, who may describe only `hidden`.
    """
    world.allow(acl(Op.READ, Kind.GROUP, "g", principal=BOB), acl(Op.DESCRIBE, name="hidden", principal=BOB))
    world.join("m", subscribed_topic_regex=".*")
    assert world.has("m") == ["a", "ab"]
    world.engine.advance(LOOK_AGAIN_MS)
    world.join("other", BOB, subscribed_topic_regex="h.*")
    world.engine.advance(1)
    assert world.resolved() == {"hidden"}


def test_a_classic_join_resolves_patterns_with_its_own_permissions(world: World) -> None:
    """A classic JoinGroup resolves the group's patterns again if a resolution is due.

    The resolved topics contain no topic that the sender of the JoinGroup may not describe.
    """
    world.join("m", subscribed_topic_regex=".*")
    assert world.has("m") == ["a", "ab"]
    world.engine.advance(LOOK_AGAIN_MS)
    world.send(create("another"), who=ADMIN)
    metadata = Subscription(topics=["a"]).encode_versioned(1)
    world.allow(acl(Op.READ, Kind.GROUP, "g", principal=BOB), acl(Op.DESCRIBE, name="a", principal=BOB))
    joining = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="old", protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )  # fmt: skip
    assert world.send(joining, 9, BOB).error_code == 0
    world.engine.advance(1)
    assert world.resolved() == {"a"}


def test_a_description_has_no_denied_topic(world: World) -> None:
    """A client describes a group with an assigned topic that it may not describe. It gets TOPIC_AUTHORIZATION_FAILED
    (29) and no members.

    A topic to which a member subscribes, but which is not assigned, needs no permission.
    """
    world.allow(acl(Op.DESCRIBE, Kind.GROUP, "g", principal=BOB), acl(Op.DESCRIBE, name="a", principal=BOB))
    world.join("m", subscribed_topic_names=["a"])
    assert [member.member_id for member in world.described(BOB).members] == ["m"]
    world.beat("m", subscribed_topic_names=["a", "ab"])
    assert world.has("m") == ["a", "ab"]
    refused = world.described(BOB)
    assert (refused.error_code, refused.group_id, list(refused.members)) == (TOPIC, "g", [])
    assert (refused.group_state, refused.group_epoch, refused.assignment_epoch) == ("", 0, 0)
    assert world.described(ALICE).error_code == 0


def test_groups_are_described_one_by_one(world: World) -> None:
    """A denied group does not affect the others. A group that does not exist is denied, too."""
    world.join("m", subscribed_topic_names=["a"])
    response = world.send(ConsumerGroupDescribeRequest(group_ids=["other", "g"]), 1)
    assert {group.group_id: group.error_code for group in response.groups} == {"other": GROUP, "g": 0}


def test_a_refused_classic_member_gets_no_member_id() -> None:
    world = World()
    protocol = JoinGroupRequestProtocol(name="range")
    joining = JoinGroupRequest(group_id="other", member_id="m", protocol_type="consumer", protocols=[protocol])
    response = world.send(joining, 9, ALICE)
    assert (response.error_code, response.member_id) == (GROUP, "")


def test_a_refused_client_of_the_share_coordinator_gets_all_topics_back() -> None:
    """An accepted request with a topic without partitions has an empty response."""
    topics = [
        ReadStateData(topic_id=bytes([1] * 16), partitions=[PartitionData(partition=0)]),
        ReadStateData(topic_id=bytes([2] * 16), partitions=[]),
    ]
    request = ReadShareGroupStateRequest(group_id="g", topics=topics)
    response = World().send(request, 0, ALICE)
    assert [[row.error_code for row in topic.partitions] for topic in response.results] == [[31], []]
