"""Scenarios of the members' state machines against a real engine, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Lost,
    Revoked,
)
from kcore.client.consumer_coordinator.states import ClassicState
from kcore.errors import (
    CommitFailedError,
    ConnectionClosedError,
    FencedInstanceIdError,
    PartitionErrors,
    UnknownTopicOrPartitionError,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kcore.protocol.messages.join_group import JoinGroupRequest
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from kcore.protocol.topic_partition import TopicPartition
from tests.consumer_coordinator.world import Handled, World
from tests.kit import committed, create

KINDS: list[dict[str, Any]] = [
    {"protocol": "consumer"},
    {"protocol": "classic"},
    {"protocol": "classic", "assignors": ["cooperative-sticky"]},
    {"protocol": "classic", "assignors": ["sticky"]},
]
T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def world() -> Iterator[World]:
    world = World(t=4)
    yield world
    world.close()


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join([kind["protocol"], *kind.get("assignors", [])]))
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def test_a_single_member_gets_all_partitions_and_leaves(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    assert one.events == [Assigned(tuple(T), one.machine.epoch)]
    one.machine.close(world.now_ms)
    world.until(lambda: one.machine.closed)
    assert one.events[1:] == [Revoked(tuple(T), one.events[0].epoch)]
    assert (one.owned, one.errors) == ({}, [])


def test_members_share_partitions_and_the_last_one_gets_all(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    two = world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    assert world.complete("t")
    one.machine.close(world.now_ms)
    world.until(lambda: len(two.owned) == 4)
    assert not one.lost
    assert not two.lost


def test_cooperative_members_keep_as_many_partitions_as_possible(world: World) -> None:
    one = world.member("one", "t", protocol="classic", assignors=["cooperative-sticky"])
    world.until(lambda: len(one.owned) == 4)
    two = world.member("two", "t", protocol="classic", assignors=["cooperative-sticky"])
    world.until(lambda: len(two.owned) == 2 and world.complete("t"))
    revoked = [event for event in one.events if isinstance(event, Revoked)]
    assert [len(event.partitions) for event in revoked] == [2]
    assert set(revoked[0].partitions) == set(two.owned)


def test_a_crashed_member_is_replaced(world: World, kind: dict[str, Any]) -> None:
    one, two = world.member("one", "t", **kind), world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    world.members.remove(one)
    world.until(lambda: len(two.owned) == 4)
    assert two.machine.epoch > 0


def test_a_member_without_heartbeats_loses_all_partitions_and_joins_again(world: World, kind: dict[str, Any]) -> None:
    one, two = world.member("one", "t", **kind), world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    owned_before, epoch = tuple(sorted(one.owned)), one.machine.epoch
    world.cut.add("one")
    world.until(lambda: len(two.owned) == 4)
    assert tuple(sorted(one.owned)) == owned_before, "the member cannot know that it was removed"
    world.cut.clear()
    world.until(lambda: one.lost and world.complete("t") and one.owned)
    assert one.lost == [Lost(owned_before, epoch)]


def test_commits_reach_the_group_and_are_fenced(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    done = one.machine.commit({T[0]: 5}, world.now_ms)
    world.until(lambda: done.done)
    assert (done.error, committed(world.engine, "g")) == (None, {("t", 0): 5})
    world.cut.add("one")
    world.run(30_000)
    world.cut.clear()
    late = one.machine.commit({T[0]: 9}, world.now_ms)
    world.until(lambda: late.done)
    assert isinstance(late.error, CommitFailedError)
    assert committed(world.engine, "g") == {("t", 0): 5}


def test_a_commit_that_waited_is_not_sent_with_a_later_epoch(world: World, kind: dict[str, Any]) -> None:
    """While the commit was waiting for the coordinator, another member owned the partition and committed a later
    offset.
    """
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    world.cut.add("one")
    world.run(3_000)
    late = one.machine.commit({T[0]: 5}, world.now_ms, timeout_ms=600_000)
    two = world.member("two", "t", **kind)
    world.until(lambda: len(two.owned) == 4)
    done = two.machine.commit({T[0]: 9}, world.now_ms)
    world.until(lambda: done.done)
    world.cut.clear()
    world.until(lambda: late.done and one.lost and one.owned)
    assert isinstance(late.error, CommitFailedError)
    assert committed(world.engine, "g") == {("t", 0): 9}


def test_a_commit_is_refused_if_its_membership_has_ended(world: World, kind: dict[str, Any]) -> None:
    one, two = world.member("one", "t", **kind), world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    owned_partition = next(iter(one.owned))
    seen_losses = one.machine.ownership.losses
    world.cut.add("one")
    world.until(lambda: len(two.owned) == 4)
    world.cut.clear()
    world.until(lambda: one.lost and world.complete("t") and one.owned)
    late = one.machine.commit({owned_partition: 5}, world.now_ms, seen_losses=seen_losses)
    with pytest.raises(CommitFailedError, match="removed from the group since"):
        one.machine.identity([owned_partition], seen_losses)
    with pytest.raises(CommitFailedError, match="removed from the group since"):
        one.machine.identity([], seen_losses)
    assert (late.done, type(late.error)) == (True, CommitFailedError)
    owned = next(iter(one.owned))
    done = one.machine.commit({owned: 6}, world.now_ms)
    world.until(lambda: done.done)
    assert (done.error, committed(world.engine, "g")) == (None, {tuple(owned): 6})
    assert one.machine.identity([owned], one.machine.ownership.losses)[1] == one.machine.epoch


def test_consumed_positions_are_committed_before_they_are_revoked(world: World, kind: dict[str, Any]) -> None:
    positions = {T[0]: 3, T[1]: 4, T[2]: 5, T[3]: 6}
    one = world.member("one", "t", consumed=lambda: positions, auto_commit_ms=600_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    assert committed(world.engine, "g") == {}
    two = world.member("two", "t", **kind)
    world.until(lambda: len(two.owned) == 2)
    assert committed(world.engine, "g") == {("t", 0): 3, ("t", 1): 4, ("t", 2): 5, ("t", 3): 6}


def test_a_cooperative_member_commits_records_that_it_consumed_during_the_rebalance(world: World) -> None:
    positions = dict.fromkeys(T, 1)
    options: dict[str, Any] = {"protocol": "classic", "assignors": ["cooperative-sticky"]}
    one = world.member("one", "t", consumed=lambda: positions, auto_commit_ms=600_000, **options)
    world.until(lambda: len(one.owned) == 4)
    world.member("two", "t", **options)
    world.until(lambda: one.machine.state in (ClassicState.JOINING, ClassicState.SYNCING))  # type: ignore[attr-defined]
    positions.update(dict.fromkeys(T, 5))
    world.until(lambda: any(isinstance(event, Revoked) for event in one.events))
    (revoked,) = (event for event in one.events if isinstance(event, Revoked))
    assert {committed(world.engine, "g")[partition] for partition in revoked.partitions} == {5}


def test_auto_commit_commits_at_its_interval_and_on_close(world: World, kind: dict[str, Any]) -> None:
    positions = dict.fromkeys(T, 1)
    one = world.member("one", "t", consumed=lambda: positions, auto_commit_ms=5_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    assert committed(world.engine, "g") == dict.fromkeys(map(tuple, T), 1)
    positions |= {T[0]: 7}
    one.machine.close(world.now_ms)
    world.until(lambda: one.machine.closed)
    assert committed(world.engine, "g")["t", 0] == 7


def test_a_member_that_does_not_poll_leaves_and_returns(world: World, kind: dict[str, Any]) -> None:
    one, two = world.member("one", "t", **kind), world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    until_ms = world.now_ms + 62_000
    while world.now_ms < until_ms or len(two.owned) < 4:
        world.step(one, poll=False)
        world.step(two)
        while world.responses:
            world.deliver()
        world.engine.advance(50)
        assert world.now_ms < until_ms + 60_000
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    assert len(one.lost) == 1


def test_new_partitions_are_assigned(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", metadata_max_age_ms=1_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    growing = CreatePartitionsTopic(name="t", count=6, assignments=None)
    world.engine.send(CreatePartitionsRequest(topics=[growing], timeout_ms=1_000))
    world.until(lambda: len(one.owned) == 6)
    assert sorted(map(str, one.owned)) == [f"t-{index}" for index in range(6)]


def test_patterns_follow_new_topics(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", pattern="u.*", metadata_max_age_ms=1_000, **kind)
    world.run(2_000)
    assert one.owned == {}
    world.engine.send(create("u1", "u2", "other"))
    world.until(lambda: sorted(map(str, one.owned)) == ["u1-0", "u2-0"])


def test_a_static_member_keeps_its_partitions_when_it_restarts(world: World, kind: dict[str, Any]) -> None:
    one, two = world.member("one", "t", instance_id="i", **kind), world.member("two", "t", **kind)
    world.until(lambda: len(one.owned) == len(two.owned) == 2)
    mine = set(one.owned)
    one.machine.close(world.now_ms)
    world.until(lambda: one.machine.closed)
    world.run(1_000)
    assert len(two.owned) == 2, "nothing moves while the static member restarts"
    again = world.member("again", "t", instance_id="i", **kind)
    world.until(lambda: len(again.owned) == 2)
    assert set(again.owned) == mine


CLASSIC_KINDS = [kind for kind in KINDS if kind["protocol"] == "classic"]


@pytest.mark.parametrize("kind", CLASSIC_KINDS, ids=lambda kind: kind.get("assignors", ["range"])[0])
def test_a_static_member_that_was_replaced_does_not_evict_its_successor(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", instance_id="i", **kind)
    world.until(lambda: len(one.owned) == 4)
    epoch = one.machine.epoch
    two = world.member("two", "t", instance_id="i", **kind)
    world.until(lambda: len(two.owned) == 4)
    world.run(30_000)
    assert (one.machine.state, one.machine.assignment, one.machine.epoch) == (ClassicState.FATAL, frozenset(), -1)  # type: ignore[attr-defined]
    assert one.events[1:] == [Lost(tuple(T), epoch)]
    assert [type(error) for error in one.errors] == [FencedInstanceIdError]
    assert one.machine.fatal is one.errors[0]
    assert (len(two.events), len(two.owned), two.errors) == (1, 4, [])
    one.machine.close(world.now_ms)
    world.until(lambda: one.machine.closed)
    assert len(two.owned) == 4


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_commit_of_a_replaced_static_member_is_fatal(world: World, protocol: str) -> None:
    one = world.member("one", "t", instance_id="i", protocol="classic", assignors=[protocol])
    world.until(lambda: len(one.owned) == 4)
    world.manual.add("one")
    two = world.member("two", "t", instance_id="i", protocol="classic", assignors=[protocol])
    world.cut.add("one")
    world.until(lambda: len(two.owned) == 4)
    world.cut.discard("one")
    commit = one.machine.commit({T[0]: 1}, world.now_ms)
    world.until(lambda: commit.done)
    world.until(lambda: one.machine.state is ClassicState.FATAL)  # type: ignore[attr-defined]
    assert isinstance(one.machine.event, Lost)
    world.manual.discard("one")
    world.run(5_000)
    assert (one.owned, len(two.owned), len(two.events)) == ({}, 4, 1)


def test_a_commit_that_is_repeated_in_vain_names_the_refused_partitions(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    missing = TopicPartition("t", 9)
    alone = one.machine.commit({missing: 1}, world.now_ms, timeout_ms=1_000)
    world.until(lambda: alone.done)
    assert isinstance(alone.error, UnknownTopicOrPartitionError)
    assert str(alone.error).startswith("t-9: UNKNOWN_TOPIC_OR_PARTITION")
    mixed = one.machine.commit({T[0]: 1, missing: 1}, world.now_ms, timeout_ms=1_000)
    world.until(lambda: mixed.done)
    assert isinstance(mixed.error, PartitionErrors)
    assert list(mixed.error.errors) == [missing]


def test_a_listener_may_commit_during_a_long_revocation(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    world.manual.add("one")
    two = world.member("two", "t", **kind)
    world.until(lambda: isinstance(one.machine.event, Revoked))
    world.run(5_000)
    assert two.owned == {}, "the partitions still belong to the first member"
    done = one.machine.commit({T[3]: 8}, world.now_ms)
    world.until(lambda: done.done)
    assert done.error is None
    world.manual.clear()
    world.until(lambda: len(two.owned) == 2)
    assert committed(world.engine, "g")["t", 3] == 8


def test_a_leader_that_is_fenced_while_it_looks_topics_up_joins_again(world: World) -> None:
    one = world.member("one", "t", protocol="classic")
    for _ in range(100):
        world.step(one)
        if any(isinstance(outgoing.request, MetadataRequest) for _, outgoing, _ in world.responses):
            break
        while world.responses:
            world.deliver()
        world.engine.advance(50)
    (lookup,) = world.responses
    world.responses.clear()
    identity = MemberIdentity(member_id=one.machine.member_id)
    world.engine.send(LeaveGroupRequest(group_id="g", members=[identity]))
    world.engine.advance(1_000)
    world.step(one)  # sends a heartbeat
    world.deliver()
    assert one.machine.epoch == -1
    world.responses.append(lookup)
    world.deliver()
    world.until(lambda: len(one.owned) == 4, limit_ms=5_000)


def test_a_close_does_not_wait_for_a_listener_that_does_not_end(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.manual.add("one")
    world.until(lambda: one.machine.event is not None)
    one.machine.close(world.now_ms, timeout_ms=1_000)
    world.until(lambda: one.machine.closed, limit_ms=7_000)
    assert one.machine.wake_ms() is None


def silent_close_ms(world: World, one: Handled) -> int:
    """Closes a member whose coordinator does not respond any more. Returns the time of the close in ms."""
    begun_ms = world.now_ms
    one.machine.close(begun_ms)
    while not one.machine.closed:
        assert world.now_ms - begun_ms <= 120_000
        world.step(one)
        world.responses.clear()
        world.engine.advance(50)
    return world.now_ms - begun_ms


@pytest.mark.parametrize("commits", [False, True], ids=["without commits", "with acknowledged commits"])
def test_a_close_without_losses_waits_5_s_for_a_silent_coordinator(
    world: World, kind: dict[str, Any], commits: bool
) -> None:
    """Before, the close took 30 s, although only the request to leave got no response."""
    positions = dict.fromkeys(T, 1)
    settings = {"consumed": lambda: positions, "auto_commit_ms": 5_000} if commits else {}
    one = world.member("one", "t", **settings, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    assert silent_close_ms(world, one) <= 5_100
    assert one.owned == {}
    assert one.machine.wake_ms() is None


def test_a_close_waits_5_s_for_an_automatic_commit_that_changes_nothing(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", consumed=lambda: dict.fromkeys(T, 1), auto_commit_ms=5_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    while not any(isinstance(outgoing.request, OffsetCommitRequest) for _, outgoing, _ in world.responses):
        world.responses.clear()
        world.step(one)
        world.engine.advance(50)
    assert silent_close_ms(world, one) <= 5_100


def test_a_close_waits_30_s_for_a_commit_that_the_group_would_lose(world: World, kind: dict[str, Any]) -> None:
    positions = dict.fromkeys(T, 1)
    one = world.member("one", "t", consumed=lambda: positions, auto_commit_ms=5_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    positions |= {T[0]: 2}
    assert 30_000 <= silent_close_ms(world, one) <= 30_200


def test_a_close_does_not_repeat_an_acknowledged_commit(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", consumed=lambda: dict.fromkeys(T, 1), auto_commit_ms=5_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    one.machine.close(world.now_ms)
    sent = []
    while not one.machine.closed:
        world.step(one)
        sent += [outgoing.request for _, outgoing, _ in world.responses]
        while world.responses:
            world.deliver()
    assert not [request for request in sent if isinstance(request, OffsetCommitRequest)]


def test_a_close_commits_the_position_of_a_partition_that_had_another_owner(world: World, kind: dict[str, Any]) -> None:
    """The offset equals the member's last commit, but another member has committed since then."""
    one = world.member("one", "t", consumed=lambda: dict.fromkeys(T, 1), auto_commit_ms=5_000, **kind)
    world.until(lambda: len(one.owned) == 4)
    world.run(6_000)
    two = world.member("two", "t", consumed=lambda: dict.fromkeys(T, 9), auto_commit_ms=5_000, **kind)
    world.until(lambda: len(two.owned) == 2)
    taken = next(iter(two.owned))
    world.run(6_000)
    two.machine.close(world.now_ms)
    world.until(lambda: two.machine.closed)
    assert committed(world.engine, "g")[taken] == 9
    world.until(lambda: len(one.owned) == 4)
    one.machine.close(world.now_ms)
    world.until(lambda: one.machine.closed)
    assert committed(world.engine, "g") == dict.fromkeys(map(tuple, T), 1)


