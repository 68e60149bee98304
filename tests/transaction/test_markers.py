"""The marker phase of transactions.

If all partitions are on the coordinator's node, the phase is a single commit. Otherwise the tests cover retries,
fencing, deleted topics and crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kcore.protocol.error_codes import ErrorCode as E
from kcore.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kcore.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kcore.protocol.topic_partition import PartitionTuple
from kcore.runtime import Pending
from kcore.transaction.local_markers import LocalMarkers
from kcore.transaction.markers import Marker, Results
from tests.transaction.world import Identity, World, end_request, produce_request


class Elsewhere:
    """Partitions of another node. The test sets the responses and when they arrive."""

    def __init__(self) -> None:
        self.calls: list[tuple[Marker, list[PartitionTuple], Callable[[Results], None]]] = []

    def write(self, marker: Marker, partitions: Collection[PartitionTuple], done: Callable[[Results], None]) -> None:
        self.calls.append((marker, sorted(partitions), done))

    def respond(self, world: World, codes: dict[PartitionTuple, E]) -> None:
        done = self.calls[-1][2]
        done(codes)
        world.settle()


def elsewhere(world: World) -> Elsewhere:
    """Moves every partition to another node."""
    remote = Elsewhere()
    for shard in world.engine.transactions.shards or ():
        shard.machine.services.markers = remote
    return remote


def open_transaction(world: World, tid: str = "a") -> Identity:
    who = world.begin(tid)
    assert world.add(tid, who, [("t", 0), ("t", 1)]) == [E.NONE, E.NONE]
    assert world.produce(tid, who, 0, b"x") == (E.NONE, 0)
    return who


def test_end_markers_and_completion_are_one_commit() -> None:
    """One commit contains the end, the markers and the completion. Before the commit, readers see no marker, and the
    client gets no response.
    """
    world = World()
    who = open_transaction(world)
    before = world.engine.pipeline.rounds
    response = world.start(end_request("a", who, True), 4)
    assert isinstance(response, Pending)
    assert not response.done
    assert world.end_offsets() == (0, 1)
    world.settle()
    assert response.done
    assert world.engine.pipeline.rounds == before + 1
    assert world.end_offsets() == (2, 2)
    assert world.log_states("a")[-2:] == [("PrepareCommit", 0, 0), ("CompleteCommit", 0, 0)]


def test_a_failed_commit_reverts_the_end_and_its_markers() -> None:
    """The commit of an EndTxn fails, and the client gets a retriable error.

    In the coordinator and in each partition, the transaction is open as before. A retry ends it.
    """
    world = World()
    who = open_transaction(world)
    assert world.add_offsets("a", who, "g") is E.NONE
    assert world.commit_offset("a", who, "g", 7) is E.NONE
    world.log.failures_left = 1
    assert world.end("a", who, True)[0] is E.NOT_COORDINATOR
    assert world.state("a") == "Ongoing"
    assert world.end_offsets() == (0, 1)
    assert world.committed() == []
    assert world.offset("g") == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert world.end("a", who, True)[0] is E.NONE
    assert world.committed() == [b"x"]
    assert world.offset("g") == (E.NONE, 7)


def test_an_addition_and_the_first_batch_are_one_commit() -> None:
    """If the commit of a Produce v12 fails, the transaction has not begun, and no partition has records."""
    world = World()
    who = world.begin("a")
    world.log.failures_left = 1
    response = world.start(produce_request("a", who, 0, b"x"), 12)
    world.settle()
    assert response.response.responses[0].partition_responses[0].error_code == E.KAFKA_STORAGE_ERROR
    assert world.state("a") == "Empty"
    assert world.end_offsets() == (0, 0)
    before = world.engine.pipeline.rounds
    assert world.produce("a", who, 0, b"x", version=12) == (E.NONE, 0)
    assert world.engine.pipeline.rounds == before + 1
    assert world.state("a") == "Ongoing"


def test_markers_of_another_node_complete_later() -> None:
    """EndTxn gets its response once the prepared end is durable.

    The transactional id is busy until every marker is written.
    """
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    assert world.end("a", who, True) == (E.NONE, who)
    marker, topic_partitions, _ = remote.calls[0]
    assert marker == Marker(who.producer_id, who.producer_epoch, True, 0, 0)
    assert topic_partitions == [("t", 0), ("t", 1)]
    assert world.state("a") == "PrepareCommit"
    assert world.init("a")[0] is E.CONCURRENT_TRANSACTIONS
    assert world.add("a", who, [("t", 0)]) == [E.CONCURRENT_TRANSACTIONS]
    assert world.end("a", who, True)[0] is E.CONCURRENT_TRANSACTIONS
    remote.respond(world, {("t", 0): E.NONE})
    assert world.state("a") == "PrepareCommit"
    remote.respond(world, {("t", 1): E.NONE})
    assert world.state("a") == "CompleteCommit"
    assert world.end("a", who, True)[0] is E.NONE


RETRIED = [
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
    E.NETWORK_EXCEPTION,
]


@pytest.mark.parametrize("code", RETRIED)
def test_markers_for_unreachable_partitions_are_retried(code: E) -> None:
    """Retries continue forever with growing delays. Partitions that have their marker are not retried."""
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    world.end("a", who, False)
    waits = []
    for _ in range(8):
        requested = len(remote.calls)
        remote.respond(world, {("t", 0): E.NONE, ("t", 1): code})
        waited = 0
        while len(remote.calls) == requested:
            world.advance(1)
            waited += 1
        waits.append(waited)
        assert remote.calls[-1][1] == [("t", 1)]
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    remote.respond(world, {("t", 1): E.NONE})
    assert world.state("a") == "CompleteAbort"


def test_no_marker_is_repeated_before_its_response() -> None:
    """A repeated marker that arrives after the completion would end the producer's next transaction."""
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    world.end("a", who, False)
    remote.respond(world, {("t", 0): E.NETWORK_EXCEPTION})
    world.advance(5_000)
    assert [topic_partitions for _, topic_partitions, _ in remote.calls] == [[("t", 0), ("t", 1)]]
    remote.respond(world, {("t", 1): E.NONE})
    world.advance(5_000)
    assert [topic_partitions for _, topic_partitions, _ in remote.calls] == [[("t", 0), ("t", 1)], [("t", 0)]]
    assert world.state("a") == "PrepareAbort"
    remote.respond(world, {("t", 0): E.NONE})
    assert world.state("a") == "CompleteAbort"


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_partitions_without_transactions_need_no_marker(code: E) -> None:
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    world.end("a", who, True)
    remote.respond(world, {("t", 0): code, ("t", 1): E.NONE})
    assert world.state("a") == "CompleteCommit"


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED, E.CORRUPT_MESSAGE])
def test_a_newer_coordinator_stops_the_markers_until_a_load(code: E) -> None:
    """A coordinator with a newer epoch owns the transaction. On this node, the transaction stays unchanged and its id
    stays busy until the shard is loaded again.
    """
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    world.end("a", who, True)
    remote.respond(world, {("t", 0): code, ("t", 1): E.NONE})
    world.advance(60_000)
    assert len(remote.calls) == 1
    assert world.init("a")[0] is E.CONCURRENT_TRANSACTIONS
    world.restart()
    assert world.state("a") == "CompleteCommit"


