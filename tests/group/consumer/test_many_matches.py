"""Patterns that match very many topics: targets are computed in slices, and groups share the matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcore.group.consumer import metadata, regex, services, target
from kcore.group.consumer.member import MemberMetadata
from kcore.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kcore.runtime import RequestContext
from tests.transaction.world import World

COUNT = 120


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A node whose limits are a few names instead of thousands."""
    monkeypatch.setattr(target, "INLINE_MATCHES", 50)
    monkeypatch.setattr(target, "NAMES_PER_SLICE", 20)
    monkeypatch.setattr(services, "NAMES_PER_SLICE", 20)
    monkeypatch.setattr(services, "MAX_KEPT_NAMES", 40)
    monkeypatch.setattr(metadata, "MANY_NAMES", 40)
    node = World({"offsets.topic.num.partitions": 1}, topics={"other": 1})
    node.engine.slices.requests.enabled = True
    create(node, [f"t{number * 7 % COUNT:03}" for number in range(COUNT)])
    return node


def create(world: World, names: list[str]) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    response = world.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    assert {topic.error_code for topic in response.topics} == {E.NONE}


def beat(group: str, member: str, epoch: int = 0, owned: Any = ()) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="t.*",
        topic_partitions=list(owned),
    )


def steps(world: World) -> int:
    """Runs all slices, with a commit after each one. Returns the number of slices."""
    count = 0
    while world.engine.slices or world.engine.pipeline.dirty:
        world.engine.slices.step()
        world.engine.commit()
        count += 1
    return count


def start(world: World, request: ConsumerGroupHeartbeatRequest) -> Any:
    pending = world.start(request, 1)
    world.engine.commit()
    response = getattr(pending, "response", pending)
    assert response.error_code == E.NONE, response
    return response


