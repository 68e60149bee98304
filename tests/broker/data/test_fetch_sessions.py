"""Fetch sessions (KIP-227): state and responses of a session compared with a model, and eviction."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kcore.broker.data.fetch_session import EVICTION_MS, MAX_EPOCH, FetchSessions, SessionPartition, next_epoch
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from kcore.runtime import RequestContext
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_fetch import entry, fetch, plane_with
from tests.broker.data.test_produce import produce, request
from tests.kit import serve

FIRST_ID = 1001


def names(response: FetchResponse) -> list[int]:
    """Returns the partitions of topic t in a response, in order."""
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def test_epochs_increase_and_never_wrap_to_zero() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, MAX_EPOCH)] == [1, 2, 1]


def test_a_session_is_created_continued_and_closed() -> None:
    """Epoch 0 creates a session. Its later responses have only changed partitions. Epoch -1 closes the session."""
    plane = DataPlane()
    plane.topic("t", 3)
    plane.call(request(("t", 1, batch_of(b"a"))), 11)
    first = plane.call(fetch(*[entry(0, index) for index in range(3)], session_id=0, session_epoch=0), 12)
    assert (first.session_id, names(first)) == (FIRST_ID, [0, 1, 2])
    again = plane.call(fetch(entry(1, 1), session_id=FIRST_ID, session_epoch=1), 12)
    assert (again.session_id, names(again)) == (FIRST_ID, [])
    plane.call(request(("t", 2, batch_of(b"b"))), 11)
    assert names(plane.call(fetch(session_id=FIRST_ID, session_epoch=2), 12)) == [2]
    closing = plane.call(fetch(entry(0, 0), session_id=FIRST_ID, session_epoch=-1), 12)
    assert (closing.session_id, names(closing), len(plane.fetch_sessions)) == (0, [0], 0)


def test_wrong_ids_epochs_and_kinds_are_refused() -> None:
    """The responses have FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR and no
    topics; the session stays valid.
    """
    plane = plane_with()
    plane.call(fetch(entry(0), session_id=0, session_epoch=0), 12)
    for session_id, epoch, version, code in (
        (FIRST_ID + 1, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (FIRST_ID, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (FIRST_ID, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        (FIRST_ID, 1, 12, ErrorCode.NONE),
    ):
        response = plane.call(FetchRequest(session_id=session_id, session_epoch=epoch), version)
        assert (response.error_code, names(response)) == (code, []), (session_id, epoch, version)


def test_a_full_fetch_within_a_session_creates_a_new_one() -> None:
    plane = plane_with()
    plane.call(fetch(entry(0), session_id=0, session_epoch=0), 12)
    assert plane.call(fetch(entry(0), session_id=FIRST_ID, session_epoch=0), 12).session_id == FIRST_ID + 1
    assert len(plane.fetch_sessions) == 1


def test_a_session_without_partitions_is_closed() -> None:
    plane = plane_with()
    plane.call(fetch(entry(0), session_id=0, session_epoch=0), 12)
    forgotten = [ForgottenTopic(topic="t", partitions=[0])]
    response = plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=1, forgotten_topics_data=forgotten), 12)
    assert (response.session_id, response.error_code, len(plane.fetch_sessions)) == (0, 0, 0)


def test_an_error_is_in_each_response_and_its_end_in_one() -> None:
    """While a topic of the session does not exist, each response has an error for it. After the creation of the topic,
    the next response has the topic without an error, and later responses omit it.
    """
    plane = plane_with()
    plane.call(fetch(entry(0), topic="later", session_id=0, session_epoch=0), 12)
    for epoch in (1, 2):
        response = plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=epoch), 12)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plane.topic("later")
    response = plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=3), 12)
    assert response.responses[0].partitions[0].error_code == 0
    assert plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=4), 12).responses == ()


def test_sessions_by_id_know_their_topics_names() -> None:
    """An unknown topic id gets UNKNOWN_TOPIC_ID. The id of a deleted topic gets UNKNOWN_TOPIC_OR_PARTITION, or
    INCONSISTENT_TOPIC_ID if another topic has its name now.
    """
    plane = plane_with()
    topic = plane.topics["t"]
    unknown = FetchTopic(topic_id=b"x" * 16, partitions=[entry(0)])
    known = FetchTopic(topic_id=topic.topic_id, partitions=[entry(0)])
    first = plane.call(FetchRequest(topics=[unknown, known], session_id=0, session_epoch=0), 13)
    assert [response.partitions[0].error_code for response in first.responses] == [ErrorCode.UNKNOWN_TOPIC_ID, 0]

    def partition(epoch: int) -> Any:
        response = plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=epoch), 13)
        return {one.topic_id: one.partitions[0] for one in response.responses}[topic.topic_id]

    plane.partitions.on_topic_deleted(topic)
    deleted = partition(1)
    assert (deleted.error_code, deleted.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
    plane.topic("t")
    again = partition(2)
    assert (again.error_code, again.aborted_transactions) == (ErrorCode.INCONSISTENT_TOPIC_ID, None)


def test_a_session_by_id_finds_no_partition_that_a_new_topic_of_the_name_lacks() -> None:
    plane = plane_with()
    topic = plane.topics["t"]
    known = FetchTopic(topic_id=topic.topic_id, partitions=[entry(0), entry(0, 7)])
    plane.call(FetchRequest(topics=[known], session_id=0, session_epoch=0), 13)
    plane.partitions.on_topic_deleted(topic)
    plane.topic("t")
    (response,) = plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=1), 13).responses
    assert {one.partition_index: one.error_code for one in response.partitions} == {
        0: ErrorCode.INCONSISTENT_TOPIC_ID,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_overtaken_request_gets_an_error() -> None:
    """Of two concurrent requests of one session, the parked request gets INVALID_FETCH_SESSION_EPOCH (71)."""
    plane = plane_with()
    plane.call(fetch(entry(0), session_id=0, session_epoch=0), 12)
    waiting = plane.send(FetchRequest(session_id=FIRST_ID, session_epoch=1, max_wait_ms=500, min_bytes=1), 12)
    plane.call(FetchRequest(session_id=FIRST_ID, session_epoch=2), 12)
    produce(plane, batch_of(b"a"))
    assert waiting.response == FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=FIRST_ID)


def test_partitions_with_data_move_behind_partitions_without_data() -> None:
    """After a response that reached its size limit, the next response begins with the partitions for which that
    response had no data.
    """
    plane = DataPlane()
    plane.topic("t", 3)
    for index in range(3):
        plane.call(request(("t", index, batch_of(b"a" * 100))), 11)
    entries = [entry(0, index) for index in range(3)]
    plane.call(fetch(*entries, max_bytes=1, session_id=0, session_epoch=0), 12)
    order = []
    for epoch in range(1, 5):
        requested = FetchRequest(session_id=FIRST_ID, session_epoch=epoch, max_bytes=1)
        response = plane.call(requested, 12)
        order += [data.partition_index for topic in response.responses for data in topic.partitions if data.records]
    assert order == [0, 1, 2, 0]


# ---------------------------------------------------------------- the model


class SessionModel:
    """Model of a client that stores everything it received."""

    def __init__(self, returned: dict[int, tuple[int, int]]) -> None:
        self.offsets = dict.fromkeys(returned, 0)
        self.returned = returned

    def expected(self, marks: dict[int, tuple[int, int]]) -> set[int]:
        """Returns partitions with data after the client's offset, or with a new high watermark or start offset."""
        return {
            index
            for index in self.offsets
            if marks[index][0] > self.offsets[index] or marks[index] != self.returned[index]
        }