def test_partitions_of_a_deleted_topic_are_skipped() -> None:
    world = World(topics={"t": 2, "u": 1})
    who = open_transaction(world)
    assert world.add("a", who, [("u", 0)]) == [E.NONE]
    world.delete_topic("u")
    assert world.end("a", who, True)[0] is E.NONE
    assert world.state("a") == "CompleteCommit"
    assert world.committed() == [b"x"]


def test_a_topic_deleted_while_its_leader_is_away_is_skipped_too() -> None:
    world = World(topics={"t": 2, "u": 1})
    who = open_transaction(world)
    assert world.add("a", who, [("u", 0)]) == [E.NONE]
    remote = elsewhere(world)
    world.end("a", who, True)
    remote.respond(world, {("t", 0): E.NONE, ("t", 1): E.NONE, ("u", 0): E.UNKNOWN_TOPIC_OR_PARTITION})
    world.delete_topic("u")
    world.advance(100)
    assert world.state("a") == "CompleteCommit"


def test_a_crash_in_the_marker_phase_is_completed_at_the_load() -> None:
    """Recovery needs only the prepared end. Markers that exist already are written again without effect."""
    world = World()
    who = open_transaction(world)
    elsewhere(world)
    world.end("a", who, True)
    assert world.committed() == []
    world.restart()
    assert world.state("a") == "CompleteCommit"
    assert world.committed() == [b"x"]
    assert world.end_offsets() == (2, 2)
    world.restart()
    assert world.end_offsets() == (2, 2)