@pytest.mark.parametrize("lost", [False, True], ids=["late", "lost"])
def test_a_member_that_closes_during_its_join_leaves_the_group(world: World, kind: dict[str, Any], lost: bool) -> None:
    """A member that did not leave would keep its partitions until the end of its session."""
    one = world.member("one", "t", **kind)
    join = (ConsumerGroupHeartbeatRequest, JoinGroupRequest)
    while not any(isinstance(outgoing.request, join) for _, outgoing, _ in world.responses):
        while world.responses:
            world.deliver()
        world.step(one)
        world.engine.advance(50)
    one.machine.close(world.now_ms, timeout_ms=5_000)
    if lost:
        world.responses = [(member, outgoing, ConnectionClosedError("lost")) for member, outgoing, _ in world.responses]
    world.step(one)
    closed_at_ms = world.now_ms
    world.until(lambda: one.machine.closed)
    assert world.now_ms - closed_at_ms <= 100
    if not lost:
        group = world.engine.engine.groups.get(0).machine.groups.get("g")
        assert group is None or not group.members


def test_a_failing_listener_is_reported(world: World, kind: dict[str, Any]) -> None:
    one = world.member("one", "t", **kind)
    world.manual.add("one")
    world.until(lambda: one.machine.event is not None)
    failure = RuntimeError("listener")
    one.handle(failure)
    world.manual.clear()
    world.run(2_000)
    assert one.errors == [failure]
    assert len(one.owned) == 4