@pytest.mark.parametrize("seed", range(8))
def test_responses_of_a_session_have_exactly_the_changes(seed: int) -> None:
    """Appends and deletes records at random, and moves, adds or removes partitions of the session. Each response has
    exactly the changed partitions.
    """
    print("seed", seed)
    rng = random.Random(seed)
    plane = DataPlane()
    plane.topic("t", 6)

    def marks() -> dict[int, tuple[int, int]]:
        found = (plane.partition("t", index) for index in range(6))
        return {one.index: (one.high_watermark, one.log_start_offset) for one in found}

    first = plane.call(fetch(*[entry(0, index) for index in range(3)], session_id=0, session_epoch=0), 12)
    model = SessionModel({index: marks()[index] for index in range(3)})
    for epoch in range(1, 120):
        for _ in range(rng.randrange(3)):
            plane.call(request(("t", rng.randrange(6), batch_of(b"v"))), 11)
        if rng.random() < 0.2:
            partition = plane.partition("t", rng.randrange(6))
            partition.delete_before(partition.high_watermark)
            plane.commit()
        now = marks()
        requested: list[FetchPartition] = []
        for index in rng.sample(range(6), rng.randrange(3)):
            requested.append(entry(now[index][0], index))
            model.offsets[index] = now[index][0]
            model.returned.setdefault(index, (-1, -1))
        # A position below the start would be an error: a client resets it.
        for index, offset in model.offsets.items():
            if offset < now[index][1]:
                requested.append(entry(now[index][0], index))
                model.offsets[index] = now[index][0]
        forget = [index for index in model.offsets if rng.random() < 0.1][: len(model.offsets) - 1]
        for index in forget:
            del model.offsets[index], model.returned[index]
        response = plane.call(
            fetch(
                *requested,
                session_id=first.session_id,
                session_epoch=epoch,
                forgotten_topics_data=[ForgottenTopic(topic="t", partitions=forget)],
            ),
            12,
        )
        assert set(names(response)) == model.expected(now)
        for topic in response.responses:
            for data in topic.partitions:
                assert (data.high_watermark, data.log_start_offset) == now[data.partition_index]
                model.returned[data.partition_index] = now[data.partition_index]


