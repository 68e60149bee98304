"""The state of a classic group after a restart, a failed commit or an unload is exactly the acknowledged state."""

from __future__ import annotations

import pytest

from kcore.group.classic.group import ClassicGroup
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.list_groups import ListGroupsResponse
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from tests.group.classic.world import (
    CHANGED,
    COMPLETING,
    EMPTY,
    META,
    PREPARING,
    SESSION_MS,
    STABLE,
    World,
    group_record,
    join_refused,
    member_record,
    sync_refused,
    synced,
)


def replayed(*values: GroupMetadataValue | None) -> ClassicGroup | None:
    """Returns the group that a log of these records produces."""
    machine = World().context.machine
    for offset, value in enumerate(values):
        machine.replay(offset, -1, GroupMetadataKey(group="g"), value)
    group = machine.groups.get("g")
    assert group is None or isinstance(group, ClassicGroup)
    return group


def stable_value(generation: int, leader: str, *members: object, **changes: object) -> GroupMetadataValue:
    """Returns a generation with members."""
    _, value = group_record(generation, leader, members, at=7)  # type: ignore[arg-type]
    for name, change in changes.items():
        setattr(value, name, change)
    return value


# ---------------------------------------------------------------- restart


def test_stable_group_continues_after_a_restart() -> None:
    """Members that send heartbeats within a full session timeout continue in the recorded generation, without a
    rebalance.
    """
    world = World().build(STABLE)
    before = world.describe()
    generation = world.generation
    world.restart()
    assert world.describe() == before
    world.context.advance(SESSION_MS - 1)
    assert world.state is STABLE
    assert world.beat(world.leader) == world.beat(world.follower) == world.beat(world.static) == 0
    assert world.sync(world.follower).response == synced(b"f")
    assert world.generation == generation
    assert world.beat(world.pending) == ErrorCode.UNKNOWN_MEMBER_ID  # assigned member ids are not durable
    assert world.context.records() == []


def test_silent_members_expire_one_session_after_a_restart() -> None:
    """After a load, each session runs for its full timeout, independently of the time that remained before."""
    world = World().build(STABLE)
    world.context.advance(SESSION_MS - 1)
    world.restart()
    world.context.advance(SESSION_MS - 1)
    assert len(world.group().members) == 3
    world.context.advance(1)
    assert world.group().members == {}
    assert world.state is EMPTY


@pytest.mark.parametrize("state", [PREPARING, COMPLETING])
def test_rebalance_is_forgotten_by_a_restart(state: object) -> None:
    """A generation without a record is lost. Its members get ILLEGAL_GENERATION and join again."""
    world = World().build(state)  # type: ignore[arg-type]
    generation = world.generation
    world.restart()
    assert (world.state, world.generation) == (STABLE, 2)
    expected = ErrorCode.ILLEGAL_GENERATION if state is COMPLETING else ErrorCode.NONE
    assert world.beat(world.follower, generation=generation) == expected
    assert {member.member_assignment for member in world.describe().members} == {b"l", b"f", b"s"}
    assert world.group().members[world.follower].protocols == (("range", META),)


def test_empty_group_keeps_its_generation_over_a_restart() -> None:
    """The generation number continues, and the protocol type is kept."""
    world = World().build(EMPTY)
    before = (world.describe(), world.generation, world.group().state_timestamp_ms)
    world.restart()
    assert (world.describe(), world.generation, world.group().state_timestamp_ms) == before


def test_deleted_group_stays_deleted() -> None:
    """A tombstone deletes the group. The next group with that id starts with generation 0."""
    world = World().build(EMPTY, pending=False)
    assert world.delete("g") == {"g": 0}
    world.restart()
    assert "g" not in world.context.machine.groups
    world.assign_id()
    assert world.generation == 0


def test_group_that_is_too_large_rebalances_after_a_restart() -> None:
    """After `group.max.size` was lowered, the group rebalances, and the last members to join are refused."""
    world = World().build(STABLE)
    world.context.config.group_max_size = 2
    world.restart()
    assert world.state is PREPARING
    first, second = world.join(world.follower), world.join(world.static, instance="one")
    late = world.join(world.leader)
    assert late.response == join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert not first.done  # the removal does not check whether all have joined; the rebalance timeout ends the phase
    world.context.advance(60_000)
    assert first.response.generation_id == second.response.generation_id == 3


def test_restart_during_a_rebalance_restores_the_acknowledged_state() -> None:
    """Changes that were not committed before the restart are lost: a SyncGroup that got no response has no effect."""
    world = World().build(COMPLETING, pending=False)
    world.context.auto_commit = False
    call = world.sync(world.leader, {world.leader: b"new"})
    assert not call.done
    assert world.state is STABLE
    world.restart()
    world.context.finish()
    assert not call.done
    assert (world.state, world.generation) == (STABLE, 2)
    assert world.sync(world.leader, generation=2).response == synced(b"l")


