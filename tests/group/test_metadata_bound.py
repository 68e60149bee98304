"""The limit on the memory for the metadata of members of consumer, share and streams groups.

Without it, 40 members with 20,000 names each would take 200 MB in each group.
"""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group import metadata_bound
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.consumer.member import own_bytes as consumer_bytes
from kcore.group.group import GroupType
from kcore.group.share.member import own_bytes as share_bytes
from kcore.group.streams.member import own_bytes as streams_bytes
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kcore.protocol.messages.streams_group_heartbeat import KeyValue
from tests.group.consumer.members import Member, World
from tests.group.migration.members import ClassicClient
from tests.group.share.world import GROUP as SHARE_GROUP
from tests.group.share.world import World as ShareWorld
from tests.group.streams import members as streams

LIMIT = 1_200_000
GROUP_LIMIT = LIMIT // metadata_bound.MAX_GROUP_SHARE
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
SMALL = 10_000


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_bound, "SMALL_GROUP_BYTES", SMALL)


def names(first: int, count: int) -> list[str]:
    return [f"topic-{number:04}" for number in range(first, first + count)]


def bytes_of(sets: set[frozenset[str]]) -> int:
    """Returns the counted size of the names of a group's members."""
    topics = frozenset[str]().union(*sets)
    characters = sum(len(name) for one in sets for name in one)
    return characters + metadata_bound.NAME_BYTES * sum(map(len, sets)) + metadata_bound.TOPIC_BYTES * len(topics)


# ---- consumer groups


def consumer_world(limit: int = LIMIT) -> World:
    return World({"a": 4}, kcore_max_group_metadata_bytes=limit)


def total_bytes(world: World) -> int:
    """Returns the number of metadata bytes that the shard has counted. Checks that it is the sum over all members."""
    groups = world.machine.groups.values()
    for group in groups:
        metadata = {member_id: member.metadata for member_id, member in group.members.items()}
        own = sum(consumer_bytes(member_id, one) for member_id, one in metadata.items())
        assert group.metadata_bytes == own + bytes_of({one.names for one in metadata.values() if one.names})
    total: int = world.machine.meters.metadata_bytes
    assert total == sum(group.metadata_bytes for group in groups)
    return total


def code_of(world: World, member_id: str, group: str = "g", **fields: Any) -> ErrorCode:
    body = {"member_epoch": 0, "rebalance_timeout_ms": 10_000, "topic_partitions": [], **fields}
    before = world.machine.meters.metadata_bytes
    world.records()
    response = world.beat(group_id=group, member_id=member_id, **body)
    if response.error_code:
        assert "kcore.max.group.metadata.bytes" in (response.error_message or "")
        assert world.records() == []
        assert total_bytes(world) == before, "a refused heartbeat changes nothing"
    return ErrorCode(response.error_code)


