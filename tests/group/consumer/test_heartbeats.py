"""Rules of heartbeats that the recordings in tests/golden do not cover: timers, limits, background targets, custom
assignors, patterns, watchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.group.apis.consumer_group_heartbeat import invalid
from kcore.group.consumer.events import GroupChanged
from kcore.group.consumer.metadata import TopicMetadata, group_hash, topic_hash
from kcore.group.consumer.services import BOUNDED, KEPT_NAMES, MAX_KEPT_CHARACTERS, MAX_KEPT_NAMES
from kcore.group.consumer.states import MemberState
from kcore.group.settings import check_settings
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey as RegexKey
from kcore.protocol.records.consumer_group_target_assignment_member import ConsumerGroupTargetAssignmentMemberKey
from kcore.protocol.records.consumer_group_target_assignment_metadata import ConsumerGroupTargetAssignmentMetadataKey
from kcore.runtime import TopicInfo
from tests.group.consumer.members import GROUP, Member, World, reported

SESSION_MS = 45_000


@pytest.fixture
def world() -> World:
    return World({"a": 4})


# ---- at rest


def test_a_heartbeat_at_rest_writes_nothing_and_keeps_the_session(world: World) -> None:
    """A member that owns its target sends heartbeats without changes. They write no record and only renew the
    session.
    """
    one = Member(world, "m1")
    one.join(["a"])
    world.records()
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert one.beat().member_epoch == 2
    assert world.records() == []
    world.advance(SESSION_MS)
    assert world.describe().group_state == "Empty"


def test_heartbeats_change_nothing_while_a_target_must_wait() -> None:
    """A join starts a new group epoch within the assignment interval (KIP-1263). Until the interval ends, heartbeats
    only renew the sessions. The first heartbeat after it computes the target.
    """
    times = {"min_session_timeout_ms": 1, "session_timeout_ms": 8_000, "assignment_interval_ms": 14_000}
    world = World({"a": 4}, **{f"group_consumer_{name}": value for name, value in times.items()})
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"])
    two.join(["a"])
    world.records()
    world.advance(7_000)
    first = one.beat()
    assert world.group.members["m1"].reply == first, "the cached response of the member"
    assert two.beat().member_epoch == first.member_epoch == world.group.assignment_epoch == 2
    assert (world.records(), world.group.group_epoch, world.describe().group_state) == ([], 3, "Assigning")
    world.advance(7_000)
    assert two.beat().member_epoch == world.group.assignment_epoch == 3
    written = [key.member_id for key, _ in world.records() if isinstance(key, ConsumerGroupTargetAssignmentMemberKey)]
    assert written == ["m1", "m2"]
    world.settle(one, two)
    assert [len(member.has()["a"]) for member in (one, two)] == [2, 2]


def test_a_refused_heartbeat_keeps_no_session(world: World) -> None:
    """Only successful responses renew the session."""
    one = Member(world, "m1")
    one.join(["a"])
    world.advance(SESSION_MS - 1)
    assert one.beat(member_epoch=9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    world.advance(1)
    assert one.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_changed_setting_applies_from_the_next_heartbeat(world: World) -> None:
    """Session timeout and heartbeat interval are settings of the group."""
    one = Member(world, "m1")
    one.join(["a"])
    world.set_group(GROUP, consumer_heartbeat_interval_ms=6_000, consumer_session_timeout_ms=50_000)
    assert one.beat().heartbeat_interval_ms == 6_000
    world.advance(49_999)
    assert one.beat().error_code == ErrorCode.NONE


# ---- timers


def test_heartbeats_do_not_prolong_the_revocation_timeout(world: World) -> None:
    """A member that keeps revoked partitions is removed after its rebalance timeout, which a restart begins again."""
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"], rebalance_timeout_ms=5_000)
    two.join(["a"])
    one.beat()
    world.advance(4_000)
    one.beat()
    world.restart()
    world.advance(4_999)
    assert len(world.group.members) == 2
    world.advance(1)
    assert list(world.group.members) == ["m2"]


def test_a_confirmed_revocation_cancels_its_timer(world: World) -> None:
    """The member is not removed when the revocation timeout ends."""
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"], rebalance_timeout_ms=5_000)
    two.join(["a"])
    one.beat()
    one.ack()
    world.advance(20_000)
    assert set(world.group.members) == {"m1", "m2"}


def test_a_static_member_that_does_not_return_expires_with_its_session(world: World) -> None:
    """A static member leaves temporarily (epoch -2) and does not return. Its session expires as if it had not left."""
    one = Member(world, "m1", "i1")
    one.join(["a"])
    world.advance(20_000)
    one.leave(-2)
    world.advance(SESSION_MS - 20_001)
    assert world.describe().group_state == "Reconciling"
    world.advance(1)
    assert world.describe().group_state == "Empty"


def test_a_new_target_of_a_member_that_replaces_another_one_is_written_also_if_it_is_equal(world: World) -> None:
    """As in Kafka, the log has two target records for the new member id: the inherited target and the new one."""
    one, two = Member(world, "m1", "i1"), Member(world, "m2", "i1")
    one.join(["a"])
    one.leave(-2)
    world.records()
    two.join(["a", "missing"])
    targets = [
        (key.member_id, value and [list(topic.partitions) for topic in value.topic_partitions])
        for key, value in world.records()
        if isinstance(key, ConsumerGroupTargetAssignmentMemberKey)
    ]
    assert targets == [("m1", None), ("m2", [[0, 1, 2, 3]]), ("m2", [[0, 1, 2, 3]])]


# ---- limits


def test_a_full_group_refuses_new_members() -> None:
    """GROUP_MAX_SIZE_REACHED precedes UNKNOWN_MEMBER_ID. Existing members are not affected."""
    world = World({"a": 4}, group_consumer_max_size=1)
    one = Member(world, "m1")
    one.join(["a"])
    for epoch in (0, 3):
        response = world.beat(
            member_id="m2",
            member_epoch=epoch,
            rebalance_timeout_ms=1,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        )
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert one.beat().error_code == ErrorCode.NONE


def test_the_protocol_can_be_disabled() -> None:
    """Without `consumer` among the rebalance protocols, both APIs return UNSUPPORTED_VERSION for any group."""
    world = World({"a": 1}, group_coordinator_rebalance_protocols="classic")
    assert world.beat(member_id="m", member_epoch=0).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = world.describe()
    assert (described.group_id, described.error_code) == (GROUP, ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"session_timeout_ms": 44_999},
            "group.consumer.session.timeout.ms=44999 must be within group.consumer.min.session.timeout.ms=45000 "
            "and group.consumer.max.session.timeout.ms=60000",
        ),
        (
            {"max_heartbeat_interval_ms": 4_000},
            "group.consumer.heartbeat.interval.ms=5000 must be within group.consumer.min.heartbeat.interval.ms=5000 "
            "and group.consumer.max.heartbeat.interval.ms=4000",
        ),
        (
            {"assignment_interval_ms": 15_001},
            "group.consumer.assignment.interval.ms=15001 must be within group.consumer.min.assignment.interval.ms=0 "
            "and group.consumer.max.assignment.interval.ms=15000",
        ),
        (
            {"heartbeat_interval_ms": 45_000, "max_heartbeat_interval_ms": 45_000},
            "group.consumer.heartbeat.interval.ms=45000 must be below group.consumer.session.timeout.ms=45000",
        ),
    ],
)
def test_contradictory_settings_are_refused_at_startup(settings: dict[str, int], why: str) -> None:
    """As in Kafka, the node refuses settings that could make the session timeout invalid for every group."""
    named = {f"group.consumer.{name.replace('_', '.')}": value for name, value in settings.items()}
    with pytest.raises(ConfigError, match=f"^{re.escape(why)}$"):
        check_settings(Config.of(named), "consumer", BOUNDED)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("epoch", [-3, -2, -1, 0, 1])
def test_a_blank_member_id_is_refused_as_in_kafka(version: int, epoch: int) -> None:
    """In version 0, a join (epoch 0) and a temporary leave (epoch -2) may have a blank member id."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=" ",
        member_epoch=epoch,
        instance_id="i",
        rebalance_timeout_ms=1,
        subscribed_topic_names=[],
        topic_partitions=[],
    )
    reason = invalid(version, request)
    allowed = version == 0 and epoch in (0, -2)
    assert (reason is None) == allowed


