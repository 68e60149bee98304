"""Transactions over partitions and groups of all nodes stay atomic if a node ends at any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kcore.log.errors import StoreUnavailableError, UnknownOutcomeError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore_ext.batch import parse_control, parse_header
from tests.cluster.world import STEP_MS, TIMING, Call, Client, ClusterWorld, Node, check
from tests.transaction.world import Identity, end_request, produce_request

TID = "payments"
GROUP = "group-of-payments"
PARTITIONS = 6


class Producer(Client):
    """A transactional producer that writes to every partition of `t`, and commits an offset of `GROUP`."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self.who = Identity(-1, -1)

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=TID, transaction_timeout_ms=60_000)
        response = self.retried(lambda: self.coordinator(TID, 1).send(request, 4), lambda response: response.error_code)
        self.who = Identity(response.producer_id, response.producer_epoch)

    def write(self, sequence: int = 0) -> None:
        pid, epoch = self.who
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TID,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(PARTITIONS)))],
        )
        self.retried(
            lambda: self.coordinator(TID, 1).send(added, 3),
            lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        for index in range(PARTITIONS):
            request = produce_request(TID, self.who, sequence, b"value %d" % index, topic="t", index=index)
            self.retried(
                lambda index=index, request=request: self.leader("t", index).send(request, 11),  # type: ignore[misc]
                lambda response: response.responses[0].partition_responses[0].error_code,
            )
        offsets = AddOffsetsToTxnRequest(transactional_id=TID, producer_id=pid, producer_epoch=epoch, group_id=GROUP)
        self.retried(lambda: self.coordinator(TID, 1).send(offsets, 3), lambda response: response.error_code)
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5 + sequence)
        commit = TxnOffsetCommitRequest(
            transactional_id=TID,
            group_id=GROUP,
            producer_id=pid,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        self.retried(
            lambda: self.coordinator(GROUP).send(commit, 3),
            lambda response: response.topics[0].partitions[0].error_code,
        )

    def end(self, commit: bool = True) -> None:
        self.retried(
            lambda: self.coordinator(TID, 1).send(end_request(TID, self.who, commit), 4),
            lambda response: response.error_code,
        )


def settle(world: ClusterWorld) -> None:
    """Runs until no partition has an open transaction."""
    for _ in range(400):
        open_ones = [
            (partition.topic, partition.index)
            for node in world.up
            if node.engine is not None
            for partition in node.engine.partitions
            if partition.last_stable_offset != partition.high_watermark or partition.recovering
        ]
        if not open_ones:
            return
        world.advance(STEP_MS)
    pytest.fail(f"open transactions in {open_ones}")


def outcome(world: ClusterWorld) -> tuple[set[bool], int]:
    """Returns the results in the markers of all partitions of `t` (True: commit), and the group's committed offset.

    Each partition has one record, and at least one marker. As in Kafka, a new coordinator of the transaction may write
    the markers again.
    """
    ends = set()
    for index in range(PARTITIONS):
        engine = world.leader("t", index).engine
        assert engine is not None
        partition = engine.partitions.get("t", index)
        assert partition is not None
        data, *markers = [batch for _, batch in partition.log.batches()]
        assert not parse_header(data).is_control
        assert markers, "the transaction has ended in every partition"
        ends |= {parse_control(marker).is_commit for marker in markers}
    return ends, Client(world).committed(GROUP)


def prepared_world(settings: dict[str, str] | None = None) -> tuple[ClusterWorld, Producer]:
    """Returns a cluster with an open transaction."""
    world = ClusterWorld(settings=settings)
    world.start()
    producer = Producer(world)
    producer.create("t", PARTITIONS)
    producer.begin()
    world.advance(3_000)
    producer.write()
    return world, producer


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_ends_on_every_node(commit: bool) -> None:
    world, producer = prepared_world()
    assert {world.leader("t", index).node_id for index in range(PARTITIONS)} == {1, 2, 3}
    producer.end(commit)
    settle(world)
    check(world)
    assert outcome(world) == ({commit}, 5 if commit else -1)
    assert "WriteTxnMarkersRequest" in world.network.carried
    assert "AddPartitionsToTxnRequest" in world.network.carried
    world.close()


def test_a_write_outside_its_transaction_is_refused_by_the_remote_coordinator() -> None:
    world, producer = prepared_world()
    producer.end()
    settle(world)
    index = next(i for i in range(PARTITIONS) if world.leader("t", i) is not producer.coordinator(TID, 1))
    late = produce_request(TID, producer.who, 1, b"late", topic="t", index=index)
    response = world.leader("t", index).send(late, 11).responses[0].partition_responses[0]
    assert response.error_code == ErrorCode.TRANSACTION_ABORTABLE
    world.close()


class Fault:
    """The end of a node at the `number`-th write to the store, either before the write or before its response."""

    def __init__(self, world: ClusterWorld, number: int, stored: bool) -> None:
        self.world = world
        self.left = number
        self.stored = stored
        self.dead: Node | None = None
        world.store.intercept = self

    def __call__(self, operation: str, node_id: int, stored: bool) -> None:
        if self.dead is not None and node_id == self.dead.node_id:
            raise StoreUnavailableError("the process is dead")
        if operation == "write" and stored is self.stored and self.dead is None:
            self.left -= 1
            if self.left < 0:
                self.dead = self.world.nodes[node_id]
                self.dead.paused = True
                raise UnknownOutcomeError("the process died")

    def finish(self) -> bool:
        """Removes the dead process if the fault has occurred."""
        self.world.store.intercept = None
        if self.dead is None:
            return False
        self.dead.kill()
        self.dead.paused = False
        return True


@pytest.mark.parametrize("stored", [False, True], ids=["not-stored", "stored"])
@pytest.mark.parametrize("number", range(5))
def test_a_commit_is_atomic_when_a_node_dies_at_any_write(number: int, stored: bool) -> None:
    world, producer = prepared_world()
    fault = Fault(world, number, stored)
    coordinator = producer.coordinator(TID, 1)
    coordinator.send(end_request(TID, producer.who, True), 4)
    world.advance(300)
    happened = fault.finish()
    world.advance(TIMING.ttl_ms + 2_000)
    producer.end()  # the client repeats its request until it gets a response
    settle(world)
    check(world)
    assert outcome(world) == ({True}, 5)
    assert happened or number > 2, "the first writes belong to the end of the transaction"
    world.close()


def loses(kind: str, number: int, is_response: bool) -> Callable[[Call], bool]:
    """Makes the network lose the `number`-th request of a type, or its response."""
    seen = []

    def lose(call: Call) -> bool:
        if type(call.request).__name__ != kind or call.is_response is not is_response or call.receiver < 0:
            return False
        seen.append(call)
        return len(seen) == number + 1

    return lose


@pytest.mark.parametrize("is_response", [False, True], ids=["request", "response"])
@pytest.mark.parametrize("number", range(2))
def test_a_lost_marker_request_is_repeated(number: int, is_response: bool) -> None:
    world, producer = prepared_world()
    world.network.lose = loses("WriteTxnMarkersRequest", number, is_response)
    producer.end()
    settle(world)
    world.advance(2_000)
    assert states(world) == {"COMPLETE_COMMIT"}
    assert outcome(world) == ({True}, 5)
    world.close()


def states(world: ClusterWorld) -> set[str]:
    """Returns the states of the transaction at its coordinator."""
    found: set[str] = set()
    for node in world.up:
        assert node.engine is not None
        transaction: Any = node.engine.transactions.get(TID)
        if transaction is not None:
            found.add(transaction.state.name)
    return found


def test_an_abandoned_transaction_is_aborted_by_the_next_coordinator() -> None:
    world, producer = prepared_world()
    producer.coordinator(TID, 1).kill()
    world.advance(90_000)
    settle(world)
    check(world)
    assert outcome(world) == ({False}, -1)
    world.close()
