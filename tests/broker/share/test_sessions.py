"""The limits of share sessions: refusals, and fairness between clients."""

from __future__ import annotations

import random

import pytest

from kcore.broker.share.sessions import Client, SessionKey, ShareSession, ShareSessions, TopicIdPartition
from kcore.protocol.error_codes import ErrorCode
from tests.broker.share.test_share_fetch import ACCEPT, RELEASE, park, response_of
from tests.broker.share.world import World, acquired
from tests.seeds import first_of


def test_too_many_sessions_wait_and_are_refused() -> None:
    world = World({"group.share.max.share.sessions": 1})
    world.fetch("m", 0, [0])
    pending = park(world, "n", 0, [0], max_wait_ms=100)
    world.advance(100)
    assert response_of(pending).error_code == 133
    world.fetch("m", -1)
    assert world.fetch("n", 0, [0]).error_code == 0


def test_a_refused_session_keeps_the_earlier_one() -> None:
    """A member whose new session is refused keeps its earlier session and its acquired records."""
    world = World({"kcore.max.fetch.session.partitions": 2}, partitions=3)
    world.produce(2)
    assert world.acquire("m", 0, [0]) == [(0, 1, 1)]
    assert world.fetch("m", 0, [0, 1, 2]).error_code == 133
    assert acquired(world.fetch("m", 1, {0: [(0, 0, ACCEPT), (1, 1, RELEASE)]})) == [(1, 1, 2)]


def test_a_session_adds_partitions_up_to_the_limit() -> None:
    """Partitions that are already in the session do not count twice."""
    world = World({"kcore.max.fetch.session.partitions": 2}, partitions=3)
    world.fetch("m", 0, [0, 1])
    assert world.fetch("m", 1, [0, 1]).error_code == 0
    assert world.fetch("m", 2, [0, 2]).error_code == 133
    assert world.fetch("m", 2, [2], forgotten=[0]).error_code == 133


@pytest.mark.parametrize("limit", ["group.share.max.share.sessions", "kcore.max.fetch.session.partitions"])
def test_a_client_with_many_sessions_locks_out_no_other(limit: str) -> None:
    """One connection holds all share sessions. When a client on another connection opens a session, the server evicts
    the oldest session of the connection with the most sessions, and releases its records.
    """
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
    """The client chooses the wait time. A timer for each refused fetch would keep many requests in memory."""
    world = World({"group.share.max.share.sessions": 1})
    world.fetch("m", 0, [0])
    armed = len(world.engine.wheel)
    waiting = park(world, "n", 0, [0], max_wait_ms=2**31 - 1)
    assert len(world.engine.wheel) == armed + 1
    waiting.abandon()
    assert len(world.engine.wheel) == armed


def test_a_session_has_at_most_10000_partitions() -> None:
    """A fetch without partitions serves its whole session, so a small request could take as long as a large one."""
    world = World()
    world.fetch("m", 0, range(10_000))
    assert world.fetch("m", 1, [10_000]).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert world.acquire("m", 1, []) == []


@pytest.mark.parametrize("seed", first_of(range(20), 8))
def test_the_sessions_that_give_way_are_those_of_the_heaviest_client_at_each_step(seed: int) -> None:
    rng = random.Random(seed)
    sessions = ShareSessions(1_000, 10_000, lambda session: None)
    for number in range(60):
        client = Client(f"h{rng.randrange(3)}", rng.randrange(8))
        client = Client(f"h{client.connection_id % 3}", client.connection_id)
        names = [TopicIdPartition(bytes(16), index) for index in range(rng.randrange(1, 6))]
        assert sessions.open(SessionKey("g", f"m{number}"), client, names) is not None
    new = Client(f"h{rng.randrange(4)}", 100)
    size, too_many, total = rng.randrange(1, 4), rng.randrange(-2, 20), rng.randrange(-2, 40)
    partitions = range(size)
    expected = reference_victims(sessions, new, size, too_many, total)
    assert sessions._victims(new, partitions, None, too_many, total) == expected


def reference_victims(sessions: ShareSessions, new: Client, size: int, too_many: int, total: int) -> list[SessionKey]:
    """Chooses the sessions to evict one by one, each time from the client that has the most partitions or sessions."""
    left = dict(sessions.by_key)
    victims: list[SessionKey] = []

    def weight(session: ShareSession) -> int:
        return 1 if counts_sessions else len(session.partitions)

    counts_sessions = total <= 0
    order = [new] + [next(iter(each.values())).client for each in sessions._by_connection.values()]
    while too_many > 0 or total > 0:
        own = 1 if counts_sessions else size
        weights = {client: own if client == new else 0 for client in order}
        for session in left.values():
            weights[session.client] += weight(session)
        hosts: dict[str, int] = {}
        for client, each in weights.items():
            hosts[client.host] = hosts.get(client.host, 0) + each
        host = max(hosts, key=hosts.__getitem__)
        most = max((client for client in order if client.host == host), key=weights.__getitem__)
        victim = next((session for session in left.values() if session.client == most), None)
        if most == new or victim is None:
            return []
        victims.append(victim.key)
        del left[victim.key]
        too_many -= 1
        total -= len(victim.partitions)
    return victims