# ---- targets


class Backwards:
    """A custom assignor that assigns all partitions to the member whose id sorts last."""

    name = "backwards"

    def assign(self, members: Any, topics: Any, previous: Any = None) -> Mapping[str, Mapping[Any, list[int]]]:
        last = max(member.member_id for member in members)
        return {last: {topic: list(range(topics[topic])) for topic in topics}}


class Broken:
    """An invalid assignor, which assigns a partition to two members."""

    name = "broken"

    def assign(self, members: Any, topics: Any, previous: Any = None) -> Mapping[str, Mapping[Any, list[int]]]:
        return {member.member_id: {topic: [0] for topic in topics} for member in members}


def test_a_custom_assignor_serves_a_group() -> None:
    """`group.consumer.assignors` accepts package.module:Class. A member that is missing in the assignor's result gets
    no partitions.
    """
    world = World({"a": 3}, group_consumer_assignors=f"uniform,{__name__}:Backwards")
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"], server_assignor="backwards")
    two.join(["a"])
    world.settle(one, two)
    assert (one.has(), two.has()) == ({}, {"a": [0, 1, 2]})
    assert world.describe().assignor_name == "backwards"


def test_the_assignor_of_the_examples_serves_a_group() -> None:
    """The assignor serves one member, two members, and members with different subscriptions."""
    world = World({"a": 3, "b": 2}, group_consumer_assignors="examples.assignors:EvenOdd")
    one, two, three = Member(world, "m1"), Member(world, "m2"), Member(world, "m3")
    one.join(["a", "b", "missing"])
    world.settle(one)
    assert one.has() == {"a": [0, 1, 2], "b": [0, 1]}
    two.join(["a"])
    three.join(["b"])
    world.settle(one, two, three)
    assert (one.has(), two.has(), three.has()) == ({"a": [0, 2], "b": [0]}, {"a": [1]}, {"b": [1]})