def test_a_marker_of_a_failed_round_is_written_again_after_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round fails that contains the marker of one partition. The other partition is not ready yet, so the round has
    no record of the coordinator.

    After a load, the coordinator writes both markers and completes the transaction.
    """
    world = World()
    who = open_transaction(world)
    shards = list(world.engine.transactions.shards or ())
    markers = [shard.machine.services.markers for shard in shards]
    elsewhere(world)
    world.end("a", who, True)
    original, away = LocalMarkers.put, [E.NOT_LEADER_OR_FOLLOWER]

    def put(self: LocalMarkers, partition: Any, *values: Any) -> E:
        if away and partition.index == 1:
            world.log.failures_left = 1  # of this round
            return away.pop()
        return original(self, partition, *values)

    monkeypatch.setattr(LocalMarkers, "put", put)
    for shard, local in zip(shards, markers, strict=True):
        shard.machine.services.markers = local
        shard.reload_after_round(MemoryError())
    world.engine.commit()
    world.settle()
    world.advance(5_000)
    assert not away
    assert world.log.failures_left == 0
    assert world.state("a") == "CompleteCommit"
    assert world.end_offsets() == (2, 2)
    assert world.committed() == [b"x"]


def test_a_response_to_an_earlier_load_is_ignored() -> None:
    world = World()
    who = open_transaction(world)
    remote = elsewhere(world)
    world.end("a", who, True)
    world.restart()
    states = world.log_states("a")
    remote.respond(world, {("t", 0): E.NONE, ("t", 1): E.NONE})
    assert world.log_states("a") == states


def test_markers_carry_the_coordinators_epoch() -> None:
    """A partition refuses the marker of a coordinator with an older epoch."""
    world = World()
    who = open_transaction(world)
    assert world.mark(who, True, coordinator_epoch=5) is E.NONE
    assert world.mark(who, True, coordinator_epoch=4) is E.TRANSACTION_COORDINATOR_FENCED
    assert world.end("a", who, True)[0] is E.NONE
    assert world.state("a") == "PrepareCommit"


def test_a_manual_marker_ends_pending_offsets() -> None:
    """A WriteTxnMarkers request for a group's partition is applied to the group and written to the log."""
    world = World()
    who = world.begin("a")
    assert world.commit_offset("a", who, "g", 3, version=5) is E.NONE
    assert world.offset("g") == (E.UNSTABLE_OFFSET_COMMIT, -1)
    topic_partitions = [(topic.topic, index) for topic in world.describe("a").topics for index in topic.partitions]
    assert world.mark(who, True, *topic_partitions[0]) is E.NONE
    assert world.offset("g") == (E.NONE, 3)
    assert world.mark(who, True, "absent") is E.UNKNOWN_TOPIC_OR_PARTITION
    world.restart()
    assert world.offset("g") == (E.NONE, 3)


def test_a_marker_needs_a_producer_id() -> None:
    world = World()
    end_offset = world.engine.partitions.get("t", 0).log.end_offset  # type: ignore[union-attr]
    assert world.mark(Identity(-1, 3), True, "t") is E.UNKNOWN_SERVER_ERROR
    assert world.mark(Identity(-1, 3), True, "absent") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert world.engine.partitions.get("t", 0).log.end_offset == end_offset  # type: ignore[union-attr]


def test_a_marker_without_partitions_is_left_out_of_the_response() -> None:
    world = World()
    markers = [
        WritableTxnMarker(producer_id=7, topics=[]),
        WritableTxnMarker(producer_id=8, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[])]),
        WritableTxnMarker(
            producer_id=9,
            topics=[
                WritableTxnMarkerTopic(name="t", partition_indexes=[]),
                WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
            ],
        ),
    ]
    (marker,) = world.call(WriteTxnMarkersRequest(markers=markers), 1).markers
    assert (marker.producer_id, [topic.name for topic in marker.topics]) == (9, ["absent"])


def test_a_coordinators_partition_handles_markers_like_any_other() -> None:
    """A partition of `__consumer_offsets` accepts a marker for a producer that has never written to it, like any
    partition.
    """
    world = World({"offsets.topic.num.partitions": 1})
    for producer_id in (76, 77):
        for topic in ("t", "__consumer_offsets"):
            assert world.mark(Identity(producer_id, 3), True, topic, coordinator_epoch=2) is E.NONE

    def known() -> list[dict[int, Any]]:
        found = [world.engine.partitions.get(topic, 0) for topic in ("t", "__consumer_offsets")]
        return [{pid: entry.state() for pid, entry in part.producers.entries.items()} for part in found if part]

    before = known()
    assert before[0] == before[1]
    assert set(before[0]) == {76, 77}
    world.restart()
    assert known() == before


def test_markers_between_decisions_of_a_round_keep_the_logs_order() -> None:
    """A round has normal records, transactional records and a marker. The node's state is then the same as after a load
    of the log.
    """
    world = World({"offsets.topic.num.partitions": 1})
    who = world.begin("a")
    other = world.begin("b")
    requests: list[Any] = []
    for tid, producer, offset in (("a", who, 5), ("b", other, 6), ("a", who, 7)):
        requests.append((tid, producer, offset))
    from kcore.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

    for tid, producer, offset in requests:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        world.start(
            TxnOffsetCommitRequest(
                transactional_id=tid,
                group_id="g",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
            ),
            5,
        )
    world.start(end_request("a", who, True), 5)
    world.start(end_request("b", other, True), 5)
    world.settle()
    assert world.offset("g") == (E.NONE, 7)
    world.restart()
    assert world.offset("g") == (E.NONE, 7)


@pytest.mark.parametrize("version", [3, 4])
def test_a_topic_without_partitions_is_left_out_of_an_addition(version: int) -> None:
    world = World()
    who = world.begin("a")
    topics = [
        AddPartitionsToTxnTopic(name="t", partitions=[0]),
        AddPartitionsToTxnTopic(name="t", partitions=[]),
    ]
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="a", producer_id=who.producer_id, producer_epoch=who.producer_epoch, topics=topics
    )
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="a",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=topics,
    )
    if version >= 4:
        request = AddPartitionsToTxnRequest(transactions=[transaction])
    response = world.call(request, version)
    results = (
        response.results_by_topic_v3_and_below if version < 4 else response.results_by_transaction[0].topic_results
    )
    assert [(topic.name, len(topic.results_by_partition)) for topic in results] == [("t", 1)]