def test_a_consumer_group_may_have_an_eighth_of_the_limit() -> None:
    world = consumer_world()
    count = 100
    assert code_of(world, "one", subscribed_topic_names=names(0, count)) == ErrorCode.NONE
    room = GROUP_LIMIT - total_bytes(world)
    each = bytes_of({frozenset(names(0, 1))})
    assert code_of(world, "two", subscribed_topic_names=names(count, room // each + 1)) == FULL
    assert code_of(world, "two", subscribed_topic_names=names(count, room // each - 1)) == ErrorCode.NONE
    assert GROUP_LIMIT - 2 * each < total_bytes(world) <= GROUP_LIMIT
    assert code_of(world, "three", group="other", subscribed_topic_names=names(0, count)) == ErrorCode.NONE


def test_equal_subscriptions_share_their_names_and_count_once() -> None:
    world = consumer_world()
    same = names(0, 100)
    assert code_of(world, "m-000", subscribed_topic_names=same) == ErrorCode.NONE
    first = total_bytes(world)
    for number in range(1, 100):
        assert code_of(world, f"m-{number:03}", subscribed_topic_names=list(same)) == ErrorCode.NONE
    assert (
        total_bytes(world) == first + 99 * consumer_bytes("m-000", world.group.members["m-000"].metadata) < GROUP_LIMIT
    )
    assert len({id(member.metadata.names) for member in world.group.members.values()}) == 1
    world.consumer._names.clear()  # the node's cache may drop the names, and long subscriptions are never cached
    assert code_of(world, "another", subscribed_topic_names=list(same)) == ErrorCode.NONE
    world.restart()
    assert len({id(member.metadata.names) for member in world.group.members.values()}) == 1


@pytest.mark.parametrize("field", ["instance_id", "rack_id", "subscribed_topic_regex", "server_assignor", "member_id"])
def test_each_text_of_a_consumer_member_counts(field: str) -> None:
    world = consumer_world()
    assert code_of(world, "one", subscribed_topic_names=["a"]) == ErrorCode.NONE
    before = total_bytes(world)
    long_text = "range" if field == "server_assignor" else "x" * 4_000
    fields = {"subscribed_topic_names": ["a"], field: long_text}
    member_id = fields.pop("member_id", "two")
    assert code_of(world, member_id, **fields) == ErrorCode.NONE
    assert total_bytes(world) - before >= len(long_text)


def test_beyond_the_limit_only_small_groups_may_grow() -> None:
    world = consumer_world()
    number = 0
    while world.machine.meters.metadata_bytes < LIMIT - GROUP_LIMIT // 2:
        assert code_of(world, "m", group=f"g{number}", subscribed_topic_names=names(0, 180)) == ErrorCode.NONE
        number += 1
    assert code_of(world, "m", group="new", subscribed_topic_names=names(0, 180)) == FULL
    assert code_of(world, "m", group="new", subscribed_topic_names=names(0, 10)) == ErrorCode.NONE
    assert total_bytes(world) > LIMIT - GROUP_LIMIT // 2


def test_members_may_always_name_less_and_leave() -> None:
    world = consumer_world()
    many = names(0, 180)
    one, two = Member(world, "one"), Member(world, "two")
    one.join(many)
    assert code_of(world, "two", subscribed_topic_names=names(200, 180)) == FULL
    one.send(rebalance_timeout_ms=10_000, subscribed_topic_names=many[:90], topic_partitions=[])
    two.join(names(200, 60))
    total_bytes(world)
    one.leave()
    two.leave()
    assert total_bytes(world) == 0


def test_a_group_above_the_limit_loads_and_keeps_its_members() -> None:
    world = consumer_world()
    member = Member(world, "one")
    member.join(names(0, 180))
    before = total_bytes(world)
    world.config = consumer_world(LIMIT // 4).config
    world.restart()
    assert total_bytes(world) == before
    assert before > LIMIT // 4 // metadata_bound.MAX_GROUP_SHARE
    assert member.beat().error_code == ErrorCode.NONE
    assert code_of(world, "two", subscribed_topic_names=names(0, 180)) == FULL
    member.leave()
    assert total_bytes(world) == 0


def test_an_unloaded_shard_no_longer_counts() -> None:
    world = consumer_world()
    Member(world, "one").join(names(0, 10))
    machine = world.machine
    machine.on_unloaded()
    assert machine.meters.metadata_bytes == 0


def test_without_a_limit_everything_is_admitted() -> None:
    world = consumer_world(limit=-1)
    assert code_of(world, "one", subscribed_topic_names=names(0, 5_000)) == ErrorCode.NONE


def test_a_converted_classic_group_counts_once() -> None:
    world = World({"a": 4}, group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="bidirectional")
    client = ClassicClient(world, ["a"])
    for _ in range(10):
        client.step()
        world.advance(10)
    assert world.machine.groups["g"].group_type is GroupType.CLASSIC
    Member(world, "one").join(["a"])
    assert world.machine.groups["g"].group_type is GroupType.CONSUMER
    total_bytes(world)


# ---- share groups


def test_the_metadata_of_a_share_group_is_bounded() -> None:
    world = ShareWorld(**{"kcore.max.group.metadata.bytes": LIMIT})

    def beat(member_id: str, epoch: int = 0, **fields: Any) -> Any:
        fields = {"group_id": SHARE_GROUP, "member_id": member_id, "member_epoch": epoch, **fields}
        return world.node.send(ShareGroupHeartbeatRequest(**fields))

    def counted() -> int:
        group = world.group
        metadata = {member_id: member.metadata for member_id, member in group.members.items()}
        own = sum(share_bytes(member_id, one) for member_id, one in metadata.items())
        assert group.metadata_bytes == own + bytes_of({one.names for one in metadata.values()})
        assert group.shard.meters.metadata_bytes == group.metadata_bytes
        return group.metadata_bytes

    many = names(0, 150)
    assert beat("one", subscribed_topic_names=many).error_code == ErrorCode.NONE
    before = counted()
    refused = beat("two", subscribed_topic_names=names(150, 150))
    assert refused.error_code == FULL
    assert "kcore.max.group.metadata.bytes" in refused.error_message
    assert beat("two", subscribed_topic_names=many, rack_id="r" * 70_000).error_code == FULL
    assert counted() == before
    assert beat("two", subscribed_topic_names=many, rack_id="r" * 100).error_code == ErrorCode.NONE
    assert counted() < before + 1_000
    world.restart()
    counted()
    for member_id in ("one", "two"):
        beat(member_id, -1)
    assert world.group.shard.meters.metadata_bytes == 0


# ---- streams groups


def streams_world() -> streams.World:
    return streams.World({"in": 2}, kcore_max_group_metadata_bytes=LIMIT)


def streams_held(world: streams.World) -> int:
    group = world.group
    own = sum(streams_bytes(member_id, member.metadata) for member_id, member in group.members.items())
    assert group.metadata_bytes == own + (0 if group.topology is None else group.topology.size_bytes)
    assert world.machine.meters.metadata_bytes == group.metadata_bytes
    return group.metadata_bytes


def test_the_topology_of_a_streams_group_is_bounded() -> None:
    world = streams_world()
    parts = [streams.subtopology(f"part-{number}", ["in"]) for number in range(GROUP_LIMIT // 800)]
    member = streams.Member(world, "one")
    refused = member.send(**member.join_fields(streams.topology(*parts)))
    assert refused.error_code == FULL
    assert world.records() == []
    assert world.machine.meters.metadata_bytes == 0
    member.join(streams.topology(streams.subtopology("part", ["in"])))
    assert 512 < streams_held(world) < 3_000


def test_client_tags_of_streams_members_are_bounded() -> None:
    world = streams_world()
    topology = streams.topology(streams.subtopology("part", ["in"]))
    member = streams.Member(world, "one")
    tags = [KeyValue(key=f"key-{number:04}", value="v" * 20) for number in range(400)]
    member.join(topology, client_tags=tags)
    before = streams_held(world)
    assert before > GROUP_LIMIT // 2
    other = streams.Member(world, "two")
    assert other.send(**other.join_fields(topology), client_tags=tags).error_code == FULL
    assert streams_held(world) == before
    other.join(topology, client_tags=tags[:10])
    streams_held(world)
    world.restart()
    streams_held(world)
    other.leave()
    member.leave()
    assert streams_held(world) == world.group.topology.size_bytes


def test_a_classic_group_that_replaces_a_streams_group_frees_its_topology() -> None:
    world = streams_world()
    member = streams.Member(world, "one")
    member.join(streams.topology(streams.subtopology("part", ["in"])))
    member.leave()
    assert streams_held(world) > 0
    join = JoinGroupRequest(
        group_id=streams.GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert not world.send(JoinGroupApi(world.shards, world.config), join, version=3).done, "the join waits"
    group = world.machine.groups[streams.GROUP]
    assert group.group_type is GroupType.CLASSIC
    assert world.machine.meters.metadata_bytes == group.metadata_bytes == len("range")
    assert world.machine._readers == {}, "no topic names the group any more"
