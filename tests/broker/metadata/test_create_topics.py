"""CreateTopics: checks that the recordings of Apache Kafka in tests/golden do not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kcore.broker.configs.topic_schema import TOPIC_SETTINGS
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.broker.context import NODE_ID, BrokerContext


def assigned(assignments: Mapping[int, Sequence[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name="t",
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in assignments.items()],
    )


def codes(node: BrokerContext, *topics: CreatableTopic, **more: Any) -> list[tuple[str, int]]:
    response = node.call(CreateTopicsRequest(topics=topics, **more))
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned({0: [NODE_ID], 1: [NODE_ID]}), 0),
        (assigned({1: [NODE_ID], 0: [NODE_ID]}), 0),
        (assigned({0: [NODE_ID]}, partitions=1), 42),
        (assigned({0: [NODE_ID]}, factor=1), 42),
        (assigned({1: [NODE_ID]}), 39),
        (assigned({-1: [NODE_ID], 0: [NODE_ID]}), 39),
        (assigned({0: []}), 39),
        (assigned({0: [NODE_ID + 1]}), 39),
        (assigned({0: [NODE_ID, NODE_ID]}), 39),
    ],
)
def test_invalid_manual_assignments_are_refused(topic: CreatableTopic, code: int) -> None:
    """A manual assignment is valid only with -1 as partition count and as replication factor. It lists each partition
    from 0 to n-1 once, with distinct existing nodes.
    """
    node = BrokerContext()
    assert codes(node, topic) == [("t", code)]
    found = node.topics.by_name("t")
    assert (found.partitions if found else 0) == (len(topic.assignments) if code == 0 else 0)


def test_a_partition_assigned_twice_and_lists_of_different_length_are_39() -> None:
    """The first failed check decides the error; an assignment is checked before the partition numbers. The error is
    INVALID_REPLICA_ASSIGNMENT (39).
    """
    node = BrokerContext()
    topic = assigned({0: [NODE_ID]})
    topic.assignments = [*topic.assignments, *topic.assignments]
    assert codes(node, topic) == [("t", 39)]


def test_a_duplicate_name_has_one_result_and_is_not_created() -> None:
    """The duplicate gets INVALID_REQUEST; the other topics are created."""
    node = BrokerContext()
    one, two = (CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "ab")
    assert sorted(codes(node, one, two, one)) == [("a", 42), ("b", 0)]
    assert [topic.name for topic in node.topics.all()] == ["b"]


@pytest.mark.parametrize("count", [-10, -(2**31)])
def test_a_negative_count_does_not_make_room_for_too_many_partitions(count: int) -> None:
    """The limit of a request applies to the sum of the partition counts, in which an invalid count is 0."""
    node = BrokerContext()
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in (("negative", count), ("large", 10_001))
    ]
    assert codes(node, *topics) == [("negative", 44), ("large", 44)]
    assert codes(node, topics[0]) == [("negative", 37)]
    assert list(node.topics.all()) == []


def test_two_new_names_that_collide_pass_in_one_request() -> None:
    """A new name is compared only with existing names."""
    node = BrokerContext()
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a.b", "a_b")]
    assert codes(node, *topics) == [("a.b", 0), ("a_b", 0)]
    assert node.create("a-b").error_code == 0
    node2 = BrokerContext()
    node2.create("a.b")
    assert node2.create("a_b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_deadline_that_has_passed_creates_nothing() -> None:
    """A timeout_ms of 0 or less gets REQUEST_TIMED_OUT."""
    node = BrokerContext()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    for timeout_ms in (0, -1):
        assert codes(node, topic, timeout_ms=timeout_ms) == [("t", ErrorCode.REQUEST_TIMED_OUT)]
    assert list(node.topics.all()) == []


def test_more_than_ten_thousand_partitions_are_refused_as_one() -> None:
    """Every topic of the request gets POLICY_VIOLATION; ten thousand partitions are allowed."""
    node = BrokerContext()
    big = CreatableTopic(name="a", num_partitions=10_000, replication_factor=1)
    small = CreatableTopic(name="b", num_partitions=1, replication_factor=1)
    assert codes(node, big, small) == [("a", 44), ("b", 44)]
    assert codes(node, big, validate_only=True) == [("a", 0)]


def test_the_response_has_every_setting_sorted_by_name() -> None:
    """Since v5 the response has the topic's own values as sent, and other settings with their source: the node's file
    (4) or the default (5).
    """
    node = BrokerContext({"log.retention.hours": 1, "compression.type": "zstd"})
    result = node.create("t", configs={"retention.bytes": " 5 ", "cleanup.policy": ""})
    shown = {c.name: (c.value, c.config_source, c.read_only, c.is_sensitive) for c in result.configs}
    assert list(shown) == list(TOPIC_SETTINGS)
    assert shown["retention.bytes"] == (" 5 ", 1, False, False)
    assert shown["cleanup.policy"] == ("", 1, False, False)
    assert shown["retention.ms"] == ("3600000", 4, False, False)
    assert shown["compression.type"] == ("zstd", 4, False, False)
    assert shown["segment.bytes"] == ("1073741824", 5, False, False)
    assert node.value(2, "t", "retention.bytes") == ("5", 1)


def test_the_last_value_of_a_duplicate_setting_counts_even_if_the_first_is_null() -> None:
    """A null value is refused only if it is the last value of the setting."""
    node = BrokerContext()
    for values, code in (((None, "5"), 0), (("5", None), 40)):
        topic = CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=value) for value in values],
        )
        assert codes(node, topic, validate_only=True) == [("t", code)]


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a", True),
        ("A.b_c-9", True),
        ("...", True),
        ("x" * 249, True),
        ("x" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a\n", False),
        ("a b", False),
        ("\u00e4", False),
        ("\u0663", False),
        ("a\x00", False),
    ],
)
def test_illegal_names_are_refused(name: str, legal: bool) -> None:
    """Legal names have 1 to 249 ASCII letters, digits, dots, underscores and dashes, and are not . or .."""
    assert BrokerContext().create(name).error_code == (0 if legal else 17)


class Only:
    """Authorizer that allows only the listed operations."""

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self.rules = set(allowed)

    def allowed(self, context: Any, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        return (operation, resource_type, resource_name) in self.rules


def test_authorization_comes_before_everything_but_duplicates() -> None:
    """CreateTopics needs CREATE on the cluster or topic; the response has settings only with DESCRIBE_CONFIGS."""
    node = BrokerContext(authorizer=Only((Operation.CREATE, ResourceType.TOPIC, "mine")))
    assert node.create("two words").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    made = node.create("mine")
    assert (made.error_code, made.topic_config_error_code, made.configs, made.num_partitions) == (0, 29, (), -1)
    assert node.create("__cluster_metadata").error_code == ErrorCode.INVALID_REQUEST
