"""The limit on the memory for the metadata of classic group members."""

from __future__ import annotations

import pytest

from kcore.group import metadata_bound
from kcore.group.classic.states import GroupState
from kcore.protocol.error_codes import ErrorCode
from tests.group.classic.world import REBALANCE_MS, SESSION_MS, World, join_refused

LIMIT = 80_000
GROUP_LIMIT = LIMIT // metadata_bound.MAX_GROUP_SHARE
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(metadata_bound, "SMALL_GROUP_BYTES", 1_000)
    return World({"kcore.max.group.metadata.bytes": LIMIT})


def total_bytes(world: World) -> int:
    """Returns the number of metadata bytes that the shard has counted. Checks that it is the sum over all members."""
    groups = world.context.machine.groups.values()
    sizes = [
        sum(metadata_bound.protocols_bytes(member.protocols) for member in group.members.values()) for group in groups
    ]
    assert [group.metadata_bytes for group in groups] == sizes
    total: int = world.context.machine.meters.metadata_bytes
    assert total == sum(sizes)
    return total


def code_of_join(world: World, size: int, group: str = "g", member_id: str = "") -> ErrorCode:
    """Joins with metadata of `size` bytes, in version 3, which assigns no ids beforehand. Returns the error code, or
    NONE if the join is parked.
    """
    call = world.join(member_id, group=group, offer=[("range", bytes(size - len("range")))], version=3)
    if not call.done:
        return ErrorCode.NONE
    code: ErrorCode = call.response.error_code
    if code:
        assert call.response == join_refused(code, "", version=3)
    return code


def test_a_group_may_have_an_eighth_of_the_limit(world: World) -> None:
    """Joins that would exceed an eighth of the shard's limit are refused. Other groups are not affected.

    Without this limit, a hundred members with 7.8 MB of metadata each would take 760 MB.
    """
    assert code_of_join(world, GROUP_LIMIT + 1) == FULL
    assert code_of_join(world, GROUP_LIMIT - 10) == ErrorCode.NONE
    assert code_of_join(world, 11) == FULL
    assert code_of_join(world, 10) == ErrorCode.NONE
    assert total_bytes(world) == GROUP_LIMIT
    assert code_of_join(world, GROUP_LIMIT, group="other") == ErrorCode.NONE


def test_beyond_the_limit_only_small_groups_may_grow(world: World) -> None:
    for number in range(metadata_bound.MAX_GROUP_SHARE):
        assert code_of_join(world, GROUP_LIMIT, group=f"g{number}") == ErrorCode.NONE
    assert total_bytes(world) == LIMIT
    assert code_of_join(world, 1_001, group="new") == FULL
    assert code_of_join(world, 500, group="new") == ErrorCode.NONE
    assert code_of_join(world, 500, group="new") == ErrorCode.NONE
    assert code_of_join(world, 6, group="new") == FULL
    assert total_bytes(world) == LIMIT + 1_000


def test_members_that_leave_make_room(world: World) -> None:
    assert code_of_join(world, GROUP_LIMIT) == ErrorCode.NONE
    assert code_of_join(world, 100) == FULL
    world.context.advance(REBALANCE_MS + SESSION_MS + 400_000)
    assert total_bytes(world) == 0
    assert code_of_join(world, GROUP_LIMIT) == ErrorCode.NONE


def test_a_member_that_joins_again_counts_once(world: World) -> None:
    world.join(offer=[("range", bytes(5_000))], version=3)
    (member_id,) = world.group().members
    before = total_bytes(world)
    assert code_of_join(world, before, member_id=member_id) == ErrorCode.NONE
    assert total_bytes(world) == before
    assert code_of_join(world, GROUP_LIMIT, member_id=member_id) == ErrorCode.NONE
    assert total_bytes(world) == GROUP_LIMIT
    assert code_of_join(world, GROUP_LIMIT + 1, member_id=member_id) == FULL
    assert total_bytes(world) == 0, "as with group.max.size, the member is removed"


def test_a_load_counts_the_members_of_the_log(world: World) -> None:
    world.build(GroupState.STABLE)
    before = total_bytes(world)
    assert before > 0
    world.context.commit()
    world.restart()
    assert total_bytes(world) == before
    world.context.machine.on_unloaded()
    assert world.context.machine.meters.metadata_bytes == 0


def test_without_a_limit_everything_is_admitted() -> None:
    world = World({"kcore.max.group.metadata.bytes": -1})
    assert code_of_join(world, 1_000_000) == ErrorCode.NONE
