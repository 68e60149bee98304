"""The snapshot of a coordinator's partition is its compacted log: recovery from the snapshot, crashes and requests
during a compaction.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kcore.broker.compaction import cleaner, schedule
from kcore.broker.data.partition import Partition
from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.group.shard import GroupShard
from kcore.log import MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine, SimulatedCrashError
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.runtime import Outcome, Pending, Record, RequestContext, Shard
from kcore.runtime.loader import SLICE_RECORDS, Replay
from kcore.runtime.shard_state import ShardState
from kcore_ext.batch import parse_header
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

CLEANER_MS = 15_000
DAY_MS = 86_400_000
PARTITIONS = 300


class Node:
    """An engine on an in-memory storage that survives a restart of the engine."""

    def __init__(self, **settings: Any) -> None:
        self.settings = {
            "offsets.topic.num.partitions": 1,
            "kcore.snapshot.min.bytes": 1,
            "kcore.snapshot.live.ratio": 0.0,
            "log.cleaner.backoff.ms": CLEANER_MS,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.storage = MemoryStorage()
        self.clock = ManualClock(wall_ms=1_700_000_000_000)
        self.start()
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("t", PARTITIONS), ("u", 3))
        ]
        assert {topic.error_code for topic in self.call(CreateTopicsRequest(topics=topics), 7).topics} == {0}

    def start(self) -> None:
        self.log = FaultInjectingEngine(MemoryLogEngine(self.storage))
        self.engine = Engine(self.log, Config.of(self.settings), self.clock)

    def restart(self) -> None:
        self.engine.close()
        self.start()

    @property
    def shard(self) -> Shard[GroupShard]:
        (shard,) = self.engine.groups
        return shard

    @property
    def partition(self) -> Partition:
        found = self.engine.partitions.get(CONSUMER_OFFSETS, 0)
        assert found is not None
        return found

    def call(self, request: Any, version: int) -> Any:
        response = self.engine.submit(RequestContext(version), request)
        self.engine.commit()
        return response.response if isinstance(response, Pending) else response

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)],
            )
            for (topic, partition), offset in offsets.items()
        ]
        response = self.call(OffsetCommitRequest(group_id=group, topics=topics), 8)
        assert {one.error_code for topic in response.topics for one in topic.partitions} == {0}

    def delete(self, group: str, topic: str, partition: int) -> None:
        requested = OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        assert self.call(OffsetDeleteRequest(group_id=group, topics=[requested]), 0).error_code == 0

    def commit_in_transaction(self, producer_id: int, group: str, topic: str, partition: int, offset: int) -> None:
        value = OffsetAndMetadata(-1, offset, -1, "", self.clock.wall_ms(), -1, bytes(16))
        records = [Record(CommitKey(group, topic, partition), value, 4)]
        self.shard.perform(lambda: Outcome(records, producer_id=producer_id, producer_epoch=0))
        self.engine.commit()

    def end(self, producer_id: int, commit: bool) -> None:
        assert self.shard.append_marker(producer_id, 0, 0, commit) == 0
        self.engine.commit()

    def state(self, machine: GroupShard | None = None) -> dict[str, Any]:
        machine = machine or self.shard.machine
        store = machine.offsets
        return {
            "groups": sorted(machine.groups),
            "offsets": {
                (group, topic, partition): entry
                for group in store.groups()
                for topic, partitions in store.topics(group).items()
                for partition, entry in partitions.items()
            },
            "count": store.offset_count,
            "pending": {
                (producer_id, group, topic, partition): store.pending(producer_id, group, topic, partition)
                for group in store.groups()
                for topic, partitions in store.pending_topics(group).items()
                for partition, producers in partitions.items()
                for producer_id in producers
            },
        }

    def replayed(self) -> dict[str, Any]:
        """Replays the current log and returns the resulting state."""
        machine = self.shard.factory(self.shard.machine.context)
        for _ in Replay(machine).run(self.partition.log):
            pass
        return self.state(machine)

    def compact(self) -> None:
        self.engine.advance(CLEANER_MS)


def busy(node: Node, seed: int, turns: int = 150) -> None:
    """Runs commits, deletions and transactions of some groups. Some transactions stay open."""
    chance = random.Random(seed)
    open_ = set()
    for _ in range(turns):
        group, topic, partition = f"g{chance.randrange(4)}", chance.choice(["t", "u"]), chance.randrange(3)
        what = chance.random()
        producer_id = chance.randrange(10, 13)
        if what < 0.6:
            node.commit(group, {(topic, partition): chance.randrange(1000)})
        elif what < 0.7:
            if group in node.shard.machine.groups:
                node.delete(group, topic, partition)
        elif what < 0.85:
            node.commit_in_transaction(producer_id, group, topic, partition, chance.randrange(1000))
            open_.add(producer_id)
        elif producer_id in open_:
            node.end(producer_id, chance.random() < 0.7)
            open_.discard(producer_id)


@pytest.mark.parametrize("seed", range(6))
def test_compaction_keeps_the_state_whatever_is_open(seed: int) -> None:
    node = Node()
    for turn in range(4):
        busy(node, seed * 10 + turn)
        before = node.state()
        assert node.replayed() == before
        node.compact()
        assert node.partition.log.cleaned_to > 0
        assert (node.state(), node.replayed()) == (before, before)
        node.restart()
        assert node.state() == before
    assert node.log.verify(deep=True) == []


def test_pending_offsets_of_open_transactions_are_kept_as_written() -> None:
    """Compaction ends below the first offset of the earliest open transaction. All later batches stay unchanged."""
    node = Node()
    for number in range(20):
        node.commit("g", {("t", 0): number})
    first_open = node.partition.high_watermark
    node.commit_in_transaction(10, "g", "t", 1, 77)
    for number in range(20):
        node.commit("g", {("t", 0): number})
    tail = [batch for base, batch in node.partition.log.batches() if base >= first_open]
    node.compact()
    assert node.partition.log.cleaned_to == first_open
    assert [batch for base, batch in node.partition.log.batches() if base >= first_open] == tail
    node.restart()
    assert set(node.state()["pending"]) == {(10, "g", "t", 1)}
    node.end(10, True)
    assert node.shard.machine.offsets.get("g", "t", 1).committed_offset == 77  # type: ignore[union-attr]
    node.compact()
    assert node.partition.log.cleaned_to > first_open + 20
    node.restart()
    assert node.shard.machine.offsets.get("g", "t", 1).committed_offset == 77  # type: ignore[union-attr]


def test_recovery_reads_live_records_only() -> None:
    node = Node()
    read = []
    for _ in range(5):
        for number in range(200):
            node.commit("g", {("t", number % 5): number})
        node.compact()
        node.restart()
        read.append(node.engine.recovery.records)
    assert max(read) <= 5 + 1 + 1, f"five offsets live, and one record more in the last batch: {read}"


def test_tombstones_are_removed_a_day_after_a_pass_first_saw_them() -> None:
    node = Node()
    node.commit("g", {("t", number): number for number in range(5)})
    for number in range(5):
        node.delete("g", "t", number)
    node.commit("other", {("t", 0): 1})
    node.commit("other", {("t", 1): 1})
    node.compact()
    node.restart()
    assert node.engine.recovery.records == 7
    node.commit("other", {("t", 1): 2})
    node.compact()
    node.engine.advance(DAY_MS)
    node.restart()
    assert (node.engine.recovery.records, sorted(node.state()["offsets"])) == (
        3,
        [("other", "t", 0), ("other", "t", 1)],
    )


def test_a_crash_in_any_commit_of_a_pass_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction pass crashes at each of its commits, before or after the commit is durable. A restarted node has the
    same state and completes the compaction.
    """
    monkeypatch.setattr(schedule, "CompactionRules", partial(cleaner.CompactionRules, slice_records=500))
    crashes = 0
    for after in (False, True):
        nth = 1
        while True:
            node = Node()
            busy(node, 5, 400)
            before = node.state()
            node.log.crash_commit(nth, after)
            try:
                node.compact()
                crashed = nth > node.log.commit_count
            except SimulatedCrashError:
                crashed = True
            if not crashed:
                assert node.state() == before
                break
            crashes += 1
            node.start()
            assert node.state() == before
            assert node.log.verify(deep=True) == []
            node.compact()
            assert (node.state(), node.replayed()) == (before, before)
            nth += 1
            if nth > 12:
                break
    assert crashes >= 4, "the pass has several commits"


