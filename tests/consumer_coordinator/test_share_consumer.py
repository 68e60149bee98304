"""The client's share membership and share sessions, without I/O and in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kcore import errors
from kcore.client import share_consumer
from kcore.client.share_consumer import (
    Acknowledged,
    Acknowledgement,
    ShareMembership,
    SharePartition,
    ShareSession,
    ShareState,
    acquired_ranges,
)
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.share_fetch import AcknowledgementBatch as FetchedBatch
from kcore.protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
)
from kcore.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

A, B = b"a" * 16, b"b" * 16
A0, A1, B0 = SharePartition(A, 0), SharePartition(A, 1), SharePartition(B, 0)
ACCEPT, GAP, RENEW = Acknowledgement.ACCEPT, Acknowledgement.GAP, Acknowledgement.RENEW


def heartbeat(epoch: int, *partitions: int, assigned: bool = True) -> ShareGroupHeartbeatResponse:
    listed = [TopicPartitions(topic_id=A, partitions=list(partitions))] if partitions else []
    return ShareGroupHeartbeatResponse(
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=Assignment(topic_partitions=listed) if assigned else None,
    )


def test_a_member_joins_waits_for_partitions_and_leaves() -> None:
    member = ShareMembership("g", ["t"], "rack")
    join = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=0, rack_id="rack", subscribed_topic_names=["t"]
    )
    assert member.request() == join
    now_ms, pauses = 1_000, []
    for _ in range(8):
        member.received(heartbeat(2), now_ms)
        pauses.append(member.heartbeat_at_ms - now_ms)
        now_ms = member.heartbeat_at_ms
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    member.received(heartbeat(3, 0, 1), now_ms)
    assert (member.assignment, member.version) == ({A0, A1}, 1)
    assert member.heartbeat_at_ms == now_ms + 5_000
    assert member.request() == ShareGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=3)
    member.received(heartbeat(3, assigned=False), now_ms)
    assert (member.assignment, member.version) == ({A0, A1}, 1)
    leave = ShareGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=-1)
    assert (member.leave(), member.state, member.assignment) == (leave, ShareState.LEFT, frozenset())


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_removed_member_joins_again_at_once(code: ErrorCode) -> None:
    member = ShareMembership("g", ["t"])
    member.request()
    member.received(heartbeat(3, 0), 1_000)
    member.received(ShareGroupHeartbeatResponse(error_code=code), 6_000)
    assert (member.state, member.assignment, member.heartbeat_at_ms) == (ShareState.JOINING, frozenset(), 6_000)
    request = member.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["t"])


def test_passing_errors_are_repeated_and_others_end_the_membership() -> None:
    member = ShareMembership("g", ["t"])
    member.request()
    for error in (errors.ConnectionClosedError("x"), TimeoutError(), errors.NotCoordinatorError()):
        member.failed(error, 1_000)
        assert 1_000 < member.heartbeat_at_ms <= 2_200
    assert (member.state, member.error) == (ShareState.JOINING, None)
    member.received(ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), 2_000)
    assert (member.state, type(member.error)) == (ShareState.FAILED, errors.GroupAuthorizationFailedError)
    assert member.leave() is None


def test_a_heartbeat_after_a_lost_response_requests_the_assignment_again() -> None:
    """The coordinator sends an unchanged assignment only if the heartbeat has the member's subscription."""
    member = ShareMembership("g", ["t"], "rack")
    member.request()
    member.received(heartbeat(1, 0), 0)
    plain = ShareGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=1)
    assert member.request() == plain
    member.failed(errors.ConnectionClosedError("cut"), 10)
    full = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=1, rack_id="rack", subscribed_topic_names=["t"]
    )
    assert member.request() == full
    member.received(heartbeat(2, 0, 1), 20)
    assert (member.assignment, member.epoch) == ({A0, A1}, 2)
    assert member.request().subscribed_topic_names is None


def test_a_member_that_never_sent_a_request_does_not_leave() -> None:
    assert ShareMembership("g", ["t"]).leave() is None


def fetch(epoch: int, topics: list[FetchTopic], forgotten: list[ForgottenTopic] | None = None) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        max_records=2,
        batch_size=2,
        share_acquire_mode=1,
        topics=topics,
        forgotten_topics_data=forgotten or [],
    )


