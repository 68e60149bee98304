"""The Fetch API: isolation levels, size limits, epochs, and long polls that complete exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.data.aborted_transactions import MAX_COMPLETE_LIST
from kcore.broker.data.delayed_fetch import MAX_AT_ONCE, MAX_IN_A_ROUND, DelayedFetch, FetchPending
from kcore.log import FailureReason, LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kcore_ext.batch import parse_header
from tests.broker.data.context import DataPlane, batch_of, values_in
from tests.broker.data.test_produce import produce, request, transactional
from tests.reference.fetch_reader import MAX_READS

WALL_MS = 1_700_000_000_000


def entry(
    offset: int, partition: int = 0, most: int = 1 << 20, epoch: int = -1, last_epoch: int = -1
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=most,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
    )


def fetch(
    *entries: FetchPartition,
    topic: str = "t",
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    committed: bool = False,
    **more: Any,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=list(entries))],
        **more,
    )


def response_with(data: PartitionData, topic: str = "t") -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[data])])


def data_of(response: FetchResponse, index: int = 0) -> PartitionData:
    found: PartitionData = response.responses[0].partitions[index]
    return found


def plane_with(*batches: bytes, verify: bool = False, **settings: Any) -> DataPlane:
    plane = DataPlane(config={"transaction.partition.verification.enable": str(verify).lower()})
    plane.topic("t", **settings)
    for batch in batches:
        assert produce(plane, batch, tid="tid").error_code == 0
    return plane


def test_a_response_has_the_stored_batches_from_the_requested_offset() -> None:
    """The response begins with the stored batch that contains the offset."""
    plane = plane_with(batch_of(b"a", b"b"), batch_of(b"c"))
    stored = b"".join(bytes(batch) for _, batch in plane.partition("t").log.batches())
    expected = PartitionData(
        high_watermark=3, last_stable_offset=3, log_start_offset=0, aborted_transactions=None, records=stored
    )
    assert plane.call(fetch(entry(1)), 12) == response_with(expected)


def test_uncommitted_records_are_not_read() -> None:
    """A reader at the end of the log waits for the current commit, even with max_wait 0. In Kafka with one replica,
    every append is readable at once.
    """
    plane = plane_with(batch_of(b"a"))
    plane.send(request(("t", 0, batch_of(b"b"))), 11)
    assert values_in(data_of(plane.send(fetch(entry(0)), 12)).records) == [(0, b"a")]
    pending = plane.send(fetch(entry(1)), 12)
    assert isinstance(pending, FetchPending)
    plane.commit()
    assert values_in(data_of(pending.response).records) == [(1, b"b")]


def test_a_fetch_after_an_append_without_acks_returns_its_records() -> None:
    """The producer gets no response, so it may fetch at once. The fetch waits for the commit of the append, even if
    other records are available.
    """
    plane = plane_with(batch_of(b"a"))
    assert plane.send(request(("t", 0, batch_of(b"b")), acks=0), 11) is None
    pending = plane.send(fetch(entry(0)), 12)
    plane.commit()
    assert values_in(data_of(pending.response).records) == [(0, b"a"), (1, b"b")]


def test_a_waiting_fetch_survives_a_failed_commit() -> None:
    """The commit fails, so the append is lost. The fetch that waited for this commit gets an empty response."""
    plane = plane_with()
    plane.send(request(("t", 0, batch_of(b"b"))), 11)
    pending = plane.send(fetch(entry(0)), 12)
    plane.fail_next_commit()
    plane.commit()
    assert data_of(pending.response).records == b""
    assert data_of(pending.response).high_watermark == 0


# ---------------------------------------------------------------- long polls


def test_a_poll_with_data_completes_at_once() -> None:
    plane = plane_with(batch_of(b"a"))
    assert values_in(data_of(plane.send(fetch(entry(0), wait_ms=500), 12)).records) == [(0, b"a")]


def test_an_append_completes_a_poll() -> None:
    """The commit completes the poll once, with all committed records, and no state of the poll remains."""
    plane = plane_with()
    pending = plane.send(fetch(entry(0), wait_ms=500), 12)
    assert (pending.done, pending.parked) == (False, True)
    plane.send(request(("t", 0, batch_of(b"a"))), 11)
    plane.send(request(("t", 0, batch_of(b"b"))), 11)
    assert not pending.done
    plane.commit()
    assert values_in(data_of(pending.response).records) == [(0, b"a"), (1, b"b")]
    assert (len(plane.purgatory), plane.purgatory.expired_total, plane.partition("t").watched) == (0, 0, 0)
    plane.advance(600)
    assert plane.purgatory.expired_total == 0


def test_a_poll_ends_at_its_timeout() -> None:
    plane = plane_with()
    pending = plane.send(fetch(entry(0), wait_ms=500), 12)
    plane.advance(499)
    assert not pending.done
    plane.advance(1)
    assert data_of(pending.response).records == b""
    assert (len(plane.purgatory), plane.partition("t").watched) == (0, 0)
    produce(plane, batch_of(b"a"))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LogError("the disk is gone", FailureReason.IO_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_poll_whose_read_fails_gets_an_error(
    failure: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the error response, the client's connection would hang."""
    plane = plane_with()
    parked = plane.send(fetch(entry(0), wait_ms=10_000), 12)
    assert parked.parked

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(type(plane.fetch_api), "read_again", fail)
    produce(plane, batch_of(b"v"))
    assert parked.done
    assert parked.response.error_code == code


