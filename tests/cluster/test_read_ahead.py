"""Planned moves of coordinators: the next leader reads the log in advance, and its load continues where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.cluster import read_ahead
from kcore.log.errors import StoreUnavailableError
from kcore.log.interface import PartitionKey
from kcore.protocol.messages.offset_commit import OffsetCommitRequest
from kcore.runtime import loader
from kcore.runtime.shard import Shard
from tests.cluster.test_handover import lost, move
from tests.cluster.test_transactions import GROUP, Producer
from tests.cluster.world import STEP_MS, ClusterWorld, Node, check
from tests.kit import COMMIT_VERSION, commit

LATER = "group-in-the-same-shard"
RECORDS = 300
COMPACTING_MS = 60_000


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterWorld]:
    monkeypatch.setattr(loader, "SLICE_RECORDS", 20)
    monkeypatch.setattr(read_ahead, "SLICE_RECORDS", 20)
    monkeypatch.setattr(read_ahead, "RECORDS_PER_MS", 1)
    settings = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": "1",
        "kcore.snapshot.min.bytes": "1000",
    }
    world = ClusterWorld(settings=settings)
    world.start()
    yield world
    world.close()


class Move:
    """A planned move of the only partition of `__consumer_offsets`, which has an open transaction."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.client = Producer(world)
        self.client.create("t")
        for number in range(RECORDS):
            self.client.commit(f"group-{number % 10}", number)
        self.client.begin()
        self.client.write()
        self.source = self.client.coordinator(GROUP)
        self.target = next(node for node in world.up if node is not self.source)

    def plan(self) -> None:
        assert move(self.world, self.client, 0, (self.target.node_id,), "__consumer_offsets") == 0
        for _ in range(10):
            self.world.advance(STEP_MS)
            if followed(self.target):
                return

    def cancel(self) -> None:
        assert move(self.world, self.client, 0, None, "__consumer_offsets") == 0

    def finish(self) -> Shard[Any]:
        """Lets the move end; returns the shard on the next leader."""
        self.world.advance(read_ahead.MAX_WAIT_MS)
        assert self.client.coordinator(GROUP) is self.target
        return shard_of(self.target)

    def check_state(self, later: bool = True, timed_out: bool = False) -> None:
        """Compares the state of the coordinator on the next leader with the committed state."""
        assert self.client.committed(GROUP) == -1, "the transaction is open, or was aborted"
        if not timed_out:
            self.client.end()
            self.world.advance(1_000)
            assert self.client.committed(GROUP) == 5
        expected = {f"group-{number}": RECORDS - 10 + number for number in range(10)}
        if later:
            expected[LATER] = 77
        assert {group: self.client.committed(group) for group in expected} == expected
        check(self.world)


def shard_of(node: Node) -> Shard[Any]:
    assert node.engine is not None
    [shard] = node.engine.groups
    return shard


def key_of(node: Node) -> PartitionKey:
    assert node.engine is not None
    topic = node.engine.topics.by_name("__consumer_offsets")
    assert topic is not None
    return PartitionKey(topic.topic_id, 0)


def followed(node: Node) -> list[PartitionKey]:
    """Returns the keys of the partitions whose logs a node follows, except for the metadata log."""
    assert node.engine is not None
    log = node.engine.log
    return [key for key, handle in log._logs.items() if handle.owned_epoch < 0 and key.topic_id != bytes(15) + b"\x01"]


def test_the_next_leader_continues_after_the_records_that_it_read_ahead(world: ClusterWorld) -> None:
    moving = Move(world)
    moving.plan()
    assert moving.client.coordinator(LATER) is moving.source, "the source serves while the next leader reads ahead"
    moving.client.commit(LATER, 77)
    shard = moving.finish()
    assert shard.report.read_ahead > RECORDS - 1
    assert shard.report.records - shard.report.read_ahead >= 1, "the read-ahead lacks the record of the last commit"
    assert shard.report.records < RECORDS + 100, "nothing was replayed twice"
    moving.check_state()
    assert followed(moving.target) == []


