"""Bounds of the data that classic members embed in their requests, when a group converts or has both protocols.

Without bounds, a heartbeat that converts a group with 25 MB of subscriptions would block the event loop for seconds.
"""

from __future__ import annotations

from typing import Any

from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.migration.embedded import owned_partitions
from kcore.protocol.consumer_protocol import Subscription, TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.group.consumer.members import GROUP, Member, World
from tests.group.migration.members import ClassicClient

JOIN: dict[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 6_000,
    "subscribed_topic_names": ["a"],
    "topic_partitions": [],
}


def world(**settings: Any) -> World:
    return World({"a": 4}, group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1, **settings)


def join(target: World, subscription: Subscription, instance_id: str = "classic") -> Any:
    """Sends the JoinGroup of a static classic member. Returns the call."""
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="fair", metadata=subscription.encode_versioned(3))],
    )
    return target.send(JoinGroupApi(target.shards, target.config), request)


def names(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


def test_an_upgrade_with_too_large_records_is_refused_and_leaves_parked_requests_alone() -> None:
    """A consumer member joins a classic group whose metadata is too large for the records of a conversion. The member
    is refused, and the join that a classic member has parked still waits.
    """
    target = world()
    target.machine.max_record_bytes = 2_000
    call = join(target, Subscription(topics=names(100)), "one")
    target.advance(10)
    assert call.response.error_code == ErrorCode.NONE
    other = join(target, Subscription(topics=names(100)), "two")
    target.advance(10)
    target.records()
    response = Member(target, "m1").send(**JOIN)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "the maximum is 2000" in (response.error_message or "")
    assert target.records() == []
    assert isinstance(target.machine.groups[GROUP], ClassicGroup)
    assert not other.done, "the parked join still waits"


def test_the_names_of_the_topics_count_in_addition_to_the_subscriptions() -> None:
    """A conversion is refused if its records exceed the size limit. Each record contains the member's subscription and,
    in addition, the names of its topics.
    """
    target = world()
    subscription = Subscription(topics=names(100))
    target.machine.max_record_bytes = len(subscription.encode_versioned(3)) + 500
    join(target, subscription)
    target.advance(10)
    assert Member(target, "m1").send(**JOIN).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_small_classic_group_still_becomes_a_consumer_group() -> None:
    target = world()
    client = ClassicClient(target, ["a"])
    for _ in range(10):
        client.step()
        target.advance(10)
    assert Member(target, "m1").send(**JOIN).error_code == ErrorCode.NONE
    assert isinstance(target.machine.groups[GROUP], ConsumerGroup)


def test_a_classic_member_of_a_consumer_group_embeds_at_most_the_elements_of_a_request() -> None:
    target = world(kcore_max_request_elements=1_000)
    Member(target, "m1").join(["a"])
    refused = join(target, Subscription(owned_partitions=[TopicPartition(topic="a")] * 1_001), "one")
    assert refused.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    accepted = join(target, Subscription(owned_partitions=[TopicPartition(topic="a")] * 1_000), "two")
    assert accepted.response.error_code == ErrorCode.NONE
    assert len(target.group.members) == 2


def test_a_classic_member_of_a_consumer_group_with_a_too_large_record_is_refused() -> None:
    target = world()
    Member(target, "m1").join(["a"])
    subscription = Subscription(topics=names(100))
    size = len(subscription.encode_versioned(3))
    for limit in (size - 1, size + 500):  # the subscription alone is too large; the subscription and its names are
        target.machine.max_record_bytes = limit
        assert join(target, subscription).response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(target.group.members) == 1


def test_a_topic_that_a_member_reports_several_times_is_reported_once() -> None:
    target = world()
    parts = [TopicPartition(topic="a", partitions=[number]) for number in (2, 0, 2)]
    subscription = Subscription(owned_partitions=[*parts, TopicPartition(topic="absent", partitions=[1])])
    (reported,) = owned_partitions(subscription, target.topics)
    assert reported.topic_id == target.topic_id("a")
    assert list(reported.partitions) == [2, 0, 2]


def test_the_last_consumer_member_leaves_a_group_whose_classic_form_is_too_large() -> None:
    """The last consumer member leaves a group with classic members, whose records are too large for a conversion. The
    leave succeeds, and the group remains a consumer group. A refusal would keep the member in the group forever.
    """
    target = world()
    last = Member(target, "m1")
    last.join(["a"])
    subscription = Subscription(topics=["a"], user_data=b"u" * 800)
    for instance_id in ("one", "two", "three"):
        assert join(target, subscription, instance_id).response.error_code == ErrorCode.NONE
    target.machine.max_record_bytes = 2_000
    last.leave()
    assert isinstance(target.machine.groups[GROUP], ConsumerGroup)
    assert set(target.group.static_members) == {"one", "two", "three"}
    assert len(target.group.members) == 3, "the consumer member has left"


def test_the_last_consumer_member_leaves_a_group_whose_classic_form_fits() -> None:
    target = world()
    last = Member(target, "m1")
    last.join(["a"])
    assert join(target, Subscription(topics=["a"], user_data=b"u" * 800), "one").response.error_code == ErrorCode.NONE
    target.machine.max_record_bytes = 2_000
    last.leave()
    assert isinstance(target.machine.groups[GROUP], ClassicGroup)
