"""Descriptions of large groups are converted in slices, and show the state at one moment."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis import base
from kcore.group.apis.consumer_group_describe import ConsumerGroupDescribeApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.consumer import describe
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.group.classic.world import World as ClassicWorld
from tests.group.consumer.members import Member, World
from tests.group.test_shard import Denying

TOPICS = {f"t{number}": 1 for number in range(20)}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(TOPICS)
    member = Member(world, "m1")
    member.join([*TOPICS])
    world.settle(member)
    monkeypatch.setattr(describe, "TOPICS_PER_STEP", 5)
    monkeypatch.setattr(describe, "TOPIC_COST_US", 2_000)
    world.slices.requests.enabled = True
    monkeypatch.setattr(world, "finish", lambda: None)
    return world


def send(world: World, authorizer: Any = None) -> Any:
    return world.send(
        ConsumerGroupDescribeApi(world.shards, world.consumer, authorizer),
        ConsumerGroupDescribeRequest(group_ids=["g"]),
    )


def test_the_assignments_of_a_group_are_converted_in_slices(world: World) -> None:
    """In one slice, two members with 30,000 topics each would take 260 ms."""
    call = send(world)
    slices = 1
    while world.slices.step():
        slices += 1
    assert slices == 8, "parts of five topics of the assignment and of the target; another slice ends the work"
    (member,) = call.response.groups[0].members
    for assignment in (member.assignment, member.target_assignment):
        assert [topic.topic_name for topic in assignment.topic_partitions] == [*TOPICS]


def test_a_description_shows_the_group_at_one_moment(world: World) -> None:
    call = send(world)
    assert not call.done
    world.send(world.heartbeats, ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=-1))
    assert not world.group.members
    world.slices.finish()
    world.commit()
    (group,) = call.response.groups
    assert group.group_state == "Stable"
    assert [len(member.assignment.topic_partitions) for member in group.members] == [len(TOPICS)]


def test_a_topic_that_the_client_may_not_see_refuses_the_group(world: World) -> None:
    call = send(world, Denying((Operation.DESCRIBE, ResourceType.TOPIC, "t7")))
    world.slices.finish()
    (group,) = call.response.groups
    assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not group.members


def test_the_cost_of_a_description_depends_on_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member adds to the cost of a description. Otherwise one slice would describe 100 groups with 10,000 members
    each.
    """
    monkeypatch.setattr(base, "MEMBER_COST_US", 10_000)
    world = ClassicWorld()
    for group in ("a", "b", "c"):
        world.join(group=group, version=3)
    world.context.slices.requests.enabled = True
    monkeypatch.setattr(world.context, "finish", lambda: None)
    request = DescribeGroupsRequest(groups=["a", "b", "c"])
    call = world.context.send(DescribeGroupsApi(world.context.shards), request)
    assert not call.done
    slices = 1
    while world.context.slices.step():
        slices += 1
    assert slices == 4, "one group each, the first one at once; one slice ends the work, and one joins the parts"
    assert [group.group_id for group in call.response.groups] == ["a", "b", "c"]