def test_an_assignor_that_fails_writes_nothing() -> None:
    """The client gets UNKNOWN_SERVER_ERROR, and the group stays unchanged. With another assignor, the join succeeds."""
    world = World({"a": 3}, group_consumer_assignors=f"uniform,{__name__}:Broken")
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"])
    world.records()
    fields = {"member_epoch": 0, "rebalance_timeout_ms": 1, "subscribed_topic_names": ["a"], "topic_partitions": []}
    world.group.subscriptions.assignors["broken"] = 5  # as if most members requested it
    assert two.send(**fields).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.records() == []
    del world.group.subscriptions.assignors["broken"]
    two.join(["a"])
    world.settle(one, two)


def test_the_member_that_makes_a_group_large_does_not_wait_for_the_assignor(world: World) -> None:
    """A member joins a group that becomes too large for computing its target within a heartbeat. The target is computed
    in slices, and the join does not wait for it.
    """
    jobs: list[Callable[[], Any]] = []
    world.consumer.background = lambda compute, done: jobs.append(compute)
    world.consumer.inline_members = 2
    one, two, three = (Member(world, f"m{number}") for number in (1, 2, 3))
    one.join(["a"])
    two.join(["a"])
    assert (jobs, world.group.assignment_epoch) == ([], 3)
    three.join(["a"])
    assert (len(jobs), world.group.assignment_epoch) == (1, 3)