def test_a_topic_that_is_created_later_is_soon_assigned(world: World, kind: dict[str, Any]) -> None:
    """The member looks the missing topic up again soon. It does not wait until its earlier look-up reaches the maximum
    age.
    """
    one = world.member("one", "t", "u", **kind)
    world.until(lambda: len(one.owned) == 4)
    world.engine.send(create("u", partitions=2))
    world.until(lambda: len(one.owned) == 6, limit_ms=15_000)
    assert sorted(map(str, one.owned)) == ["t-0", "t-1", "t-2", "t-3", "u-0", "u-1"]


def test_a_member_adopts_no_partitions_before_the_response_to_its_report(world: World) -> None:
    """A member reports that it owns no partitions. The coordinator then assigns half of the member's target to another
    member. The first member must not adopt its old target before the response to the report.
    """
    one = world.member("one", "t", protocol="consumer")
    delayed: list[tuple[Any, Any, Any]] = []
    hold: list[type] = [MetadataRequest]

    def run(ms: int) -> None:
        for _ in range(0, ms, 50):
            for member in world.members:
                world.step(member)
            while world.responses:
                late = world.responses[0][0] is one and type(world.responses[0][1].request) in hold
                delayed.append(world.responses.pop(0)) if late else world.deliver()
            world.engine.advance(50)

    run(500)  # its target arrives, but not the names of its topics
    assert (len(delayed), one.owned) == (1, {})
    world.cut.add("one")
    run(1_500)  # a heartbeat fails, so the next one reports the owned partitions again
    world.cut.clear()
    two = world.member("two", "t", protocol="consumer")
    world.step(two)  # it joins, and gets half of the target
    hold.append(ConsumerGroupHeartbeatRequest)
    run(2_000)
    assert isinstance(delayed[-1][1].request, ConsumerGroupHeartbeatRequest)
    metadata = [each for each in delayed if isinstance(each[1].request, MetadataRequest)]
    delayed[:] = [each for each in delayed if each not in metadata]
    world.responses += metadata  # the names arrive before the response to the heartbeat
    hold.clear()
    run(1_000)
    world.responses += delayed
    world.until(lambda: len(one.owned) == len(two.owned) == 2 and world.complete("t"))
    assert [event for event in one.events if isinstance(event, Revoked)] == []