def test_an_aborted_transaction_whose_marker_is_read_after_the_move_stays_aborted(world: ClusterWorld) -> None:
    moving = Move(world)
    moving.plan()
    moving.finish()
    moving.client.end(commit=False)
    world.advance(1_000)
    assert moving.client.committed(GROUP) == -1
    check(world)


def test_a_short_log_moves_at_once(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "SLICE_RECORDS", 10_000)
    moving = Move(world)
    moving.plan()
    world.advance(6 * STEP_MS)
    assert moving.client.coordinator(GROUP) is moving.target
    moving.check_state(later=False)


def test_a_log_that_was_compacted_meanwhile_is_read_from_its_start(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "RECORDS_PER_MS", 1e-9)
    monkeypatch.setattr(read_ahead, "MAX_WAIT_MS", 2 * COMPACTING_MS)
    moving = Move(world)
    moving.plan()
    assert moving.source.engine is not None
    before = moving.source.engine.log.open(key_of(moving.source)).cleaned_to
    moving.client.commit(LATER, 77)
    world.advance(COMPACTING_MS)
    assert moving.source.engine.log.open(key_of(moving.source)).cleaned_to > before, "the log was compacted"
    shard = moving.finish()
    assert shard.report.read_ahead == 0
    moving.check_state(timed_out=True)


@pytest.mark.parametrize("error", [StoreUnavailableError("no connection"), MemoryError()], ids=["store", "memory"])
@pytest.mark.parametrize("failing", [1, 2, 5])
def test_a_failed_read_ahead_costs_only_time(world: ClusterWorld, error: Exception, failing: int) -> None:
    moving = Move(world)
    reads = []

    def fail(operation: str, node_id: int, after: bool) -> None:
        if operation in ("look_up", "slice") and node_id == moving.target.node_id and not after:
            reads.append(operation)
            if len(reads) == failing:
                raise error

    world.store.intercept = fail
    moving.plan()
    moving.client.commit(LATER, 77)
    moving.finish()
    assert len(reads) >= failing
    moving.check_state()


def test_a_cancelled_move_leaves_nothing_behind(world: ClusterWorld) -> None:
    moving = Move(world)
    moving.plan()
    assert followed(moving.target) == [key_of(moving.target)]
    moving.cancel()
    world.advance(read_ahead.MAX_WAIT_MS)
    assert followed(moving.target) == []
    assert moving.client.coordinator(GROUP) is moving.source
    moving.client.commit(LATER, 77)
    moving.check_state()


def test_a_second_plan_reads_the_log_from_its_start(world: ClusterWorld) -> None:
    moving = Move(world)
    moving.plan()
    moving.cancel()
    world.advance(2 * STEP_MS)
    moving.client.commit(LATER, 77)
    moving.plan()
    assert moving.finish().report.read_ahead > RECORDS
    moving.check_state()


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_node_that_dies_while_the_log_is_read_ahead_loses_nothing(world: ClusterWorld, victim: str) -> None:
    moving = Move(world)
    moving.plan()
    moving.client.commit(LATER, 77)
    node = moving.source if victim == "source" else moving.target
    node.kill()
    world.advance(10_000)
    moving.check_state()
    node.start()
    world.advance(10_000)
    check(world)


def test_a_leader_that_is_fenced_while_it_waits_releases_the_partition(world: ClusterWorld) -> None:
    moving = Move(world)
    moving.plan()
    moving.client.commit(LATER, 77)
    moving.source.paused = True
    world.advance(10_000)
    moving.source.paused = False
    world.advance(2_000)
    moving.check_state()
    request: OffsetCommitRequest = commit("late", {("t", 0): 1})
    response = moving.source.send(request, COMMIT_VERSION)
    assert response.topics[0].partitions[0].error_code != 0


def test_a_lost_report_of_the_release_keeps_the_records_read_ahead(world: ClusterWorld) -> None:
    moving = Move(world)
    lost(world, "AlterPartitionRequest")
    moving.plan()
    moving.client.commit(LATER, 77)
    world.advance(2 * read_ahead.MAX_WAIT_MS)
    world.network.lose = lambda call: False
    shard = moving.finish()
    assert shard.report.read_ahead > RECORDS - 1
    moving.check_state()
