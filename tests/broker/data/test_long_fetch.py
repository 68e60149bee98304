"""Fetches of many topics on a node with an authorizer: the permissions are checked in slices before the reads."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.protocol.authorizer import Operation
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kcore.runtime import Pending
from kcore.runtime.topic_permissions import FEW_TOPICS
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_produce import request

TOPICS = 2_600
NAMES = [f"t{number:04}" for number in range(TOPICS)]
DENIED = "t1700"
WRITTEN = "t0030"
PARTITION = FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=0)


class Readers:
    """An authorizer that denies READ of one topic and records the checked topics."""

    def __init__(self) -> None:
        self.checked: list[str] = []

    def allowed(self, context: Any, operation: Operation, resource_type: Any, name: str) -> bool:
        if operation is not Operation.READ:
            return True
        self.checked.append(name)
        return name != DENIED


def plane_of(sliced: bool, *, authorizer: bool = True) -> DataPlane:
    plane = DataPlane(authorizer=Readers() if authorizer else None)
    for name in NAMES:
        plane.topic(name)
    written = plane.call(request((WRITTEN, 0, batch_of(b"v"))), 11)
    assert written.responses[0].partition_responses[0].error_code == 0
    plane.slices.requests.enabled = sliced
    return plane


def named(plane: DataPlane, version: int, names: list[str], **fields: Any) -> FetchRequest:
    """Makes a request that names topics. By default, the request opens a session (session_epoch 0)."""
    fields.setdefault("session_epoch", 0)
    ids = {name: plane.topics[name].topic_id for name in names} if version >= 13 else {}
    topics = [
        FetchTopic(topic="" if ids else name, topic_id=ids.get(name, bytes(16)), partitions=[PARTITION])
        for name in names
    ]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics, **fields)


def finished(plane: DataPlane, response: Any, version: int) -> FetchResponse:
    plane.slices.finish()
    settled: FetchResponse = plane.settle(response, version)
    assert isinstance(settled, FetchResponse)
    return settled


def opened(plane: DataPlane, version: int = 13) -> int:
    """Opens a session of all topics; returns its id."""
    response = finished(plane, plane.send(named(plane, version, NAMES), version), version)
    assert response.session_id
    return response.session_id


def next_of(session_id: int, epoch: int = 1, **fields: Any) -> FetchRequest:
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(session_id=session_id, session_epoch=epoch, **fields)


def session_responses(plane: DataPlane, version: int) -> list[FetchResponse]:
    """Opens a session, continues the session, adds topics to it, and fetches without a session. Returns the
    responses.
    """
    half = TOPICS // 2
    first = finished(plane, plane.send(named(plane, version, NAMES[:half]), version), version)
    assert first.session_id
    fields = {"session_id": first.session_id}
    requests = [
        named(plane, version, NAMES[half:], session_epoch=1, **fields),
        next_of(first.session_id, 2),
        named(plane, version, NAMES[: half + 1], session_epoch=3, **fields),
        named(plane, version, NAMES, session_epoch=-1),
    ]
    return [first, *(finished(plane, plane.send(made, version), version) for made in requests)]


@pytest.mark.parametrize("version", [12, 13, 18])
def test_slices_change_no_response(version: int) -> None:
    whole = session_responses(plane_of(False), version)
    assert session_responses(plane_of(True), version) == whole
    codes = {data.error_code for response in whole for topic in response.responses for data in topic.partitions}
    assert codes == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert sum(bool(data.records) for topic in whole[-1].responses for data in topic.partitions) == 1


def test_each_topic_is_decided_once_and_other_clients_are_served_between_the_slices() -> None:
    plane = plane_of(True)
    session_id = opened(plane)
    plane.authorizer.checked.clear()
    pending = plane.send(next_of(session_id), 13)
    assert isinstance(pending, Pending)
    checked = len(plane.authorizer.checked)
    assert FEW_TOPICS < checked < TOPICS, "the first slice has checked some of the topics"
    other = plane.call(named(plane, 13, [WRITTEN], session_epoch=-1), 13)
    assert other.responses[0].partitions[0].records
    assert not pending.done
    assert plane.slices.step()
    assert len(plane.authorizer.checked) > checked + 1
    finished(plane, pending, 13)
    plane.authorizer.checked.remove(WRITTEN)  # the check for the other client
    assert sorted(plane.authorizer.checked) == NAMES


def test_few_topics_or_no_authorizer_need_no_slices() -> None:
    plane = plane_of(True)
    assert isinstance(plane.send(named(plane, 13, NAMES[:FEW_TOPICS]), 13), FetchResponse)
    plane = plane_of(True, authorizer=False)
    assert isinstance(plane.send(named(plane, 13, NAMES), 13), FetchResponse)


def test_many_partitions_of_few_topics_wait_for_no_long_request() -> None:
    """A fetch of a session with many partitions of one topic gets its response while an earlier long request is still
    unfinished. The node runs the first slice of such a fetch at once, and this slice completes the response.
    """
    plane = plane_of(True)
    plane.topic("wide", FEW_TOPICS + 1)
    entries = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(FEW_TOPICS + 1)]
    wide = FetchTopic(topic_id=plane.topics["wide"].topic_id, partitions=entries)
    session_id = plane.call(FetchRequest(min_bytes=0, session_epoch=0, topics=[wide]), 13).session_id
    long = plane.send(named(plane, 13, NAMES), 13)
    assert isinstance(long, Pending)
    assert isinstance(plane.send(next_of(session_id), 13), FetchResponse)
    assert not long.done


def test_a_later_request_of_the_session_overtakes_one_between_its_slices() -> None:
    plane = plane_of(True)
    session_id = opened(plane)
    first = plane.send(next_of(session_id), 13)
    second = plane.send(next_of(session_id, 2, topics=named(plane, 13, [WRITTEN]).topics), 13)
    assert finished(plane, first, 13).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert finished(plane, second, 13).error_code == 0
    assert finished(plane, plane.send(next_of(session_id, 3), 13), 13).error_code == 0


def test_a_topic_that_is_deleted_between_the_slices_is_unknown() -> None:
    plane = plane_of(True)
    session_id = opened(plane)
    pending = plane.send(next_of(session_id), 13)
    plane.partitions.on_topic_deleted(plane.topics[WRITTEN])
    plane.commit()
    response = finished(plane, pending, 13)
    codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}
    assert codes == {
        plane.topics[WRITTEN].topic_id: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        plane.topics[DENIED].topic_id: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_a_topic_that_is_created_between_the_slices_is_decided_when_it_is_read() -> None:
    plane = plane_of(True)
    made = named(plane, 12, [*NAMES[:-1], "later"])
    pending = plane.send(made, 12)
    plane.topic("later")
    response = finished(plane, pending, 12)
    codes = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
    assert codes["later"] == 0
    assert plane.authorizer.checked.count("later") == 1


def long_poll(plane: DataPlane) -> Any:
    """Sends a fetch at the ends of all partitions, which waits for an hour."""
    readable = [name for name in NAMES if name not in (DENIED, WRITTEN)]
    made = named(plane, 13, readable, session_epoch=-1)
    made.max_wait_ms = 3_600_000
    return plane.send(made, 13)


def test_a_long_fetch_waits_for_records() -> None:
    plane = plane_of(True)
    pending = long_poll(plane)
    plane.slices.finish()
    assert not pending.done
    assert plane.purgatory.num_watched
    plane.call(request((NAMES[5], 0, batch_of(b"new"))), 11)
    response = finished(plane, pending, 13)
    assert [topic.topic_id for topic in response.responses if topic.partitions[0].records] == [
        plane.topics[NAMES[5]].topic_id
    ]
    assert not plane.purgatory.num_watched


@pytest.mark.parametrize("parked", [False, True])
def test_a_client_that_disconnects_leaves_nothing(parked: bool) -> None:
    """The client disconnects between two slices, or while its fetch is parked. Otherwise a client could fill the memory
    with fetches that have a long max_wait.
    """
    plane = plane_of(True)
    pending = long_poll(plane)
    if parked:
        plane.slices.finish()
        assert plane.purgatory.num_watched
    pending.abandon()
    plane.slices.finish()
    assert not plane.purgatory.num_watched
    assert not any(plane.partition(name).watched for name in NAMES)


def test_the_number_of_partitions_is_right_after_a_failed_update() -> None:
    plane = plane_of(False)
    session_id = opened(plane)
    session = plane.fetch_sessions.get(session_id)
    assert session is not None
    extra = FetchTopic(topic_id=b"x" * 16, partitions=[PARTITION, object()])
    made: Any = FetchRequest(topics=[extra])
    with pytest.raises(AttributeError):
        plane.fetch_sessions.update(session, made, plane.partitions)
    assert plane.fetch_sessions.partitions == len(session.partitions) == TOPICS + 1
    assert plane.partition(NAMES[0]) is session.partitions[plane.topics[NAMES[0]].topic_id, 0].partition


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("acks", [1, 0])
def test_a_produce_to_many_topics_decides_the_permissions_in_slices(version: int, acks: int) -> None:
    plane = DataPlane(authorizer=Writers())
    for name in NAMES:
        plane.topic(name)
    plane.slices.requests.enabled = True
    sent = request(*[(name, 0, batch_of(b"v")) for name in NAMES], acks=acks)
    if version >= 13:
        for topic in sent.topic_data:
            topic.name, topic.topic_id = "", plane.topics[topic.name].topic_id
    pending = plane.send(sent, version)
    assert isinstance(pending, Pending)
    assert pending.parked
    assert FEW_TOPICS < len(plane.authorizer.checked) < TOPICS, "the first slice has checked some of the topics"
    assert not any(plane.partition(name).dirty for name in NAMES)
    plane.slices.finish()
    plane.commit()
    plane.slices.finish()
    response = plane.settle(pending, version)
    assert len(plane.authorizer.checked) == TOPICS
    stored = [plane.partition(name).log.end_offset for name in NAMES]
    assert stored == [int(name != DENIED) for name in NAMES]
    if not acks:
        assert response is None
        return
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED if name == DENIED else ErrorCode.NONE for name in NAMES]


class Writers(Readers):
    """An authorizer that denies WRITE of one topic and records the checked topics."""

    def allowed(self, context: Any, operation: Operation, resource_type: Any, name: str) -> bool:
        self.checked.append(name)
        return name != DENIED
