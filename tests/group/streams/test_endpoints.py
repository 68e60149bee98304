"""The endpoints of members for interactive queries, in the responses to heartbeats."""

from __future__ import annotations

import pytest

from kcore.group.streams import endpoints
from kcore.group.streams.configure import Status
from kcore.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition
from tests.group.streams.members import Member, World, subtopology, topology


def test_endpoints_show_the_partitions_that_topics_have() -> None:
    """As in Kafka, a topic with fewer partitions than the subtopology has tasks is listed with its
    lowest partitions.
    """
    world = World({"big": 3, "small": 1})
    member = Member(world, "m1")
    endpoint = Endpoint(host="h", port=7)
    response = member.join(topology(subtopology("0", ["big", "small"])), user_endpoint=endpoint)
    big, small = TopicPartition(topic="big", partitions=(0, 1, 2)), TopicPartition(topic="small", partitions=(0,))
    view = EndpointToPartitions(user_endpoint=endpoint, active_partitions=(big, small))
    assert response.partitions_by_user_endpoint == (view,)
    other = Member(world, "m2")
    assert other.join(topology(subtopology("0", ["big", "small"]))).partitions_by_user_endpoint is None
    assert member.ack(endpoint_information_epoch=-1).partitions_by_user_endpoint is not None


def test_endpoints_beyond_the_limits_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limits, 120 subtopologies that read the same topics would give each heartbeat 2,400,000 partitions
    (10 MB).
    """
    monkeypatch.setattr(endpoints, "MAX_PARTITIONS", 7)
    world = World({"big": 4, "small": 2})
    many = topology(subtopology("0", ["big", "small"]), subtopology("1", ["big"]))
    one, two = Member(world, "m1"), Member(world, "m2")
    for number, member in enumerate((one, two)):
        member.join(many, user_endpoint=Endpoint(host="h", port=number))
    for _ in range(4):
        one.ack()
        two.ack()
    views = one.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint
    assert views is not None
    assert [view.user_endpoint.port for view in views] == [0], "the endpoints of both members would exceed the limit"
    monkeypatch.setattr(endpoints, "MAX_PARTITIONS", 12)
    views = one.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint
    assert views is not None
    assert [view.user_endpoint.port for view in views] == [1, 0]


def test_one_endpoint_has_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MAX_TOPICS", 3)
    world = World({"a": 1, "b": 1})
    member = Member(world, "m1")
    parts = [subtopology(str(number), ["a", "b"]) for number in range(3)]
    (view,) = member.join(topology(*parts), user_endpoint=Endpoint(host="h", port=1)).partitions_by_user_endpoint
    assert [entry.topic for entry in view.active_partitions] == ["a", "b", "a"]


def test_the_endpoint_of_an_unchanged_member_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"big": 3})
    member = Member(world, "m1")
    member.join(topology(subtopology("0", ["big"])), user_endpoint=Endpoint(host="h", port=7))
    first = member.ack(endpoint_information_epoch=-1).partitions_by_user_endpoint

    def fails(*arguments: object) -> None:
        raise AssertionError("it is made again")

    monkeypatch.setattr(endpoints, "_view", fails)
    assert member.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint == first


def test_an_endpoint_without_source_topics_has_no_partitions() -> None:
    world = World({})
    member = Member(world, "m1")
    endpoint = Endpoint(host="h", port=7)
    response = member.join(topology(subtopology("0", ["in"])), user_endpoint=endpoint)
    assert response.partitions_by_user_endpoint == (EndpointToPartitions(user_endpoint=endpoint),)
    assert [status.status_code for status in response.status or ()] == [Status.MISSING_SOURCE_TOPICS.value]