# ---------------------------------------------------------------- the limit


def members(count: int) -> dict[Any, SessionPartition]:
    return {("t", index): SessionPartition("t", bytes(16), FetchPartition(partition=index)) for index in range(count)}


def sessions_of(*sizes: int, slots: int) -> tuple[FetchSessions, list[int]]:
    ids = iter(range(1, 100))
    sessions = FetchSessions(slots, lambda: next(ids))
    return sessions, [sessions.create(members(size), False, 0) for size in sizes]


def test_there_are_no_more_sessions_than_slots() -> None:
    """Sessions of any size that were created recently are not evicted. The new client gets no session."""
    sessions, ids = sessions_of(1, 2, slots=2)
    assert ids == [1, 2]
    assert sessions.create(members(50), False, EVICTION_MS) == 0
    assert FetchSessions(0, lambda: 1).create(members(1), False, 0) == 0


def test_the_least_recently_used_session_is_evicted_when_expired() -> None:
    sessions, _ = sessions_of(5, 5, slots=2)
    session = sessions.get(1)
    assert session is not None
    sessions.touch(session, 10)
    assert sessions.create(members(1), False, EVICTION_MS + 1) == 3
    assert [sessions.get(session_id) is not None for session_id in (1, 2, 3)] == [True, False, True]
    assert sessions.evictions == 1


def test_a_larger_session_evicts_an_old_one() -> None:
    """A session's age counts from its creation, even if the session is in use. A new session evicts the smallest old
    session if the new session is larger.
    """
    sessions, _ = sessions_of(3, 2, slots=2)
    for session_id in (1, 2):
        session = sessions.get(session_id)
        assert session is not None
        sessions.touch(session, EVICTION_MS + 1)
    now_ms = EVICTION_MS + 2
    assert sessions.create(members(2), False, now_ms) == 0
    assert sessions.create(members(3), False, now_ms) == 3
    assert sessions.get(2) is None
    assert sessions.create(members(3), False, now_ms) == 0
    assert sessions.create(members(4), False, now_ms) == 4
    assert sessions.get(1) is None


def test_session_ids_are_unique() -> None:
    ids = iter([7, 7, 8])
    sessions = FetchSessions(10, lambda: next(ids))
    assert [sessions.create(members(1), False, 0) for _ in range(2)] == [7, 8]


def test_a_session_belongs_to_the_principal_that_created_it() -> None:
    """Another principal can neither use nor close the session: it gets the error for a session that does not exist."""
    plane = plane_with()

    def send(principal: str, *entries: Any, **fields: Any) -> FetchResponse:
        context = RequestContext(12, principal=principal)
        response = serve(plane.fetch_api, context, fetch(*entries, **fields))
        assert isinstance(response, FetchResponse)
        return response

    assert send("User:alice", entry(0), session_id=0, session_epoch=0).session_id == FIRST_ID
    assert send("User:bob", session_id=FIRST_ID, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    send("User:bob", entry(0), session_id=FIRST_ID, session_epoch=-1)
    assert send("User:alice", session_id=FIRST_ID, session_epoch=1).error_code == ErrorCode.NONE
    send("User:alice", entry(0), session_id=FIRST_ID, session_epoch=-1)
    assert len(plane.fetch_sessions) == 0