def test_targets_of_large_groups_are_computed_and_written_in_slices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No heartbeat waits for the new target. First the targets of all members are written, then a record with their
    epoch. The old target applies until this record is written.
    """
    monkeypatch.setattr("kcore.group.consumer.target.SLICE_RECORDS", 1)
    jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
    world.consumer.background = lambda compute, done: jobs.append((compute, done))
    one, two, three = (Member(world, f"m{number}") for number in (1, 2, 3))
    one.join(["a"])
    world.consumer.inline_members = 0
    assert two.join(["a"]).member_epoch == 2
    assert three.join(["a"]).member_epoch == 2
    assert len(jobs) == 1, "only one target is computed at a time"
    assert world.describe().group_state == "Assigning"
    world.records()
    compute, done = jobs.pop()
    world.auto_commit = False
    done(compute())
    world.slices.step()
    world.commit()
    world.auto_commit = True
    world.finish()
    written = [type(key) for key, _ in world.records()]
    assert written == [ConsumerGroupTargetAssignmentMemberKey] * 2 + [ConsumerGroupTargetAssignmentMetadataKey]
    assert world.group.assignment_epoch == 3, (
        "the target has the epoch for which it was computed; the group has a later epoch"
    )
    one.beat()
    assert len(jobs) == 1
    compute, done = jobs.pop()
    done(RuntimeError("the assignor failed"))
    assert one.beat().error_code == ErrorCode.NONE
    assert len(jobs) == 1, "the next heartbeat tries again"
    compute, done = jobs.pop()
    done(compute())
    world.finish()
    world.settle(one, two, three)
    assert sorted(len(member.has().get("a", ())) for member in (one, two, three)) == [1, 1, 2]


def test_a_target_is_not_written_to_a_reloaded_group(world: World) -> None:
    """The target was computed for the state that the reload discarded."""
    jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
    world.consumer.background = lambda compute, done: jobs.append((compute, done))
    world.consumer.inline_members = 0
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"])
    two.join(["a"])
    compute, done = jobs.pop()
    world.fail_next_commit()
    Member(world, "m3").send(member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["a"], topic_partitions=[])
    world.records()
    done(compute())
    world.finish()
    assert world.records() == []


def test_a_target_too_large_for_a_decision_is_written_in_slices() -> None:
    """A member gets its target later if the target is too large for the record batch of its join."""
    world = World({"a": 3})
    world.machine.max_record_bytes = 200
    one = Member(world, "m1")
    one.join(["a"])
    world.machine.max_record_bytes = 1_000_000
    world.settle(one)
    assert one.has() == {"a": [0, 1, 2]}


def test_a_subscription_that_no_record_can_hold_is_refused_at_once(world: World) -> None:
    """A join whose subscription is too large for a record gets error -1, as in Kafka. Repeated names count once."""
    most = world.machine.max_record_bytes
    fields = {"member_id": "m", "rebalance_timeout_ms": 1000, "topic_partitions": []}
    names = [f"{number:06}-{'x' * 200}" for number in range(most // 200)]
    response = world.beat(**fields, subscribed_topic_names=names)
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert response.error_message == (
        f"a subscription to {len(names)} topics exceeds the maximum record size of {most} bytes"
    )
    assert (world.records(), world.describe().error_code) == ([], ErrorCode.GROUP_ID_NOT_FOUND)
    assert world.beat(**fields, subscribed_topic_names=["a" * 200] * (most // 100)).error_code == ErrorCode.NONE


def test_cached_subscriptions_are_bounded(world: World) -> None:
    """Members with the same subscription share one set, until the cache is full."""
    services = world.consumer
    assert services.names(["a", "b"]) is services.names(["a", "b"])
    assert services.names(["x"] * (MAX_KEPT_NAMES + 1)) == {"x"}
    for number in range(KEPT_NAMES // MAX_KEPT_NAMES * 3):
        names = services.names([f"{number}-{index}" for index in range(MAX_KEPT_NAMES - 1)])
        assert services.in_order(names) is services.in_order(names)
        assert sum(map(len, services._names)) + sum(map(len, services._sorted)) <= KEPT_NAMES


def test_subscriptions_to_impossible_names_are_not_cached(world: World) -> None:
    """A client may subscribe to names of 32,767 characters. A few thousand of these names would fill the memory."""
    services = world.consumer
    longest = ["a", "b" * MAX_KEPT_CHARACTERS]
    assert services.names(longest) is services.names(longest)
    kept = (dict(services._names), dict(services._sorted), dict(services._topics))
    too_long = frozenset(["a", "b" * (MAX_KEPT_CHARACTERS + 1)])
    assert services.names(sorted(too_long)) == too_long
    assert services.in_order(too_long) == tuple(sorted(too_long))
    assert dict(services.topics((tuple(sorted(too_long)),))) == dict(services.topics((("a",),)))
    del services._topics[(("a",),)]
    assert (services._names, services._sorted, services._topics) == kept


# ---- patterns


@pytest.mark.parametrize("regex", ["(a*)*b", "((a|aa)+)+$", "(.*){1,30}x" * 2])
def test_patterns_with_exponential_backtracking_match_in_linear_time(regex: str) -> None:
    """RE2 takes linear time: with any pattern, it matches a name of 249 characters at once."""
    name = "a" * 249
    world = World({name: 1})
    one = Member(world, "m1")
    fields = {"member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
    response = one.send(**fields, subscribed_topic_regex=regex)
    assert response.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REGULAR_EXPRESSION)


def test_patterns_match_whole_names(world: World) -> None:
    """A subscription may have both names and a pattern. The pattern must match the whole name."""
    for name in ("ab", "ba", "b"):
        world.make_topic(name, 1)
    one = Member(world, "m1")
    one.join(["b"], subscribed_topic_regex="a.?")
    world.settle(one)
    assert sorted(one.has()) == ["a", "ab", "b"]


def test_a_new_topic_is_found_ten_seconds_after_the_last_resolution(world: World) -> None:
    """The first heartbeat later than ten seconds after the group's last resolution of patterns finds the topic."""
    one = Member(world, "m1")
    one.join(None, subscribed_topic_regex="a.*")
    world.settle(one)
    world.make_topic("a2", 1)
    world.advance(10_000)
    one.ack()
    world.settle(one)
    assert sorted(one.has()) == ["a"]
    world.advance(1)
    one.ack()
    one.ack()
    assert sorted(one.has()) == ["a", "a2"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_load_resolves_patterns_again_if_the_metadata_has_changed(world: World, changed: bool) -> None:
    """After a load of the partition, the patterns are resolved again if any change of the metadata is newer than their
    last resolution, as in Kafka. The change need not be the creation of a topic.
    """
    one = Member(world, "m1")
    one.join(None, subscribed_topic_regex="a.*")
    world.settle(one)
    world.metadata_version += changed
    world.unload()
    world.shards.load(0, world.engine.node_epoch)
    world.finish()
    world.records()
    world.advance(10_001)
    one.ack()
    world.finish()
    regexes = [(key.regular_expression, value.topics) for key, value in world.records() if type(key) is RegexKey]
    assert regexes == [("a.*", ("a",))] * changed


def test_removing_a_pattern_resolves_the_others(world: World) -> None:
    """As in Kafka, the other patterns are resolved ten seconds after the last resolution. Removing the last pattern
    starts no resolution.
    """
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(None, subscribed_topic_regex="a.*")
    two.join(None, subscribed_topic_regex="b.*")
    world.settle(one, two)
    world.advance(10_001)
    one.ack()
    world.finish()
    assert sorted(world.group.subscriptions.resolved) == ["a.*", "b.*"]
    world.settle(one, two)
    world.records()
    world.advance(10_001)
    two.ack(subscribed_topic_regex="")
    world.finish()
    regexes = [(key.regular_expression, value is None) for key, value in world.records() if type(key) is RegexKey]
    assert regexes == [("b.*", True), ("a.*", False)]
    world.advance(10_001)
    one.ack(subscribed_topic_regex="")
    world.finish()
    regexes = [(key.regular_expression, value is None) for key, value in world.records() if type(key) is RegexKey]
    assert (regexes, world.machine.regex_jobs) == ([("a.*", True)], set())


def test_patterns_are_resolved_again_after_the_interval(world: World) -> None:
    """After ten minutes, a heartbeat resolves the patterns again. New records renew the timestamp of the resolution."""
    one = Member(world, "m1")
    one.join(None, subscribed_topic_regex="a.*")
    world.settle(one)
    world.records()
    for _ in range(20):
        world.advance(30_000)
        one.ack()
    assert world.records() == []
    world.advance(1)
    one.ack()
    ((key, value),) = world.records()
    assert (key.regular_expression, value.topics) == ("a.*", ("a",))


# ---- topics


KAFKA_TOPICS = [
    TopicInfo("legacy.metrics_v1", bytes.fromhex("f24783b891a0423b8b0b7d0ad679ad47"), 3),
    TopicInfo("orders", bytes.fromhex("bc5597ff540d4d2aa84529228e855d01"), 12),
    TopicInfo("payments", bytes.fromhex("88c5c97be9044642b1136247bc0c4338"), 6),
    TopicInfo("tiny", bytes.fromhex("7b0583dd878f4673ba9092e7d111b8e9"), 1),
    TopicInfo("clicks", bytes.fromhex("08f0f454ff224654b72065b0b26df4eb"), 60),
]


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ({"legacy.metrics_v1", "orders", "payments", "tiny"}, -8649580026769432611),
        ({"clicks"}, 2291043594819516632),
        ({"orders", "clicks"}, -2553336898307822745),
        (set(), 0),
    ],
)
def test_a_group_hash_is_kafka_s(names: set[str], value: int) -> None:
    """The expected hashes come from the group records of an Apache Kafka 4.3.1 broker."""
    topics = sorted((topic for topic in KAFKA_TOPICS if topic.name in names), key=lambda topic: topic.name)
    assert group_hash([topic_hash(topic) for topic in topics]) == value


