"""Checks of requests that do not depend on the state of the group, and limits on member ids."""

from __future__ import annotations

import pytest

from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.leave_group import LeaveGroupResponse
from tests.group.classic.world import (
    NOBODY,
    RANGE,
    SESSION_MS,
    World,
    join_refused,
    sync_refused,
)


@pytest.mark.parametrize(
    ("session_ms", "code"),
    [(5999, 26), (6000, 79), (1_800_000, 79), (1_800_001, 26), (0, 26), (-1, 26)],
)
def test_session_timeouts_are_bounded(session_ms: int, code: int) -> None:
    """A session timeout outside of the configured range is refused before the group is looked up. The minimum and the
    maximum are allowed. The response repeats the member id of the request.
    """
    world = World({"group.min.session.timeout.ms": 6000})
    assert world.join(session_ms=session_ms).response.error_code == code
    refused = world.join(NOBODY, session_ms=0).response
    assert refused == join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, NOBODY)


def test_only_administrative_requests_accept_an_empty_group_id() -> None:
    """Requests of members refuse the empty group id; administrative requests accept it."""
    world = World()
    assert world.join(group="").response == join_refused(ErrorCode.INVALID_GROUP_ID, "")
    assert world.sync("m", group="", generation=1).response == sync_refused(ErrorCode.INVALID_GROUP_ID)
    assert world.beat("m", group="", generation=1) == ErrorCode.INVALID_GROUP_ID
    assert world.leave("m", group="") == LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    assert world.describe("").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.delete("") == {"": ErrorCode.GROUP_ID_NOT_FOUND}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"instance": "i" * 32_730}, None),
        ({"instance": "i" * 32_731}, 42),
        ({"instance": "\U0001f600" * 8_183}, 42),
        ({"client": "c" * 32_730}, 79),
        ({"client": "c" * 32_731}, 42),
    ],
)
def test_names_too_long_for_a_member_id_are_refused(options: dict[str, str], code: int | None) -> None:
    """A member id consists of a name and a UUID, and must fit into requests and records."""
    world = World()
    call = world.join(**options)  # type: ignore[arg-type]
    world.context.advance(0)
    assert call.response.error_code == (code or 0)
    assert ("g" in world.context.machine.groups) is (code != 42)


def test_v0_has_no_rebalance_timeout() -> None:
    """With v0, a member's session timeout is also its rebalance timeout."""
    world = World()
    world.join(version=0, session_ms=1234)
    (member,) = world.group().members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (1234, 1234)
    assert world.group().members[member.member_id].protocols == tuple(RANGE)


def test_unused_member_ids_of_a_shard_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a shard has assigned too many member ids that have not joined, the oldest of these ids expire, in any group.
    Ids that have joined do not count.
    """
    monkeypatch.setattr("kcore.group.classic.unused_ids.MAX_UNUSED_MEMBER_IDS", 3)
    world = World()
    first = world.join(group="other").response.member_id
    ids = [world.join().response.member_id for _ in range(5)]
    world.context.advance(1)
    assert list(world.group().pending_joins) == ids[2:]
    assert not world.group("other").pending_joins
    assert world.join(first, group="other").response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.join(ids[2])
    again = world.join(group="other").response.member_id
    world.context.advance(1)
    assert list(world.group().pending_joins) == ids[3:]
    assert list(world.group("other").pending_joins) == [again]
    assert list(world.context.machine.unused_member_ids) == [*ids[3:], again]
    world.context.advance(SESSION_MS)
    assert list(world.context.machine.unused_member_ids) == []


def test_long_unused_member_ids_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member id begins with the client id, which may have 32 KB. 5,000 unused ids of this size would take 160 MB in
    each shard.
    """
    monkeypatch.setattr("kcore.group.classic.unused_ids.MAX_UNUSED_BYTES", 200)
    world = World()
    ids = [world.join().response.member_id for _ in range(20)]
    unused = world.context.machine.unused_member_ids
    assert unused.size_bytes == sum(map(len, unused)) <= 200
    assert 1 < len(unused) < 20
    world.context.advance(1)
    assert list(world.group().pending_joins) == ids[-len(unused) :]
    world.join(ids[-1])
    assert unused.size_bytes == sum(map(len, unused))
    world.context.advance(SESSION_MS)
    assert (len(unused), unused.size_bytes) == (0, 0)
