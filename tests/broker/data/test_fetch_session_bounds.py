"""Bounds of fetch sessions: the partitions of all sessions, unreadable partitions, and the end of a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.data.fetch_session import EVICTION_MS, MAX_UNREADABLE, FetchSessions, SessionPartition
from kcore.broker.metadata.names import MAX_NAME_LENGTH
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kcore_ext.broker.fetch_reader import FetchParams
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import entry, fetch, plane_with
from tests.kit import create, wait_until
from tests.server.live import LiveServer

LOST = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
FIRST_ID = 1001
MAX_FAILURES = 2_000
MAX_NEWS = 10_000


def session_fetch(*topics: FetchTopic, epoch: int = 0, session_id: int = 0) -> FetchRequest:
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, min_bytes=0)


def topic_of(name: str, partitions: int, first: int = 0) -> FetchTopic:
    return FetchTopic(topic=name, partitions=[entry(0, index) for index in range(first, first + partitions)])


def partitions_in(response: FetchResponse) -> int:
    return sum(len(topic.partitions) for topic in response.responses)


def members(count: int, first: int = 0) -> dict[Any, SessionPartition]:
    partitions = [FetchPartition(partition=index) for index in range(first, first + count)]
    return {("t", requested.partition): SessionPartition("t", bytes(16), requested) for requested in partitions}


@pytest.mark.parametrize(("unreadable", "session"), [(MAX_UNREADABLE, True), (MAX_UNREADABLE + 1, False)])
def test_many_unreadable_partitions_prevent_a_session(unreadable: int, session: bool) -> None:
    plane = plane_with()
    response = plane.call(session_fetch(topic_of("absent", unreadable)), 12)
    assert (response.error_code, partitions_in(response)) == (0, unreadable)
    assert (response.session_id, plane.fetch_sessions.partitions) == ((FIRST_ID, unreadable) if session else (0, 0))


def test_many_unreadable_partitions_end_a_session() -> None:
    """If the session did not end, each short request of the session would get a response that names all unreadable
    partitions.
    """
    plane = plane_with()
    first = plane.call(session_fetch(topic_of("absent", MAX_UNREADABLE)), 12)
    more = plane.call(session_fetch(topic_of("absent", 1, MAX_UNREADABLE), epoch=1, session_id=first.session_id), 12)
    assert more == LOST
    assert (len(plane.fetch_sessions), plane.fetch_sessions.partitions) == (0, 0)


@pytest.mark.parametrize("incremental", [False, True])
def test_names_that_are_too_long_are_not_stored(incremental: bool) -> None:
    plane = plane_with()
    name = "n" * (MAX_NAME_LENGTH + 1)
    if not incremental:
        assert plane.call(session_fetch(topic_of(name, 1)), 12).session_id == 0
    else:
        session_id = plane.call(session_fetch(topic_of("t", 1)), 12).session_id
        assert plane.call(session_fetch(topic_of(name, 1), epoch=1, session_id=session_id), 12) == LOST
    assert (len(plane.fetch_sessions), plane.fetch_sessions.partitions) == (0, 0)
    assert plane.call(session_fetch(topic_of("n" * MAX_NAME_LENGTH, 1)), 12).session_id != 0


def test_the_partitions_of_all_sessions_are_limited() -> None:
    """Beyond the limit, a new client fetches without a session, and an existing session that grows is closed."""
    plane = DataPlane(config={"kcore.max.fetch.session.partitions": "5"})
    plane.topic("t", 6)
    first = plane.call(session_fetch(topic_of("t", 3)), 12).session_id
    assert plane.call(session_fetch(topic_of("t", 3)), 12).session_id == 0
    assert plane.call(session_fetch(topic_of("t", 2)), 12).session_id != 0
    assert plane.fetch_sessions.partitions == 5
    assert plane.call(session_fetch(topic_of("t", 1, 3), epoch=1, session_id=first), 12) == LOST
    assert (len(plane.fetch_sessions), plane.fetch_sessions.partitions) == (1, 2)
    assert plane.call(session_fetch(topic_of("t", 6)), 12).session_id == 0


def test_the_partitions_of_one_session_are_limited() -> None:
    """A session has no more partitions than its client can name again in one request."""
    plane = DataPlane(config={"kcore.max.request.elements": "1000"})
    plane.topic("t", 1_001)
    first = plane.call(session_fetch(topic_of("t", 1_000)), 12).session_id
    assert first != 0
    assert plane.call(session_fetch(topic_of("t", 2), epoch=1, session_id=first), 12).error_code == 0
    assert plane.call(session_fetch(topic_of("t", 1, 1_000), epoch=2, session_id=first), 12) == LOST
    assert plane.call(session_fetch(topic_of("t", 1_001)), 12).session_id == 0
    assert (len(plane.fetch_sessions), plane.fetch_sessions.partitions) == (0, 0)


def read(members: list[SessionPartition], sparse: bool) -> list[Any]:
    """Reads partition 0, which has one record, once for each of the session's partitions in `members`."""
    plane = plane_with(batch_of(b"v"))
    for member in members:
        member.partition = plane.partition("t")
    params = FetchParams(12, False, 1 << 20, 0, 0, 1)
    fetches = plane.apis[ApiKey.FETCH]
    return list(fetches.reader.read(members, params, sparse).results)