def test_a_failed_commit_of_a_pass_changes_nothing() -> None:
    node = Node()
    busy(node, 3, 300)
    before = node.state()
    stored = list(node.partition.log.batches())
    node.log.fail_commit()
    node.compact()
    assert (node.state(), list(node.partition.log.batches())) == (before, stored)
    node.compact()
    assert node.partition.log.cleaned_to > 0
    assert (node.state(), node.replayed()) == (before, before)


def steps(node: Node) -> Iterator[None]:
    """Runs a compaction pass as an event loop does, with a commit of requests after each slice. Yields before each
    commit.
    """
    node.clock.advance(CLEANER_MS)
    node.engine.fire_timers()
    while node.engine.slices.step():
        yield
        node.engine.commit()


def test_requests_are_served_during_a_pass() -> None:
    node = Node()
    for number in range(6_000):
        node.commit("g", {("t", number % 50): number})
    log = node.partition.log
    sizes = []
    served = 0
    before = {key: entry.committed_offset for key, entry in node.state()["offsets"].items()}
    for _ in steps(node):
        served += 1
        node.commit("h", {("t", served): served})
        sizes.append(log.cleaned_to)
    moved = [later - earlier for earlier, later in pairwise(sizes)]
    surveys, removals = 2 * 6_000 // cleaner.SLICE_RECORDS, 6_000 // cleaner.SLICE_REMOVED
    assert served >= surveys + removals, "a record and its batch count as two units"
    assert max(moved) <= cleaner.SLICE_RECORDS // 2 + 1, "the number of records in a slice is bounded for any log"
    now = {key: entry.committed_offset for key, entry in node.state()["offsets"].items()}
    assert now == before | {("h", "t", number): number for number in range(1, served + 1)}
    node.restart()
    assert {key: entry.committed_offset for key, entry in node.state()["offsets"].items()} == now


