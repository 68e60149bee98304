"""The rebuild of kcore's own logs equals the engine's own state, at the end and at random earlier offsets.

`KCORE_SPARK_EVENTS` sets the number of events in the log (see docs/spark.md, "Proof").
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kcore.protocol.records import UnknownRecord, decode_key
from kcore.spark.events.arrow import from_batch
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import FolderSource
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild import AsOf, rebuild
from kcore.spark.state.tables import table_rows
from kcore.testing import ServerProcess
from tests.harness import WALL_MS
from tests.kit import wait_until
from tests.seeds import SEED
from tests.spark.traffic import HISTORY, QUICK_ENDS, FolderWorld, NodeSnapshot, Rows, Traffic, live, shown

EVENTS = int(os.environ.get("KCORE_SPARK_EVENTS", "6000"))
CUTS = 20 if EVENTS > 6_000 else 8
SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    **HISTORY,
    **QUICK_ENDS,
}
TIMEOUT_S = 120 + EVENTS // 100

EVERY_KIND = {
    "OffsetCommitKey",
    "GroupMetadataKey",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupRegularExpressionKey",
    "TransactionLogKey",
    "ShareGroupMetadataKey",
    "ShareGroupMemberMetadataKey",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupStatePartitionMetadataKey",
    "ShareSnapshotKey",
}
"""Record types that the log must contain, both with values and as tombstones."""


def real_clients(folder: Path) -> None:
    """Runs clients of librdkafka against a server on the folder."""
    settings = {name: str(value) for name, value in SETTINGS.items()}
    with ServerProcess(folder, settings) as server:
        real_traffic(server.bootstrap)


def real_traffic(bootstrap: str) -> None:
    """Runs consumers of both protocols, and two transactions with offsets, of which one is aborted."""
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(common)
    admin.create_topics([NewTopic("real", 6, 1)])["real"].result(30)
    producer = Producer(common)
    for number in range(600):
        producer.produce("real", str(number), partition=number % 6)
    assert producer.flush(30) == 0
    for protocol in ("classic", "consumer"):
        members = [
            Consumer(
                {
                    **common,
                    "group.id": f"real-{protocol}",
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            for _ in range(2)
        ]
        read = 0
        for member in members:
            member.subscribe(["real"])
        while read < 600:
            for member in members:
                message = member.poll(0.01)
                if message is not None and message.error() is None:
                    read += 1
                    member.commit(message, asynchronous=False)
        for member in members:
            member.close()
    transactional = Producer({**common, "transactional.id": "real-tx"})
    transactional.init_transactions(30)
    for commit in (True, False):
        transactional.begin_transaction()
        transactional.produce("real", "in a transaction")
        reader = Consumer({**common, "group.id": "real-group"})
        offsets = [TopicPartition("real", index, 50 + commit) for index in range(6)]
        transactional.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
        (transactional.commit_transaction if commit else transactional.abort_transaction)(30)
        reader.close()
    wait_until(lambda: not transactional.flush(1), "all is sent")


def counted(rows: dict[Any, list[EventRow]]) -> tuple[Counter[str], Counter[str]]:
    """Returns the number of records of each kind, and the number of tombstones."""
    kinds: Counter[str] = Counter()
    tombstones: Counter[str] = Counter()
    for (topic, _), of_partition in rows.items():
        names: dict[bytes, str] = {}
        for row in of_partition:
            if row.control:
                kinds["marker"] += 1
            elif row.key is not None:
                name = names.get(row.key[:2])
                if name is None:
                    key = decode_key(topic, row.key)
                    assert not isinstance(key, UnknownRecord)
                    name = names[row.key[:2]] = type(key).__name__
                kinds[name] += 1
                tombstones[name] += row.value is None
    return kinds, tombstones


def difference(found: Rows, expected: Rows) -> list[tuple[str, str]]:
    """Returns up to six rows that only one of the two results contains."""
    return sorted(set(found) ^ set(expected))[:6]


@pytest.mark.seeded
@pytest.mark.clients
@pytest.mark.timeout(TIMEOUT_S)
def test_a_rebuild_equals_the_engine_at_the_end_and_at_earlier_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares all fields, at some offsets that were recorded during the traffic, and at the end."""
    monkeypatch.setattr("kcore.share.upkeep.prune", lambda machine: None)  # keeps the whole history of share states
    seed = SEED
    print("seed", seed)
    chance = random.Random(seed)
    started_s = time.monotonic()
    real_clients(tmp_path / "data")
    world = FolderWorld(tmp_path / "data", time.time_ns() // 1_000_000, SETTINGS, Traffic.TOPICS)
    traffic = Traffic(world, chance, groups=max(40, EVENTS // 2_000))
    at = sorted(chance.sample(range(EVENTS), CUTS))
    snapshots: list[NodeSnapshot] = []
    coordinators = [part for part in world.engine.partitions if part.internal]
    traffic.everything()
    while True:
        for _ in range(10):
            traffic.step()
        world.settle()
        events = sum(part.high_watermark for part in coordinators)
        if len(snapshots) < CUTS and events >= at[len(snapshots)]:
            snapshots.append(live(world))
        elif events >= EVENTS:
            break
    snapshots.append(live(world))
    world.engine.close()
    made_s = time.monotonic()

    with FolderSource(tmp_path / "data") as source:
        parts = [part for part in source.parts() if part.topic in COORDINATOR_TOPICS]
        logs = {part[:2]: list(source.rows(part)) for part in parts}
        batches = {part[:2]: list(source.batches(part)) for part in parts}
    assert {
        topic_partition: list(chain.from_iterable(map(from_batch, of))) for topic_partition, of in batches.items()
    } == logs
    events = sum(map(len, logs.values()))
    kinds, tombstones = counted(logs)
    print(f"{events} events made in {made_s - started_s:.0f} s: {dict(kinds)}, of these tombstones: {dict(tombstones)}")
    assert events >= EVENTS
    assert kinds.keys() >= EVERY_KIND | {"marker", "ShareUpdateKey"}
    assert {name for name, count in tombstones.items() if count} >= EVERY_KIND
    compared = unwritten = 0
    for snapshot in snapshots:
        for topic_partition, partition_snapshot in snapshot.items():
            if not partition_snapshot.end:
                continue
            as_of = AsOf(offset=partition_snapshot.end)
            for result in (
                rebuild(*topic_partition, logs[topic_partition], as_of),
                rebuild_batches(*topic_partition, batches[topic_partition], as_of),
            ):
                assert result.state.faults == []
                rows = shown(table_rows(result.state, result.cut), partition_snapshot.unwritten)
                assert difference(rows, partition_snapshot.rows) == [], (topic_partition, partition_snapshot.end)
            compared += len(rows)
            unwritten += len(partition_snapshot.unwritten)
    print(f"{compared} rows of {len(snapshots)} snapshots compared in {time.monotonic() - made_s:.0f} s")
    assert len(snapshots) == CUTS + 1
    assert compared > 1_000
    assert unwritten < compared / 100


def test_a_rebuild_of_pruned_share_states_equals_the_engine(tmp_path: Path) -> None:
    """The share coordinator deletes the log below the oldest live snapshot. The remaining log gives the same states."""
    world = FolderWorld(tmp_path / "data", WALL_MS, SETTINGS, Traffic.TOPICS)
    traffic = Traffic(world, random.Random(3))
    for _ in range(6):
        for step in (traffic._share_join, *[traffic._share_beat] * 3, *[traffic._share_offsets] * 3):
            step()
        for _ in range(30):
            traffic._share_state()
        world.advance(400_000)
        world.settle()
    snapshot = live(world)
    world.engine.close()
    with FolderSource(tmp_path / "data") as source:
        parts = [part for part in source.parts() if part.topic == "__share_group_state"]
        logs = {part[:2]: list(source.rows(part)) for part in parts}
    assert any(rows and rows[0].offset > 0 for rows in logs.values()), "nothing was pruned"
    for topic_partition, rows in logs.items():
        result = rebuild(*topic_partition, rows)
        assert shown(table_rows(result.state, result.cut)) == snapshot[topic_partition].rows
    assert sum(len(snapshot[topic_partition].rows) for topic_partition in logs) > 5