def test_racks_are_part_of_the_hash() -> None:
    """The order of the racks does not matter."""
    topic = KAFKA_TOPICS[0]
    assert topic_hash(topic, ["r1"]) != topic_hash(topic)
    assert topic_hash(topic, ["r2", "r1"]) == topic_hash(topic, ["r1", "r2"])


def test_missing_topics_are_not_part_of_the_hash(world: World) -> None:
    """The order of the topics in a subscription does not matter."""
    metadata = TopicMetadata(world.topics, lambda: 1)
    world.topics.add("b", 1)
    assert metadata.hash_of(["a", "b"]) == metadata.hash_of(["none", "b", "a"]) != 0


# ---- watchers


def test_a_watcher_gets_an_event_for_every_durable_change(world: World) -> None:
    """A watcher gets one event per commit, with the epochs and the members' assigned, revoking and target partitions,
    but none for a failed commit.
    """
    received: list[GroupChanged] = []
    stop = world.consumer.events.watch(GROUP, received.append)
    one, two = Member(world, "m1"), Member(world, "m2")
    one.join(["a"])
    two.join(["a"])
    one.beat()
    moving = received[-1]
    assert [(e.state, e.group_epoch, e.assignment_epoch, len(e.members)) for e in received] == [
        ("Stable", 2, 2, 1),
        ("Reconciling", 3, 3, 2),
        ("Reconciling", 3, 3, 2),
    ]
    first, second = moving.members["m1"], moving.members["m2"]
    assert (first.state, first.member_epoch, second.state) == (MemberState.UNREVOKED, 2, MemberState.UNRELEASED)
    assert first.revoking == second.target
    assert second.assigned == {}
    assert {**first.assigned} == {**first.target}
    world.fail_next_commit()
    one.ack()
    assert len(received) == 3
    one.ack()
    assert len(received) == 4
    stop()
    two.ack()
    assert len(received) == 4


def test_a_failing_watcher_affects_neither_the_group_nor_other_watchers(world: World) -> None:
    """The commit succeeds, and the other watchers get their events."""
    received: list[GroupChanged] = []

    def fail(_: GroupChanged) -> None:
        raise RuntimeError("mine")

    world.consumer.events.watch(GROUP, fail)
    world.consumer.events.watch(GROUP, received.append)
    one = Member(world, "m1")
    one.join(["a"])
    one.leave()
    assert [event.state for event in received] == ["Stable", "Empty"]


# ---- assignments


def test_members_share_every_partition_once(world: World) -> None:
    """Three members subscribe to one topic. Once the group is stable, each partition has exactly one owner."""
    members = [Member(world, f"m{number}") for number in range(3)]
    for member in members:
        member.join(["a"])
    world.settle(*members)
    owned = sorted(p for member in members for t in reported(member.owned) for p in t.partitions)
    assert owned == [0, 1, 2, 3]
