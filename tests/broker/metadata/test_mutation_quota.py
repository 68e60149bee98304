"""The quota `controller_mutation_rate` (KIP-599): new request versions are refused, old versions are only throttled."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.schema import ZERO_UUID
from tests.broker.context import BrokerContext
from tests.broker.metadata.test_client_quotas import alter, entry

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
USED_UP = EXCEEDED.message


class Limited(BrokerContext):
    """A node whose quota allows the client "c" two partitions a second, and 22 at once."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)
        assert alter(self, entry({"client-id": "c"}, controller_mutation_rate=2.0)) == [0]
        self.muted: list[tuple[int, int]] = []
        self.client_quotas.mute = lambda connection_id, duration_ms: self.muted.append((connection_id, duration_ms))

    def create_all(self, version: int, *topics: tuple[str, int], **more: Any) -> tuple[int, list[tuple[str, int]]]:
        """Creates topics as the client "c". Returns the throttle time, and the name and error of each topic."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=n, num_partitions=p, replication_factor=1) for n, p in topics], **more
        )
        response = self.call(request, version, client_id="c", connection_id=3)
        return response.throttle_time_ms, [(topic.name, topic.error_code) for topic in response.topics]

    def exists(self, name: str) -> bool:
        return self.topics.image.by_name(name) is not None

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.now.update()


def test_new_versions_are_refused_while_the_quota_is_used_up() -> None:
    """As in Kafka, the topic that exceeds the quota is created with all its partitions. Further topics are refused
    until the throttle time has passed.
    """
    node = Limited()
    assert node.create_all(7, ("a", 20), ("b", 10), ("c", 1)) == (4_000, [("a", 0), ("b", 0), ("c", EXCEEDED)])
    assert node.muted == [(3, 4_000)]
    assert not node.exists("c")
    node.wait(3_999)
    assert node.create_all(6, ("c", 1)) == (1, [("c", EXCEEDED)])
    node.wait(1)
    assert node.create_all(7, ("c", 1)) == (0, [("c", 0)])
    assert node.muted == [(3, 4_000), (3, 1)]


def test_old_versions_are_throttled_but_not_refused() -> None:
    node = Limited()
    assert node.create_all(5, ("a", 20), ("b", 10), ("c", 1)) == (4_500, [("a", 0), ("b", 0), ("c", 0)])
    assert node.muted == [(3, 4_500)]


def test_a_refused_creation_has_kafkas_message() -> None:
    node = Limited()
    node.create_all(7, ("a", 30))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="b", num_partitions=1, replication_factor=1)])
    (result,) = node.call(request, 7, client_id="c").topics
    assert (result.error_code, result.error_message, result.topic_id, result.configs) == (
        EXCEEDED,
        USED_UP,
        ZERO_UUID,
        (),
    )


def test_only_changes_that_would_be_made_count() -> None:
    """As in Kafka, refused topics do not count. Topics of a validate_only request count."""
    node = Limited()
    node.create("exists")
    assert node.create_all(7, ("exists", 1_000), ("?", 1_000)) == (
        0,
        [("exists", ErrorCode.TOPIC_ALREADY_EXISTS), ("?", ErrorCode.INVALID_TOPIC_EXCEPTION)],
    )
    assert node.create_all(7, ("a", 23), validate_only=True) == (0, [("a", 0)])
    assert node.create_all(7, ("a", 1)) == (500, [("a", EXCEEDED)])


def test_other_clients_are_not_limited() -> None:
    node = Limited()
    node.create_all(7, ("a", 100))
    assert node.create("b", 100).error_code == 0
    assert alter(node, entry({"client-id": "c"}, controller_mutation_rate=None)) == [0]
    assert node.create_all(7, ("c", 1)) == (0, [("c", 0)]), "the quota was removed"


def test_partitions_are_added_within_the_quota() -> None:
    """As in Kafka, an assignment of the wrong length does not count, but an assignment to an unknown node does."""
    node = Limited()
    for name in ("a", "b", "c"):
        node.create(name)
    wrong = CreatePartitionsTopic(name="a", count=30, assignments=[CreatePartitionsAssignment(broker_ids=[1])])
    unknown = CreatePartitionsTopic(name="b", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[9])])
    request = CreatePartitionsRequest(
        topics=[wrong, unknown, CreatePartitionsTopic(name="c", count=25, assignments=None)], timeout_ms=1_000
    )
    response = node.call(request, 3, client_id="c", connection_id=3)
    assert [(r.name, r.error_code) for r in response.results] == [
        ("a", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("b", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("c", 0),
    ]
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)], timeout_ms=1_000
    )
    assert node.call(more, 3, client_id="c", connection_id=3) == CreatePartitionsResponse(
        throttle_time_ms=1_500,
        results=(CreatePartitionsTopicResult(name="a", error_code=EXCEEDED, error_message=USED_UP),),
    )
    assert node.call(more, 2, client_id="c", connection_id=3) == CreatePartitionsResponse(
        throttle_time_ms=2_000, results=(CreatePartitionsTopicResult(name="a", error_code=0, error_message=None),)
    )
    assert node.muted == [(3, 1_500), (3, 2_000)]


def test_topics_are_deleted_within_the_quota() -> None:
    """The partitions of a deleted topic count. A refused topic continues to exist."""
    node = Limited()
    for name, partitions in (("a", 23), ("b", 2), ("c", 2)):
        node.create(name, partitions)
    b, c = (node.topics.image.by_name(name) for name in ("b", "c"))
    assert b is not None
    assert c is not None
    response = node.call(DeleteTopicsRequest(topic_names=["unknown", "a", "b"]), 5, client_id="c", connection_id=3)
    assert response.throttle_time_ms == 500
    assert sorted((r.name, r.error_code) for r in response.responses) == [
        ("a", 0),
        ("b", EXCEEDED),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert (node.exists("a"), node.exists("b")) == (False, True)
    old = node.call(DeleteTopicsRequest(topic_names=["b"]), 4, client_id="c", connection_id=3)
    assert old == DeleteTopicsResponse(
        throttle_time_ms=1_500, responses=(DeletableTopicResult(name="b", error_message=None),)
    )
    assert node.muted == [(3, 500), (3, 1_500)]


def test_topics_created_by_metadata_count() -> None:
    """While the quota is used up, a Metadata request creates no topic. Its response equals that of a request that
    creates the topic.
    """
    node = Limited(**{"num.partitions": 23})

    def look_up(name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        return node.call(request, 12, client_id="c")

    for name in ("a", "b"):
        response = look_up(name)
        assert (response.throttle_time_ms, [topic.error_code for topic in response.topics]) == (0, [3])
    assert (node.exists("a"), node.exists("b")) == (True, False)
    node.wait(500)
    look_up("b")
    assert node.exists("b")


@pytest.mark.parametrize("version", [5, 7])
def test_a_long_request_returns_the_longest_throttle_time(version: int) -> None:
    """A request that is decided in slices returns the throttle time of the slice that exceeds the quota most."""
    node = Limited()
    throttle_ms, results = node.create_all(version, *((f"t{index}", 1) for index in range(250)))
    codes = [code for _, code in results]
    strict = version == 7
    assert (throttle_ms, codes.count(0), codes.count(EXCEEDED)) == ((500, 23, 227) if strict else (114_000, 250, 0))