def test_a_response_has_a_bounded_number_of_errors() -> None:
    """The response omits further errors. Later responses have them, once the client has fixed the reported errors."""
    for fields in ({"fetch_offset": 7}, {"current_leader_epoch": 9}, {"fetch_offset": 5, "last_fetched_epoch": 0}):
        requested = FetchPartition(**fields)
        items = [SessionPartition("t", bytes(16), requested) for _ in range(MAX_FAILURES + 2)]
        whole = read(items, sparse=False)
        failed = [bool(data.error_code or data.diverging_epoch.epoch >= 0) for data in whole]
        assert failed == [True] * MAX_FAILURES + [False] * 2, fields
        assert [(data.high_watermark, data.records) for data in whole[-2:]] == [(1, b"")] * 2
        assert [data is not None for data in read(items, sparse=True)] == failed


def test_a_response_of_a_session_has_a_bounded_number_of_partitions_without_records() -> None:
    items = [SessionPartition("t", bytes(16), FetchPartition(fetch_offset=1)) for _ in range(MAX_NEWS + 2)]
    results = read(items, sparse=True)
    assert [data is not None for data in results] == [True] * MAX_NEWS + [False] * 2
    for item, data in zip(items[:MAX_NEWS], results, strict=False):
        item.update(data)
    assert [data is not None for data in read(items, sparse=True)] == [False] * MAX_NEWS + [True] * 2


def test_sessions_are_evicted_until_there_is_room() -> None:
    ids: Iterator[int] = iter(range(1, 100))
    sessions = FetchSessions(10, lambda: next(ids), 10)
    assert [sessions.create(members(4), False, 0), sessions.create(members(4), False, 1)] == [1, 2]
    assert sessions.create(members(9), False, EVICTION_MS) == 0
    assert sessions.create(members(9), False, EVICTION_MS + 2) == 3
    assert (len(sessions), sessions.partitions, sessions.evictions) == (1, 9, 2)
    sessions.close(3)
    sessions.close(3)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_session_ends_with_its_connection() -> None:
    plane = plane_with()
    creation = fetch(entry(0), session_id=0, session_epoch=0)
    one, other, embedded = (plane.send(creation, 12, connection_id=number).session_id for number in (7, 8, 0))
    plane.fetch_sessions.connection_closed(7)
    plane.fetch_sessions.connection_closed(0)
    plane.fetch_sessions.connection_closed(99)
    assert [plane.fetch_sessions.get(session_id) is not None for session_id in (one, other, embedded)] == [
        False,
        True,
        True,
    ]
    assert plane.fetch_sessions.partitions == 2


def test_a_server_closes_sessions_with_the_connection() -> None:
    with LiveServer() as live:
        sessions = live.engine.fetch_sessions
        with live.connect() as connection:
            connection.send(create("t"))
            response = connection.send(
                session_fetch(FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])), 12
            )
            assert response.session_id > 0
            assert sessions.partitions == 1
        wait_until(lambda: not len(sessions), "the end of the session")
        assert sessions.partitions == 0