# ---------------------------------------------------------------- failed commits


def test_failed_commit_of_an_assignment_refuses_all_syncs() -> None:
    """No member gets the assignment: all SyncGroups get NOT_COORDINATOR, and the last recorded generation is
    restored.
    """
    world = World().build(COMPLETING, pending=False)
    follower, static = world.sync(world.follower), world.sync(world.static)
    world.context.fail_next_commit()
    leader = world.sync(world.leader, {world.leader: b"new"})
    refused = sync_refused(ErrorCode.NOT_COORDINATOR)
    assert leader.response == follower.response == static.response == refused
    assert (world.state, world.generation) == (STABLE, 2)
    assert world.sync(world.leader, generation=2).response == synced(b"l")
    assert world.context.records() == []


def test_failed_commit_completes_all_parked_requests() -> None:
    """A failed commit discards the shard's memory, so parked joins of other groups get NOT_COORDINATOR."""
    world = World().build(PREPARING, pending=False)
    world.context.fail_next_commit()
    created = world.join(group="other")
    assert created.response == join_refused(ErrorCode.NOT_COORDINATOR, "")
    assert world.waiting.response == join_refused(ErrorCode.NOT_COORDINATOR, world.follower)
    assert list(world.context.machine.groups) == ["g"]
    assert world.state is STABLE


def test_failed_commit_of_the_last_leave_keeps_the_member() -> None:
    """The last leave was refused. Its member is still in the group, and expires if it does not return."""
    world = World()
    member_id = world.join(version=3).response
    world.context.advance(0)
    (member_id,) = world.group().members
    world.sync(member_id, {member_id: b"x"})
    world.context.records()
    world.context.fail_next_commit()
    assert world.leave(member_id).error_code == ErrorCode.NOT_COORDINATOR
    assert list(world.group().members) == [member_id]
    world.context.advance(SESSION_MS)
    assert world.state is EMPTY
    assert world.context.records() == [group_record(2, at=world.context.now.wall_ms)]


def test_failed_commit_of_a_static_replacement_keeps_the_old_id() -> None:
    """The old id is still a member, and the new id is unknown."""
    world = World().build(STABLE, pending=False)
    world.context.fail_next_commit()
    refused = world.join(instance="one")
    assert refused.response == join_refused(ErrorCode.NOT_COORDINATOR, "")
    assert world.beat(world.static, instance="one") == 0


def test_an_expiration_whose_commit_fails_is_repeated_after_the_reload() -> None:
    """The session of the last member expires, but the commit of its removal fails, so the member is still in the group.
    After the reload, the member expires again when another session timeout has passed.
    """
    world = World().build(STABLE, pending=False)
    world.leave(world.follower, world.static)
    world.join(world.leader)
    world.sync(world.leader, {})
    world.context.fail_next_commit()
    world.context.advance(SESSION_MS)
    assert list(world.group().members) == [world.leader]
    assert world.state is STABLE
    world.context.advance(SESSION_MS)
    assert world.state is EMPTY


# ---------------------------------------------------------------- unload and load


def test_unload_completes_parked_joins() -> None:
    """Parked joins get NOT_COORDINATOR, in the format of their own version. The group is Dead."""
    world = World().build(PREPARING)
    group = world.group()
    world.context.unload()
    assert world.waiting.response == join_refused(ErrorCode.NOT_COORDINATOR, world.follower)
    assert group.state.value == "Dead"
    assert len(world.context.wheel) - 1 == 0, (
        "only the shard's own timer of expired offsets is left, which does nothing"
    )


@pytest.mark.parametrize(("version", "instance"), [(0, None), (3, None), (5, "one"), (9, "one")])
def test_unload_tells_a_new_member_its_id(version: int, instance: str | None) -> None:
    """The parked join of a new member has no member id. The response names the id that the member has got."""
    world = World()
    parked = world.join(version=version, instance=instance)
    (member_id,) = world.group().members
    world.context.unload()
    assert parked.response == join_refused(ErrorCode.NOT_COORDINATOR, member_id, version)


def test_unload_completes_parked_syncs() -> None:
    """Parked SyncGroups get NOT_COORDINATOR, and so do later requests."""
    world = World().build(COMPLETING)
    sync = world.sync(world.follower)
    world.context.unload()
    assert sync.response == sync_refused(ErrorCode.NOT_COORDINATOR)
    assert world.join("m").response == join_refused(ErrorCode.NOT_COORDINATOR, "m")
    assert world.beat("m", generation=1) == ErrorCode.NOT_COORDINATOR
    assert world.leave("m").error_code == ErrorCode.NOT_COORDINATOR
    assert world.describe().error_code == ErrorCode.NOT_COORDINATOR
    assert world.delete("g") == {"g": ErrorCode.NOT_COORDINATOR}
    assert world.list() == ListGroupsResponse()  # groups of another node are omitted, without an error


