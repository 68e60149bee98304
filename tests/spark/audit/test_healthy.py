"""Healthy logs have no errors: logs of a real broker and of the engine, complete, compacted or truncated."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from kcore.broker.compaction.cleaner import CompactionPass, CompactionRules
from kcore.spark.audit.across import compare, sort_key
from kcore.spark.audit.finding import AuditObservation, Finding
from kcore.spark.audit.kinds import INFO
from kcore.spark.audit.logs import Logs
from kcore.spark.audit.partition import examine
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import ServerSource
from tests.nodes import node_of
from tests.spark import oracle
from tests.spark.traffic import HISTORY, QUICK_ENDS, Sender, Traffic
from tests.transaction.world import Identity, World

PartitionTuple = tuple[str, int]
COMPACTED = ("__consumer_offsets", "__transaction_state")
"""The internal topics with compaction. Retention prunes the third internal topic, `__share_group_state`."""
SEEDS = 1
STEPS = 240


def findings(
    logs: Mapping[PartitionTuple, Iterable[EventRow]], cleaned_to: Mapping[PartitionTuple, int] | None = None
) -> tuple[list[Finding], dict[str, int]]:
    """Returns the findings that are more severe than `info`, and the number of `info` findings of each kind."""
    known = cleaned_to or {}
    results = [
        one
        for partition_key, rows in logs.items()
        for one in examine(*partition_key, rows, cleaned_to=known.get(partition_key))
    ]
    observations = [one for one in results if isinstance(one, AuditObservation)]
    found = [one for one in results if isinstance(one, Finding)]
    found += compare(sorted(observations, key=sort_key), Logs.of(observations))
    infos: dict[str, int] = {}
    for one in found:
        if one.severity == INFO:
            infos[one.kind] = infos.get(one.kind, 0) + 1
    return [one for one in found if one.severity != INFO], infos


def healthy(found: Iterable[Finding]) -> list[Finding]:
    """Returns the findings in the logs of a real broker, without two expected kinds.

    The first kind comes from a script, which wrote random delivery states for groups `orphan-share-N` that do not
    exist. The second kind comes from the broker: before version 4.4, it accepts a late write with an earlier start
    offset.
    """
    return [
        one
        for one in found
        if one.kind != "share-start-offset-decreased" and not (one.group_id or "").startswith("orphan-share-")
    ]


def real_logs(folder: Path) -> dict[PartitionTuple, list[EventRow]]:
    return {part[:2]: list(read_rows(part)) for part in find_partitions(folder)}


@pytest.mark.parametrize("moment", [*oracle.SOME_MOMENTS, "end"])
def test_logs_of_a_real_broker_are_healthy(kafka_logs: Path, moment: str) -> None:
    """These logs have committed offsets that members moved back, and transactions that wait because their topics were
    deleted. Both are legal.
    """
    found, infos = findings(real_logs(kafka_logs / moment))
    assert healthy(found) == []
    assert infos.keys() <= {"offset-decreased", "transaction-waits"}
    assert infos["offset-decreased"] > 1_000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_logs_of_a_real_broker_without_their_fronts_are_healthy(kafka_logs: Path, seed: int) -> None:
    """The beginning of each log is missing, up to a random offset, as after retention. The audit reports no error."""
    chance = random.Random(seed)
    logs = real_logs(kafka_logs / chance.choice(oracle.MOMENTS))
    cut = {
        partition_key: rows[chance.choice([0, chance.randrange(len(rows))]) :] for partition_key, rows in logs.items()
    }
    assert healthy(findings(cut)[0]) == []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_logs_of_a_real_broker_are_healthy_at_any_time(kafka_logs: Path, seed: int) -> None:
    chance = random.Random(seed)
    logs = real_logs(kafka_logs / "moment-2")
    times = sorted(row.timestamp_ms for rows in logs.values() for row in rows)
    until_ms = chance.choice(times)
    cut = {partition_key: [row for row in rows if row.timestamp_ms <= until_ms] for partition_key, rows in logs.items()}
    assert healthy(findings(cut)[0]) == []


def test_a_copy_made_during_compaction_is_healthy(kafka_logs: Path) -> None:
    """The copy was made while compaction was running: the first half of each log is compacted, and the second half is
    not.
    """
    earlier, later = real_logs(kafka_logs / "moment-2"), real_logs(kafka_logs / "moment-4")
    mixed = {}
    for partition_key, rows in earlier.items():
        middle = rows[len(rows) // 2].offset
        mixed[partition_key] = [row for row in later[partition_key] if row.offset < middle]
        mixed[partition_key] += [row for row in rows if row.offset >= middle]
    assert healthy(findings(mixed)[0]) == []


# ---- the engine's own logs


class Life(Traffic):
    """Random traffic. In addition to `Traffic`, it writes transactional records, ends transactions by the newest
    protocol (KIP-890), and restarts the node.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(world, chance, groups=10, burst=5)
        self._sequences: dict[tuple[Identity, int], int] = {}
        self._steps |= {self._write: 12, self._end_newest: 6, self._restart: 1}

    def _write(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            producer, index = self._open[tid], self._chance.randrange(4)
            self._world.add(tid, producer, [("t", index)])
            sequence = self._sequences.get((producer, index), 0)
            code, _ = self._world.produce(tid, producer, sequence, b"v", index=index)
            if not code:
                self._sequences[producer, index] = sequence + 1

    def _end_newest(self) -> None:
        if self._open:
            tid = self._chance.choice(sorted(self._open))
            self._world.end(tid, self._open.pop(tid), self._chance.random() < 0.6, version=5)

    def _restart(self) -> None:
        self._world.restart()


def compact(world: World, topic: str, partition: int) -> None:
    """Runs one compaction pass. With a delete retention of 0, the pass removes the tombstones and markers that the
    previous pass left.
    """
    target = world.engine.partitions.get(topic, partition)
    assert target is not None
    for _ in CompactionPass(target, CompactionRules(world.clock.wall_ms(), delete_retention_ms=0)).run():
        world.settle()
    world.settle()


def engine_logs(world: World) -> tuple[dict[PartitionTuple, list[EventRow]], dict[PartitionTuple, int]]:
    """Returns every log of a node, and the compaction progress of each log."""
    source = ServerSource(node_of(Sender(world)))
    logs = {part[:2]: list(source.rows(part)) for part in source.parts()}
    cleaned = {}
    for partition_key in logs:
        partition = world.engine.partitions.get(*partition_key)
        assert partition is not None
        cleaned[partition_key] = partition.log.cleaned_to
    return logs, cleaned


@pytest.mark.parametrize("seed", range(SEEDS))
def test_logs_of_the_engine_are_healthy(seed: int) -> None:
    """Covers groups of both protocols, transactions of both versions, restarts, and repeated compaction."""
    chance = random.Random(seed)
    world = World({**HISTORY, **QUICK_ENDS}, topics=Traffic.TOPICS)
    life = Life(world, chance)
    for step in range(STEPS):
        life.step()
        world.settle()
        if step % (STEPS // 4) == STEPS // 4 - 1:
            logs, cleaned = engine_logs(world)
            assert findings(logs)[0] == []
            assert findings(logs, cleaned)[0] == []
            for partition_key in logs:
                if partition_key[0] in COMPACTED and chance.random() < 0.7:
                    compact(world, *partition_key)
    world.advance(10)
    logs, cleaned = engine_logs(world)
    assert any(cleaned.values())
    types = {row.key[1] for row in logs["__consumer_offsets", 0] if row.key and not row.control}
    assert {1, 2, 3, 8} <= types
    assert findings(logs)[0] == []
    assert findings(logs, cleaned)[0] == []