def test_a_leader_keeps_the_partitions_of_a_topic_whose_leaders_are_unknown(world: World) -> None:
    """The group's leader gets LEADER_NOT_AVAILABLE for a topic, and still assigns the partitions of this topic.

    A node returns this error while it has no connection to its cluster. A later look-up finds the topic without the
    error.
    """
    one = world.member("one", "t", protocol="classic")
    world.until(lambda: len(one.owned) == 4)
    two = world.member("two", "t", protocol="classic")
    refused = 0
    while not refused:
        for member in world.members:
            world.step(member)
        for response_index, (member, outgoing, _) in enumerate(world.responses):
            if isinstance(outgoing.request, MetadataRequest):
                topic = MetadataResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name="t")
                world.responses[response_index] = member, outgoing, MetadataResponse(topics=[topic])
                refused += 1
        while world.responses:
            world.deliver()
        world.engine.advance(50)
    world.until(lambda: len(one.owned) == len(two.owned) == 2, limit_ms=5_000)
    leader = one if one.machine.is_leader else two
    world.run(2_000)
    assert leader.machine._metadata_at_ms > world.now_ms + 200_000, "a later lookup found everything"


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost"])
def test_heartbeats_that_the_named_coordinator_does_not_serve_are_repeated_with_a_backoff(
    world: World, kind: dict[str, Any], lost: bool
) -> None:
    """All other nodes still name the former coordinator, so each look-up succeeds at once. Without a backoff, the
    member would repeat the heartbeat without a pause.
    """
    one = world.member("one", "t", **kind)
    world.until(lambda: len(one.owned) == 4)
    beats: list[int] = []
    responses = {HeartbeatRequest: HeartbeatResponse, ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse}
    until_ms = world.now_ms + 5_000
    while world.now_ms < until_ms:
        world.step(one)
        for response_index, (member, outgoing, _) in enumerate(world.responses):
            response = responses.get(type(outgoing.request))
            if response is not None:
                beats.append(world.now_ms)
                refused = response(error_code=ErrorCode.NOT_COORDINATOR)
                world.responses[response_index] = member, outgoing, ConnectionClosedError("down") if lost else refused
        while world.responses:
            world.deliver()
        world.engine.advance(10)
    assert 4 <= len(beats) <= 12, [later - earlier for earlier, later in pairwise(beats)]
    world.run(2_000)
    assert (len(one.owned), one.lost, one.machine._broker is None) == (4, [], False)
    world.run(20_000)
    assert len(one.owned) == 4