def test_only_heartbeats_succeed_while_the_shard_is_loading() -> None:
    """Other requests get COORDINATOR_LOAD_IN_PROGRESS. Because heartbeats succeed, the members need not rejoin."""
    world = World().build(STABLE)
    shard = world.context.shard
    shard.unload()
    world.context.shards._shards.clear()
    world.context.shards.load(0, 99)  # its first slice has not run yet
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    context = world.context
    context.finish = lambda: None  # type: ignore[method-assign]
    assert world.beat(world.leader, generation=2) == ErrorCode.NONE
    assert world.join("m").response == join_refused(loading, "m")
    assert world.sync("m", generation=1).response == sync_refused(loading)
    assert world.leave("m").error_code == loading
    assert world.describe().error_code == loading
    assert world.delete("g") == {"g": loading}
    assert world.list() == ListGroupsResponse(error_code=loading)
    del context.finish
    context.finish()
    assert world.beat(world.leader, generation=2) == ErrorCode.NONE
    assert world.state is STABLE


# ---------------------------------------------------------------- contents of a log


def test_later_record_replaces_the_group() -> None:
    """Members, protocol and timeouts come from the last record."""
    group = replayed(
        stable_value(1, "a", member_record("a", b"1"), member_record("b", b"2", instance="one")),
        stable_value(2, "c", member_record("c", b"3", instance="one"), member_record("a", b"4", subscription=CHANGED)),
    )
    assert group is not None
    assert (group.generation_id, group.leader_id, group.state) == (2, "c", STABLE)
    assert group.static_members == {"one": "c"}
    assert {name: (m.assignment, m.protocols) for name, m in group.members.items()} == {
        "a": (b"4", (("range", CHANGED),)),
        "c": (b"3", (("range", META),)),
    }
    assert group.supported_protocols == {"range": 2}
    assert group.subscribed_topics == frozenset({"topic", "other"})


def test_records_make_a_group_empty_and_stable_again_and_delete_it() -> None:
    """Covers logs in which records of a Stable group, records of an Empty group and tombstones follow each other in any
    order.
    """
    one = stable_value(1, "a", member_record("a"))
    emptied = group_record(2, at=9)[1]
    group = replayed(one, emptied)
    assert group is not None
    assert (group.state, group.generation_id, group.state_timestamp_ms, group.members) == (EMPTY, 2, 9, {})
    assert (group.leader_id, group.protocol_name, group.supported_protocols) == (None, None, {})
    group = replayed(one, emptied, stable_value(3, "a", member_record("a")))
    assert group is not None
    assert (group.state, group.generation_id) == (STABLE, 3)
    assert replayed(one, None) is None
    group = replayed(one, None, group_record(0, at=1, protocol_type="")[1])
    assert group is not None
    assert (group.state, group.protocol_type) == (EMPTY, "")
    assert replayed(None) is None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_the_record_is_decoded(version: int) -> None:
    """Version 0 has no rebalance timeout, so the session timeout replaces it. Version 2 adds the timestamp, and version
    3 static members.
    """
    value = stable_value(5, "a", member_record("a", b"1", instance="one", rebalance_timeout=70))
    if version < 3:
        value = stable_value(5, "a", member_record("a", b"1", rebalance_timeout=70))
    machine = World().context.machine
    key, decoded = machine.decode(GroupMetadataKey(group="g").encode_key(), value.encode_value(version)) or (None, None)
    machine.replay(0, -1, key, decoded)
    group = machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    member = group.members["a"]
    assert member.rebalance_timeout_ms == (SESSION_MS if version == 0 else 70)
    assert group.state_timestamp_ms == (7 if version >= 2 else -1)
    assert group.static_members == ({"one": "a"} if version >= 3 else {})


def test_leader_that_is_not_a_member_is_replaced_at_load() -> None:
    """A record may name a leader that is not among its members. The load then chooses another leader."""
    group = replayed(stable_value(1, "gone", member_record("a"), member_record("b")))
    assert group is not None
    assert group.leader_id == "a"


def test_offsets_of_a_group_without_a_protocol_type_expire_by_commit() -> None:
    """The record of an Empty group has no timestamp, so the retention of each offset starts at its own commit."""
    group = replayed(group_record(4, at=-1)[1])
    assert group is not None
    base = group.offset_expiration_base()
    assert base is not None
    assert base.timestamp_ms is None