def test_a_closed_connection_drops_its_poll() -> None:
    """The poll is never completed, and later appends do not find it."""
    plane = plane_with()
    pending = plane.send(fetch(entry(0), wait_ms=500), 12)
    pending.abandon()
    assert (len(plane.purgatory), plane.purgatory.cancelled_total, plane.partition("t").watched) == (0, 1, 0)
    produce(plane, batch_of(b"a"))
    plane.advance(600)
    assert not pending.done


def test_a_poll_waits_for_min_bytes_of_all_its_partitions() -> None:
    plane = DataPlane()
    plane.topic("t", 2)
    size = len(batch_of(b"a"))
    pending = plane.send(fetch(entry(0), entry(0, 1), wait_ms=500, min_bytes=2 * size), 12)
    plane.call(request(("t", 0, batch_of(b"a"))), 11)
    assert not pending.done
    plane.call(request(("t", 1, batch_of(b"b"))), 11)
    assert [values_in(data.records) for data in pending.response.responses[0].partitions] == [[(0, b"a")], [(0, b"b")]]


def test_a_partition_beyond_its_limit_counts_as_the_limit() -> None:
    """Only the first batch fits into the partition's limit, and has fewer bytes than min_bytes. The fetch returns at
    once, because waiting would not add bytes.
    """
    plane = plane_with(batch_of(b"a" * 100), batch_of(b"b" * 100))
    response = plane.send(fetch(entry(0, most=250), wait_ms=500, min_bytes=250), 12)
    assert values_in(data_of(response).records) == [(0, b"a" * 100)]


