"""What members of consumer groups may subscribe to, and who may see them (KIP-848): topics one by one, patterns too.

The rights to the group itself stand in the table of every API, in test_every_api_asks.
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
from tests.kit import create
from tests.security.guarded import ADMIN, ALICE, Guarded, acl

BOB = "User:bob"
TOPIC, GROUP = 29, 30  # ..._AUTHORIZATION_FAILED
LOOK_AGAIN_MS = 10_001


class World(Guarded):
    """Topics a, ab and hidden; alice may read the group, and see the first two topics."""

    def __init__(self) -> None:
        super().__init__(group_consumer_assignment_interval_ms="0")
        assert self.codes(create("a", "ab", "hidden"), who=ADMIN) == set()
        self.allow(acl(Op.READ, Kind.GROUP, "g"), acl(Op.DESCRIBE, name="a"), acl(Op.READ, name="ab"))
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Sequence[TopicPartitions]] = {}

    def beat(self, member_id: str, who: str = ALICE, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that says what the member was told last."""
        body = {
            "member_epoch": self.epochs.get(member_id, 0),
            "topic_partitions": self.owned.get(member_id, ()),
            **fields,
        }
        asked = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, **body)
        answer: ConsumerGroupHeartbeatResponse = self.ask(asked, 1, who)
        if not answer.error_code:
            self.epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                told = answer.assignment.topic_partitions
                self.owned[member_id] = [TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in told]
        return answer

    def join(self, member_id: str, who: str = ALICE, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member_id, who, rebalance_timeout_ms=10_000, topic_partitions=[], member_epoch=0, **fields)

    def has(self, member_id: str, who: str = ALICE) -> list[str]:
        """The names of the topics of which it has partitions, after the pattern was looked up and the target came."""
        for _ in range(4):
            self.engine.advance(1)
            assert not self.beat(member_id, who).error_code
        topics = [self.engine.topics.by_id(topic.topic_id) for topic in self.owned[member_id]]
        return sorted(topic.name for topic in topics if topic is not None)

    def resolved(self) -> set[str]:
        """What the patterns of the group matched."""
        (shard,) = self.engine.groups
        group = shard.machine.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return {topic for regex in group.subscriptions.resolved.values() for topic in regex.topics}

    def described(self, who: str) -> DescribedGroup:
        (group,) = self.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1, who).groups
        assert isinstance(group, DescribedGroup)
        return group


@pytest.fixture
def world() -> World:
    return World()


def test_one_topic_that_one_may_not_see_refuses_the_heartbeat(world: World) -> None:
    """29 without a message, for a topic that is not there too; nothing of the request is kept."""
    for names in (["a", "hidden"], ["nowhere"], ["a", "a", "hidden"]):
        answer = world.join("m", subscribed_topic_names=names)
        assert answer == ConsumerGroupHeartbeatResponse(error_code=TOPIC), names
    assert world.described(ADMIN).error_code == 69
    assert world.join("m", subscribed_topic_names=["a", "ab", "a"]).error_code == 0
    assert world.beat("m", subscribed_topic_names=["hidden"]).error_code == TOPIC
    assert world.has("m") == ["a", "ab"]


def test_the_group_comes_before_the_topics(world: World) -> None:
    """Who may not read the group learns nothing of topics."""
    assert world.join("m", BOB, subscribed_topic_names=["hidden"]) == ConsumerGroupHeartbeatResponse(error_code=GROUP)


def test_a_heartbeat_that_names_no_topics_needs_the_group_alone(world: World) -> None:
    """A right to a topic that is taken away counts from the next time that the member names it."""
    world.join("m", subscribed_topic_names=["a"])
    deny = DeleteAclsFilter(
        resource_type_filter=Kind.TOPIC, resource_name_filter="a", pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    world.ask(DeleteAclsRequest(filters=[deny]), 3, ADMIN)
    assert world.has("m") == ["a"]
    assert world.beat("m", subscribed_topic_names=["a"]).error_code == TOPIC


def test_a_pattern_matches_what_its_member_may_see(world: World) -> None:
    """The others are no error, they are not there."""
    assert world.join("m", subscribed_topic_regex=".*").error_code == 0
    assert world.has("m") == ["a", "ab"]


def test_patterns_are_looked_up_with_the_rights_of_the_one_who_has_them_looked_up(world: World) -> None:
    """All of a group's patterns at once, as Kafka does: bob's heartbeat, due at that time, sees hidden alone."""
    world.allow(acl(Op.READ, Kind.GROUP, "g", principal=BOB), acl(Op.DESCRIBE, name="hidden", principal=BOB))
    world.join("m", subscribed_topic_regex=".*")
    assert world.has("m") == ["a", "ab"]
    world.engine.advance(LOOK_AGAIN_MS)
    world.join("other", BOB, subscribed_topic_regex="h.*")
    world.engine.advance(1)
    assert world.resolved() == {"hidden"}


def test_a_classic_member_that_joins_has_patterns_looked_up_with_its_own_rights(world: World) -> None:
    """A JoinGroup of the old protocol can be what a look-up waited for; it shows nobody what the joiner may not see."""
    world.join("m", subscribed_topic_regex=".*")
    assert world.has("m") == ["a", "ab"]
    world.engine.advance(LOOK_AGAIN_MS)
    world.ask(create("another"), who=ADMIN)
    metadata = Subscription(topics=["a"]).encode_versioned(1)
    world.allow(acl(Op.READ, Kind.GROUP, "g", principal=BOB), acl(Op.DESCRIBE, name="a", principal=BOB))
    joining = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="old", protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )  # fmt: skip
    assert world.ask(joining, 9, BOB).error_code == 0
    world.engine.advance(1)
    assert world.resolved() == {"a"}


def test_a_description_shows_no_topic_that_one_may_not_see(world: World) -> None:
    """29 for the group, without its members; a topic that is only subscribed to, not assigned, does no harm."""
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
    """One that is denied does not take the others along, and is denied whether it is there or not."""
    world.join("m", subscribed_topic_names=["a"])
    answer = world.ask(ConsumerGroupDescribeRequest(group_ids=["other", "g"]), 1)
    assert {group.group_id: group.error_code for group in answer.groups} == {"other": GROUP, "g": 0}