def test_a_pass_runs_only_when_enough_records_are_new() -> None:
    node = Node(kcore_snapshot_min_bytes=20_000, kcore_snapshot_live_ratio=2.0)

    def write(size_bytes: int, distinct: int) -> None:
        end = node.partition.log.size_bytes() + size_bytes
        while node.partition.log.size_bytes() < end:
            node.commit("g", {("t", write.count % distinct): 1})  # type: ignore[attr-defined]
            write.count += 1  # type: ignore[attr-defined]

    write.count = 0  # type: ignore[attr-defined]
    write(15_000, PARTITIONS)
    node.compact()
    assert node.partition.log.cleaned_to == 0, "the new part is smaller than the minimum"
    write(15_000, PARTITIONS)
    node.compact()
    cleaned_to, clean = node.partition.log.cleaned_to, node.partition.log.size_bytes()
    assert cleaned_to > 0
    write(int(1.5 * clean), 10)
    node.compact()
    assert node.partition.log.cleaned_to == cleaned_to, "the new part is less than twice the live records"
    write(clean, 10)
    node.compact()
    assert node.partition.log.cleaned_to > cleaned_to


def test_replaying_a_batch_equals_replaying_its_records() -> None:
    """Compares `replay_run` of group shards with `decode` and `replay`."""

    class OneByOne:
        def __init__(self, machine: GroupShard) -> None:
            self.decode, self.replay, self.replay_marker = machine.decode, machine.replay, machine.replay_marker

    node = Node()
    for seed in range(5):
        busy(node, seed, 100)
        machine = node.shard.factory(node.shard.machine.context)
        replay = Replay(OneByOne(machine))
        for _ in replay.run(node.partition.log):
            pass
        assert node.state(machine) == node.replayed() == node.state()
        assert replay.report.records > 0
        node.compact()


def test_a_start_reads_a_coordinators_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single pass over the log rebuilds the shard's state and the partition's producers, including open
    transactions.
    """
    node = Node()
    for number in range(3):
        node.commit("g", {("t", number): number})
    node.commit_in_transaction(7, "g", "t", 5, 50)
    node.commit_in_transaction(8, "g", "t", 6, 60)
    node.end(8, True)
    expected, opened = node.state(), node.partition.producers.open_transactions
    entries = {key: entry.state() for key, entry in node.partition.producers.entries.items()}
    stable = node.partition.last_stable_offset
    reads: list[tuple[int, int]] = []
    slice_of = MemoryStorage.slice

    def counted(self: MemoryStorage, number: int, offset: int, *bounds: int) -> list[tuple[int, bytes]]:
        reads.append((number, offset))
        return slice_of(self, number, offset, *bounds)

    monkeypatch.setattr(MemoryStorage, "slice", counted)
    node.restart()
    assert len(reads) == len(set(reads)) == 2, "the metadata and the offsets, each in one piece"
    assert node.state() == expected
    partition = node.partition
    assert not partition.recovering
    assert partition.producers.open_transactions == opened == {7: 3}
    assert {key: entry.state() for key, entry in partition.producers.entries.items()} == entries
    assert partition.last_stable_offset == stable == 3


def test_a_failed_load_leaves_the_recovery_to_the_partition() -> None:
    """A shard fails to load after it has read a part of the log. The partition then reads its log itself to recover its
    producers and open transactions.
    """
    node = Node()
    node.commit_in_transaction(7, "g", "t", 5, 50)
    node.commit("g", {("t", 1): 1})
    node.engine.close()
    factory = GroupShard.replay

    def fails(self: GroupShard, *record: Any) -> None:
        raise RuntimeError("a bug")

    GroupShard.replay = fails  # type: ignore[method-assign]
    try:
        node.start()
    finally:
        GroupShard.replay = factory  # type: ignore[method-assign]
    assert node.shard.state is ShardState.FAILED
    assert node.partition.recovering
    node.partition.finish_recovery()
    assert node.partition.producers.open_transactions == {7: 0}


def test_records_of_a_merged_batch_are_not_replayed_twice() -> None:
    """While a shard loads, compaction merges several batches into one. The merged batch contains records that the load
    has already replayed, and later records. The load must replay only the later ones.
    """

    class Machine:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def decode(self, key: Any, value: Any) -> Any:
            return key, value

        def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
            self.seen.append(offset)

    class Merged:
        def __init__(self, batches: list[tuple[int, bytes]]) -> None:
            self.all = batches

        def runs(self, start: int | None = None) -> Iterator[list[tuple[int, bytes]]]:
            assert start is None
            return iter([self.all])

    node = Node()
    for number in range(30):
        node.commit("g", {("t", number): number})
    old = list(node.partition.log.batches())[:10]
    node.compact()
    new = list(node.partition.log.batches())
    assert parse_header(new[0][1]).last_offset >= 20, "the batches are not merged"
    machine = Machine()
    replay = Replay(machine)
    for _ in replay.run(Merged([*old, *new])):
        pass
    assert machine.seen == list(range(30))
    assert replay.report.records < SLICE_RECORDS