def test_a_poll_of_a_deleted_topic_gets_an_error() -> None:
    plane = plane_with()
    pending = plane.send(fetch(entry(0), wait_ms=500), 12)
    plane.partitions.on_topic_deleted(plane.topics["t"])
    assert data_of(pending.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert data_of(plane.call(fetch(entry(0)), 12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_poll_below_a_new_log_start_gets_an_error() -> None:
    """DeleteRecords completes parked fetches below the new log start with OFFSET_OUT_OF_RANGE."""
    plane = plane_with(batch_of(b"a"), batch_of(b"b"))
    pending = plane.send(fetch(entry(1), wait_ms=500, min_bytes=1000), 12)
    plane.partition("t").delete_before(2)
    plane.commit()
    assert data_of(pending.response).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_poll_with_an_error_completes_at_once() -> None:
    plane = plane_with()
    response = plane.send(fetch(entry(0), entry(0, 9), wait_ms=500), 12)
    assert [data.error_code for data in response.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_request_without_partitions_completes_at_once() -> None:
    assert plane_with().send(fetch(wait_ms=500), 12) == FetchResponse()


# ---------------------------------------------------------------- isolation


def test_committed_readers_stop_at_the_first_open_transaction_and_skip_aborted_ones() -> None:
    """Reads two open transactions at both isolation levels (KIP-98). Reads again after the first one has aborted, and
    after the second one has committed.
    """
    plane = plane_with(batch_of(b"0"), transactional(), transactional(producer=(8, 0)), batch_of(b"3"))
    partition = plane.partition("t")

    def seen(committed: bool) -> tuple[list[int], list[tuple[int, int]] | None, int]:
        data = data_of(plane.call(fetch(entry(0), committed=committed), 12))
        aborted = data.aborted_transactions
        return (
            [offset for offset, _ in values_in(data.records)],
            None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
            data.last_stable_offset,
        )

    assert seen(True) == ([0], [], 1)
    assert seen(False) == ([0, 1, 2, 3], None, 1)
    partition.append_marker(7, 0, 0, False, WALL_MS)
    assert partition.last_stable_offset == 1, "a marker counts when it is durable"
    plane.commit()
    assert seen(True) == ([0, 1], [(7, 1)], 2)
    partition.append_marker(8, 0, 0, True, WALL_MS)
    plane.commit()
    assert seen(True) == ([0, 1, 2, 3], [(7, 1)], 6)
    behind = data_of(plane.call(fetch(entry(5), committed=True), 12)).aborted_transactions
    assert (behind is None, len(behind or ())) == (False, 0)


@pytest.mark.parametrize("with_aborted", [False, True])
def test_a_committed_reader_gets_no_list_of_aborted_transactions_if_no_batch_fits(with_aborted: bool) -> None:
    """As in Kafka, the list is null if the partition's limit is too small for the batch. The list is empty if this
    limit is 0, or at the end of the log.
    """
    plane = plane_with(transactional() if with_aborted else batch_of(b"0"))
    if with_aborted:
        plane.partition("t").append_marker(7, 0, 0, False, WALL_MS)
        plane.commit()
    end = 2 if with_aborted else 1
    for most, offset, expected in ((1, 0, None), (0, 0, 0), (1, end, 0)):
        # The first partition gets the batch that a response always has.
        response = plane.call(fetch(entry(0), entry(offset, most=most), committed=True), 12)
        data = data_of(response, 1)
        aborted = data.aborted_transactions
        assert (data.error_code, data.records) == (0, b"")
        assert (None if aborted is None else len(aborted)) == expected


def test_the_marker_completes_a_read_committed_poll() -> None:
    plane = plane_with(transactional())
    pending = plane.send(fetch(entry(0), wait_ms=500, committed=True), 12)
    produce(plane, transactional(1), tid="tid")
    assert not pending.done
    plane.partition("t").append_marker(7, 0, 0, False, WALL_MS)
    plane.commit()
    data = data_of(pending.response)
    assert data.aborted_transactions == [AbortedTransaction(producer_id=7, first_offset=0)]
    assert data.last_stable_offset == 3


# ---------------------------------------------------------------- epochs


def epochs() -> DataPlane:
    """Makes a log with records of epochs 0 and 1, on a node in epoch 2."""
    plane = plane_with(batch_of(b"0"), batch_of(b"1"))
    plane.restart()
    produce(plane, batch_of(b"2"))
    plane.restart()
    assert plane.partition("t").leader_epoch == 2
    return plane


def test_leader_epochs_are_checked_and_name_the_leader() -> None:
    """From v16 on, the response to a reader with an old epoch names the leader (KIP-320, KIP-951)."""
    plane = epochs()
    for epoch, code in ((1, ErrorCode.FENCED_LEADER_EPOCH), (2, 0), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert data_of(plane.call(fetch(entry(0, epoch=epoch)), 12)).error_code == code
    requested = FetchRequest(topics=[FetchTopic(topic_id=plane.topics["t"].topic_id, partitions=[entry(0, epoch=1)])])
    response = plane.call(requested, 16)
    assert (data_of(response).current_leader.leader_id, data_of(response).current_leader.leader_epoch) == (1, 2)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(1, "localhost", 9092)]


def test_a_diverging_log_is_in_the_response() -> None:
    """The response has the end offset of the largest common epoch, at which the reader truncates its log."""
    plane = epochs()
    diverged = [(3, 0, EpochEndOffset(epoch=0, end_offset=2)), (9, 1, EpochEndOffset(epoch=1, end_offset=3))]
    for offset, last_epoch, expected in diverged:
        data = data_of(plane.call(fetch(entry(offset, last_epoch=last_epoch), wait_ms=500), 12))
        assert (data.error_code, data.diverging_epoch, data.records) == (0, expected, b"")
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)
    fitting = data_of(plane.call(fetch(entry(2, last_epoch=1)), 12))
    assert (fitting.diverging_epoch, values_in(fitting.records)) == (EpochEndOffset(), [(2, b"2")])
    unknown = data_of(plane.call(fetch(entry(2, last_epoch=7)), 12))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ---------------------------------------------------------------- coordinator's topics


def test_a_coordinators_topic_is_read_like_any_other() -> None:
    """A record that a shard writes to `__consumer_offsets` completes the poll of a consumer that reads this topic."""
    plane = DataPlane()
    plane.topic("__consumer_offsets", cleanup_policy="compact")
    partition = plane.partition("__consumer_offsets")
    pending = plane.send(fetch(entry(0), topic="__consumer_offsets", wait_ms=500), 12)
    assert partition.append(bytearray(batch_of(b"fact", keys={0: b"k"})), 4) == 0
    assert not pending.done
    plane.commit()
    records = data_of(pending.response).records
    assert (values_in(records), parse_header(records).partition_leader_epoch) == ([(0, b"fact")], 4)
    assert [base for base, _ in partition.log.batches()] == [0]


def test_long_fetches_are_tried_in_slices_once_for_all_appends() -> None:
    """Without slices, each append would try all parked fetches at once, which takes 0.4 s for 300 fetches of 5,000
    partitions.
    """
    plane = DataPlane()
    plane.topic("t", partitions=MAX_AT_ONCE + 1)
    plane.slices.requests.enabled = True
    entries = [entry(0, index) for index in range(MAX_AT_ONCE + 1)]
    size = len(batch_of(b"v"))
    few = plane.send(fetch(*entries[:MAX_AT_ONCE], wait_ms=500, min_bytes=2 * size), 12)
    long = [plane.send(fetch(*entries, wait_ms=500, min_bytes=2 * size), 12) for _ in range(3)]
    produce(plane, batch_of(b"v"))
    produce(plane, batch_of(b"v"))
    assert [pending.done for pending in (few, *long)] == [True, False, False, False]
    done = []
    while plane.slices.step():
        done.append(sum(pending.done for pending in long))
    assert done == [1, 2, 3]
    assert (len(plane.purgatory), plane.partition("t").watched) == (0, 0)
    late = plane.send(
        fetch(*[entry(2 if not index else 0, index) for index in range(MAX_AT_ONCE + 1)], wait_ms=500), 12
    )
    produce(plane, batch_of(b"v"))
    while plane.slices.step():
        pass
    assert late.done


def test_a_round_tries_parked_fetches_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bound, a request that appends to 100 partitions would take 7 s if 1,000 parked fetches read all of
    them.
    """
    plane = DataPlane()
    partitions = MAX_AT_ONCE
    fetches = 3 * MAX_IN_A_ROUND // partitions
    plane.topic("t", partitions=partitions)
    plane.slices.requests.enabled = True
    entries = [entry(0, index) for index in range(partitions)]
    records = batch_of(b"v")
    enough = (partitions + 1) * len(records)
    pending = [plane.send(fetch(*entries, wait_ms=500, min_bytes=enough), 12) for _ in range(fetches)]
    looks = []
    try_complete_now = DelayedFetch.try_complete_now

    def counted(operation: DelayedFetch) -> bool:
        looks.append(len(operation.items))
        return try_complete_now(operation)

    monkeypatch.setattr(DelayedFetch, "try_complete_now", counted)
    plane.send(request(*[("t", index, records) for index in range(partitions)]), 11)
    plane.commit()
    assert sum(looks) == MAX_IN_A_ROUND
    while plane.slices.step():
        pass
    assert sum(looks) == MAX_IN_A_ROUND + fetches * partitions, (
        "each fetch is tried once more, for all appends together"
    )
    assert not any(one.done for one in pending)
    produce(plane, records)
    while plane.slices.step():
        pass
    assert all(one.done for one in pending)
    assert (len(plane.purgatory), plane.partition("t").watched) == (0, 0)


def test_a_fetch_that_is_due_may_time_out_or_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = DataPlane()
    plane.topic("t", partitions=MAX_AT_ONCE + 1)
    plane.slices.requests.enabled = True
    entries = [entry(0, index) for index in range(MAX_AT_ONCE + 1)]
    records = batch_of(b"v")
    forgotten, timed_out = (plane.send(fetch(*entries, wait_ms=500, min_bytes=1_000), 12) for _ in range(2))
    produce(plane, records)
    forgotten.abandon()
    plane.advance(500)
    assert timed_out.done
    assert not forgotten.done
    while plane.slices.step():
        pass
    assert len(plane.purgatory) == 0


def test_a_long_fetch_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = DataPlane()
    plane.topic("t", partitions=MAX_AT_ONCE + 1)
    plane.slices.requests.enabled = True
    entries = [entry(0, index) for index in range(MAX_AT_ONCE + 1)]
    pending = [plane.send(fetch(*entries, wait_ms=500), 12) for _ in range(2)]
    tries = []

    def try_complete_now(operation: DelayedFetch) -> bool:
        tries.append(operation)
        if len(tries) == 1:
            raise MemoryError
        return operation.force_complete()

    monkeypatch.setattr(DelayedFetch, "try_complete_now", try_complete_now)
    produce(plane, batch_of(b"v"))
    while plane.slices.step():
        pass
    assert [one.done for one in pending] == [False, True]
    monkeypatch.undo()
    produce(plane, batch_of(b"v"))
    while plane.slices.step():
        pass
    assert pending[0].done


def test_a_long_fetch_beyond_the_memory_of_parked_ones_gets_its_response_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kcore.broker.apis.fetch.MAX_WATCHED", 2 * MAX_AT_ONCE + 3)
    plane = DataPlane()
    plane.topic("t", partitions=MAX_AT_ONCE + 1)
    entries = [entry(0, index) for index in range(MAX_AT_ONCE + 1)]
    parked = [plane.send(fetch(*entries, wait_ms=500), 12) for _ in range(2)]
    response = plane.call(fetch(*entries, wait_ms=500), 12)
    assert [one.error_code for topic in response.responses for one in topic.partitions] == [0] * (MAX_AT_ONCE + 1)
    assert [one.done for one in parked] == [False, False]
    assert not plane.send(fetch(entry(0), wait_ms=500), 12).done


@pytest.mark.parametrize(("committed", "aborted"), [(False, False), (True, False), (True, True)])
def test_a_request_reads_a_bounded_number_of_logs(committed: bool, aborted: bool) -> None:
    """A client may name one partition many times in a request. Later responses have the remaining batches, as with the
    size limit.
    """
    plane = plane_with(transactional() if aborted else batch_of(b"0"))
    if aborted:
        plane.partition("t").append_marker(7, 0, 0, False, WALL_MS)
        plane.commit()
    response = plane.call(fetch(*[entry(0)] * (MAX_READS + 10), committed=committed), 12)
    sizes = [len(data.records) > 0 for data in response.responses[0].partitions]
    assert sizes == [True] * MAX_READS + [False] * 10
    assert {data.error_code for data in response.responses[0].partitions} == {0}


def test_a_partition_of_many_aborted_transactions_lists_those_of_the_read_producers() -> None:
    plane = plane_with()
    for producer_id in range(MAX_COMPLETE_LIST + 1):
        produce(plane, transactional(producer=(producer_id, 0)), tid="tid")
    for producer_id in range(MAX_COMPLETE_LIST + 1):
        plane.partition("t").append_marker(producer_id, 0, 0, False, WALL_MS)
    plane.commit()
    size = len(data_of(plane.call(fetch(entry(5, most=1), committed=True), 12)).records)
    data = data_of(plane.call(fetch(entry(5, most=2 * size), committed=True), 12))
    assert list(data.aborted_transactions) == [AbortedTransaction(producer_id=n, first_offset=n) for n in (5, 6)]


def test_a_response_has_a_bounded_number_of_batches() -> None:
    """Without the bound, a request for 1,450 partitions of 512 small batches each would take 0.6 s."""
    plane = plane_with()
    for _ in range(300):
        plane.send(request(("t", 0, batch_of(b"v"))), 11)
    plane.commit()
    entries = [entry(0)] * 100
    for wait_ms in (0, 1_000):
        response = plane.call(fetch(*entries, min_bytes=1 << 30, max_bytes=1 << 30, wait_ms=wait_ms), 12)
        assert isinstance(response, FetchResponse), "waiting would not add records"
        sizes = [len(data.records) > 0 for data in response.responses[0].partitions]
        assert sizes == [True] * 50 + [False] * 50


def test_a_try_of_a_parked_fetch_costs_as_much_as_the_batches_that_it_examines() -> None:
    """Without the bound, each append to a partition would try ten fetches that are 4,000 batches behind, which takes
    0.3 s.
    """
    plane = plane_with()
    for _ in range(MAX_AT_ONCE + 1):
        plane.send(request(("t", 0, batch_of(b"v"))), 11)
    plane.commit()
    plane.slices.requests.enabled = True
    pending = plane.send(fetch(entry(0), min_bytes=1 << 20, wait_ms=1_000), 12)
    operation = pending.operation
    assert operation.cost == MAX_AT_ONCE + 1
    produce(plane, batch_of(b"v"))
    assert operation.deferred
    plane.slices.finish()
    assert (operation.deferred, operation.watched) == (False, True)
    produce(plane, batch_of(b"v" * (1 << 19)))
    produce(plane, batch_of(b"v" * (1 << 19)))
    plane.slices.finish()
    assert pending.done