def test_a_join_computes_its_target_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one slice, looking up 60,000 topics would take 0.3 s."""
    looked_up: list[str] = []
    start(world, beat("g", "a"))
    assert steps(world) > 2
    by_name = type(world.engine.topics).by_name

    def counted(topics: Any, name: str) -> Any:
        looked_up.append(name)
        return by_name(topics, name)

    world.advance(6_000)
    monkeypatch.setattr(type(world.engine.topics), "by_name", counted)
    start(world, beat("g", "b"))
    assert len(looked_up) < 20
    longest = 0
    while world.engine.slices or world.engine.pipeline.dirty:
        looked_up.clear()
        world.engine.slices.step()
        longest = max(longest, len(looked_up))
        world.engine.commit()
    assert longest == services.NAMES_PER_SLICE


def test_the_members_get_all_topics_once(world: World) -> None:
    owned: dict[str, Any] = {"a": [], "b": []}
    epochs = {"a": 0, "b": 0}
    for _ in range(8):
        for member in ("a", "b"):
            response = start(world, beat("g", member, epochs[member], owned[member]))
            steps(world)
            epochs[member] = response.member_epoch
            if response.assignment is not None:
                owned[member] = response.assignment.topic_partitions
            world.advance(3_000)
    ids = [{topic.topic_id for topic in owned[member]} for member in ("a", "b")]
    expected = {world.engine.topics.by_name(f"t{number:03}").topic_id for number in range(COUNT)}  # type: ignore[union-attr]
    assert ids[0] | ids[1] == expected
    assert not ids[0] & ids[1]
    assert (len(ids[0]), len(ids[1])) == (COUNT // 2, COUNT // 2)
    assert epochs["a"] == epochs["b"]


def test_groups_share_their_matches(world: World) -> None:
    for group in ("g1", "g2"):
        start(world, beat(group, "m"))
        steps(world)
    shard = world.engine.groups.of("g1").machine
    first, second = (shard.groups[group].subscriptions.resolved["t.*"].topics for group in ("g1", "g2"))
    assert len(first) == COUNT
    assert first is second
    consumer = world.engine.consumer_groups
    assert consumer.in_order(first) is consumer.in_order(frozenset(list(first)))


def test_a_failing_slice_leaves_the_target_to_the_next_heartbeat(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start(world, beat("g", "a"))
    steps(world)
    group = world.engine.groups.of("g").machine.groups["g"]
    for name in ("__init__", "_collect_subscriptions", "compute"):
        world.advance(6_000)

        def fail(*args: Any) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(target.AssignmentJob, name, fail)
            start(world, beat("g", "a"))
            steps(world)
        assert not group.target_job
        assert group.assignment_epoch < group.group_epoch
    start(world, beat("g", "a"))
    steps(world)
    response = start(world, beat("g", "a"))
    assert len(response.assignment.topic_partitions) == COUNT


def test_names_keep_their_order_over_created_and_deleted_topics(world: World) -> None:
    topics = world.engine.consumer_groups.metadata
    names = frozenset(f"t{number:03}" for number in range(COUNT))
    assert topics.in_order(names) == sorted(names)
    deleted = [DeleteTopicState(name=f"t{number:03}") for number in range(0, 60, 3)]
    world.call(DeleteTopicsRequest(topics=deleted, timeout_ms=1000), 6)
    create(world, ["t000", "a", "zz", "t1"])
    everything = names | {"a", "zz", "t1", "absent", "t"}
    assert topics.in_order(names) == sorted(names)
    assert topics.in_order(everything) == sorted(everything)
    existing = [name for name in sorted(everything) if world.engine.topics.by_name(name) is not None]
    assert topics.hash_of(everything) == topics.hash_of(existing)
    assert topics.hash_of(existing) == metadata.group_hash(
        metadata.topic_hash(world.engine.topics.by_name(name))  # type: ignore[arg-type]
        for name in existing
    )


@pytest.mark.parametrize("changed", [False, True])
def test_the_hash_of_matched_topics_is_computed_before_the_decision(
    world: World, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """A slice computes the hash of 60,000 matched topics before the group changes. The later change computes the hash
    again only if a topic has changed since then, even if the topic's change is not committed yet.
    """
    hash_of = metadata.TopicMetadata.hash_of
    resolved = regex._resolved
    deciding: list[bool] = []
    sizes: list[int] = []

    def counted(self: metadata.TopicMetadata, names: Any) -> int:
        names = list(names)
        if deciding:
            sizes.append(len(names))
        return hash_of(self, names)

    def decide(shard: Any, *arguments: Any) -> Any:
        if changed:
            grow = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t007", count=3, assignments=None)], timeout_ms=1_000
            )
            world.engine.submit(RequestContext(3), grow)
        deciding.append(True)
        outcome = resolved(shard, *arguments)
        deciding.clear()
        return outcome

    monkeypatch.setattr(metadata.TopicMetadata, "hash_of", counted)
    monkeypatch.setattr(regex, "_resolved", decide)
    start(world, beat("g", "m"))
    steps(world)
    (shard,) = world.engine.groups
    group = shard.machine.groups["g"]
    assert sizes == ([COUNT] if changed else [])
    assert group.metadata_hash == hash_of(shard.machine.consumer.metadata, group.subscriptions)
    assert len(group.subscriptions.matched) == COUNT


@given(
    names=st.frozensets(st.sampled_from("abcdef")),
    patterns=st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.frozensets(st.sampled_from("abcdef")))),
)
def test_many_matches_are_registered_as_single_ones_are(
    names: frozenset[str], patterns: list[tuple[str, frozenset[str] | None]]
) -> None:
    readers: list[set[str]] = [set(), set()]

    def single(own: set[str]) -> Callable[[str, bool], None]:
        return lambda topic, subscribed: own.add(topic) if subscribed else own.discard(topic)

    def several(topics: Iterable[str], subscribed: bool) -> None:
        (readers[1].update if subscribed else readers[1].difference_update)(topics)

    reference = Subscriptions(single(readers[0]))
    fast = Subscriptions(single(readers[1]), several)
    member = MemberMetadata(instance_id=None, rack_id=None, client_id="", client_host="", names=names)
    for subscriptions in (reference, fast):
        if names:
            subscriptions.change(None, member)
        for pattern, topics in patterns:
            subscriptions.resolve(pattern, None if topics is None else ResolvedRegex(topics, 1, 1))
    assert (fast.matched, readers[1], set(fast)) == (reference.matched, readers[0], set(reference))


def test_the_last_pattern_of_a_group_unregisters_all_of_its_matches(world: World) -> None:
    """Two groups subscribe by the same pattern. When the only member of one group leaves, topic changes no longer
    notify this group, but they still notify the other group.
    """
    for group in ("g", "h"):
        world.call(beat(group, "m"), 1)
        steps(world)
    (shard,) = world.engine.groups
    groups = [shard.machine.groups[group_id] for group_id in ("g", "h")]

    def notified() -> list[bool]:
        for group in groups:
            group.topics_seen(group.group_epoch)
        shard.machine.on_topic_changed("t003")
        return [group.refresh_at_ms == 0 for group in groups]

    assert notified() == [True, True]
    world.call(beat("g", "m", epoch=-1), 1)
    assert notified() == [False, True]
    assert not shard.machine.groups["g"].subscriptions.matched