def test_a_session_sends_changes_and_pending_acknowledgements() -> None:
    session = ShareSession("g", "m")
    both = FetchTopic(topic_id=A, partitions=[FetchPartition(partition_index=0), FetchPartition(partition_index=1)])
    assert session.fetch(frozenset({A0, A1}), 2, 500) == fetch(0, [both])
    session.succeeded()
    assert session.fetch(frozenset({A0, A1}), 2, 500) == fetch(1, [])
    session.succeeded()
    for offset, kind in [(4, ACCEPT), (3, ACCEPT), (5, GAP), (7, ACCEPT)]:
        session.add(A1, offset, kind)
    batches = [
        FetchedBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in [(3, 4, ACCEPT), (5, 5, GAP), (7, 7, ACCEPT)]
    ]
    acknowledged = FetchTopic(
        topic_id=A, partitions=[FetchPartition(partition_index=1, acknowledgement_batches=batches)]
    )
    added = FetchTopic(topic_id=B, partitions=[FetchPartition(partition_index=0)])
    gone = [ForgottenTopic(topic_id=A, partitions=[1])]
    assert session.fetch(frozenset({A0, B0}), 2, 500) == fetch(2, [acknowledged, added], gone)
    session.succeeded()
    assert session.fetch(frozenset({A0, B0}), 2, 500) == fetch(3, [])


def acknowledge(epoch: int, offset: int, kind: Acknowledgement) -> ShareAcknowledgeRequest:
    batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        is_renew_ack=kind is RENEW,
        topics=[AcknowledgeTopic(topic_id=A, partitions=[partition])],
    )


def test_a_session_acknowledges_and_closes_with_the_pending_acknowledgements() -> None:
    session = ShareSession("g", "m")
    session.fetch(frozenset({A0}), 2, 500)
    session.succeeded()
    assert session.acknowledge({A0: [Acknowledged(4, 4, RENEW)]}, renews=True) == acknowledge(1, 4, RENEW)
    session.succeeded()
    assert session.acknowledge({A0: [Acknowledged(4, 4, ACCEPT)]}) == acknowledge(2, 4, ACCEPT)
    session.succeeded()
    session.add(A0, 5, ACCEPT)
    assert session.close() == acknowledge(-1, 5, ACCEPT)
    assert (session.is_open, session.number, session.pending) == (False, 1, {})
    assert session.fetch(frozenset({A0}), 2, 500).share_session_epoch == 0


def test_a_session_whose_response_was_lost_is_closed_first() -> None:
    session = ShareSession("g", "m")
    session.fetch(frozenset({A0}), 2, 500)
    session.succeeded()
    session.add(A0, 1, ACCEPT)
    session.reset(response_lost=True)
    assert (session.must_close, session.pending, session.number) == (True, {}, 1)
    assert session.close() == ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=-1)
    assert (session.must_close, session.is_open) == (False, False)


def test_the_epoch_after_the_largest_is_one() -> None:
    session = ShareSession("g", "m")
    session._epoch = 0x7FFFFFFF
    session.succeeded()
    assert session.fetch(frozenset({A0}), 2, 500).share_session_epoch == 1


def test_acquired_ranges_have_delivery_counts() -> None:
    ranges = [
        AcquiredRecords(first_offset=3, last_offset=4, delivery_count=1),
        AcquiredRecords(first_offset=7, last_offset=7, delivery_count=2),
    ]
    assert acquired_ranges(PartitionData(acquired_records=ranges[::-1])) == [(3, 4, 1), (7, 7, 2)]


def test_acquired_ranges_of_a_broker_that_errs_are_disjoint() -> None:
    rows = [(-5, 2), (1, 6), (4, 5), (9, 8), (6, 7)]
    ranges = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1) for first, last in rows]
    assert acquired_ranges(PartitionData(acquired_records=ranges)) == [(0, 2, 1), (3, 6, 1), (7, 7, 1)]


def test_acknowledged_ranges_are_joined_and_the_first_type_of_an_offset_counts() -> None:
    session = ShareSession("g", "m")
    session.add(A0, 0, GAP, 1 << 62)
    session.add(A0, 5, ACCEPT)
    session.add(A0, (1 << 62) - 1, GAP, (1 << 62) + 1)
    session.add(A0, (1 << 62) + 2, ACCEPT)
    (topic,) = session.fetch(frozenset({A0}), 2, 500).topics
    batches = topic.partitions[0].acknowledgement_batches
    assert [(one.first_offset, one.last_offset, *one.acknowledge_types) for one in batches] == [
        (0, (1 << 62) + 1, GAP),
        ((1 << 62) + 2, (1 << 62) + 2, ACCEPT),
    ]


def test_a_request_that_cannot_be_built_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ShareSession("g", "m")
    share_partition = SharePartition(b"0123456789abcdef", 0)
    session.add(share_partition, 5, Acknowledgement.ACCEPT)

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(share_consumer, "ShareFetchRequest", fail)
        with pytest.raises(MemoryError):
            session.fetch(frozenset({share_partition}), 1, 0)
    assert not session.is_open
    request = session.fetch(frozenset({share_partition}), 1, 0)
    (topic,) = request.topics
    assert [one.first_offset for one in topic.partitions[0].acknowledgement_batches] == [5]
