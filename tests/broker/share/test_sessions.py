"""The limits of share sessions: refusals, and fairness between clients."""

from __future__ import annotations

import pytest

from kcore.protocol.error_codes import ErrorCode
from tests.broker.share.test_share_fetch import ACCEPT, RELEASE, answered, park
from tests.broker.share.world import World, acquired


def test_too_many_sessions_wait_and_are_refused() -> None:
    world = World({"group.share.max.share.sessions": 1})
    world.fetch("m", 0, [0])
    pending = park(world, "n", 0, [0], max_wait_ms=100)
    world.advance(100)
    assert answered(pending).error_code == 133
    world.fetch("m", -1)
    assert world.fetch("n", 0, [0]).error_code == 0


def test_a_refused_session_keeps_the_earlier_one() -> None:
    """A member whose new session is refused still has its earlier one, and the records that it has acquired."""
    world = World({"kcore.max.fetch.session.partitions": 2}, partitions=3)
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]
    assert world.fetch("m", 0, [0, 1, 2]).error_code == 133
    assert acquired(world.fetch("m", 1, {0: [(0, 0, ACCEPT), (1, 1, RELEASE)]})) == [(1, 1, 2)]


def test_a_session_adds_partitions_up_to_the_limit() -> None:
    """Partitions that the session has already do not count twice."""
    world = World({"kcore.max.fetch.session.partitions": 2}, partitions=3)
    world.fetch("m", 0, [0, 1])
    assert world.fetch("m", 1, [0, 1]).error_code == 0
    assert world.fetch("m", 2, [0, 2]).error_code == 133
    assert world.fetch("m", 2, [2], forgotten=[0]).error_code == 133


@pytest.mark.parametrize("limit", ["group.share.max.share.sessions", "kcore.max.fetch.session.partitions"])
def test_a_client_with_many_sessions_locks_out_no_other(limit: str) -> None:
    """The oldest session of the connection that has the most gives way; its records are released."""
    world = World({limit: 4})
    world.produce(1)
    for index in range(9):
        code = world.fetch(f"flood-{index}", 0, [0]).error_code
        assert code == (0 if index < 4 else 133)
    world.connection_id = 2
    assert acquired(world.fetch("m", 0, [0])) == [], "the release is not written yet"
    assert acquired(world.fetch("m", 1)) == [(0, 0, 2)]
    assert world.fetch("n", 0, [0]).error_code == 0
    assert world.fetch("o", 0, [0]).error_code == 133, "both connections have two sessions"
    assert len(world.engine.share_partitions.sessions) == 4
    world.connection_id = 1
    codes = [world.fetch(f"flood-{index}", 1).error_code for index in range(4)]
    assert codes == [122, 122, 0, 0]
    assert world.fetch("flood-9", 0, [0]).error_code == 133
    world.connection_id = 2
    assert acquired(world.fetch("m", 2, {0: [(0, 0, RELEASE)]})) == [(0, 0, 3)]


def test_a_refused_fetch_of_a_closed_connection_is_forgotten() -> None:
    """The client chooses the wait time: a timer for each such request would keep all of them in memory."""
    world = World({"group.share.max.share.sessions": 1})
    world.fetch("m", 0, [0])
    armed = len(world.engine.wheel)
    waiting = park(world, "n", 0, [0], max_wait_ms=2**31 - 1)
    assert len(world.engine.wheel) == armed + 1
    waiting.abandon()
    assert len(world.engine.wheel) == armed


def test_a_session_has_at_most_10000_partitions() -> None:
    """A fetch without partitions serves all of its session, so a small request would take as long as a large one."""
    world = World()
    world.fetch("m", 0, range(10_000))
    assert world.fetch("m", 1, [10_000]).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert world.acquire("m", 1, []) == []
