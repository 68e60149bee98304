"""The time to open a data folder: a million offsets in ten thousand groups, a long history, many partitions.

    pytest bench/test_recovery.py                                      # 100 000 offsets
    KCORE_BENCH_RECOVERY_RECORDS=1000000 pytest bench/test_recovery.py

The target is two seconds for a million offsets on one core of a laptop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kcore.broker.data.retention import Housekeeping
from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import PartitionKey
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.runtime.partitioner import partition_for
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

RECORDS = int(os.environ.get("KCORE_BENCH_RECOVERY_RECORDS", "100000"))
TOPICS_A_GROUP = 10
PARTITIONS_A_TOPIC = 10
GROUP_RECORDS = TOPICS_A_GROUP * PARTITIONS_A_TOPIC
WALL_MS = 1_700_000_000_000


def config(folder: Path, **settings: Any) -> Config:
    return Config.of({"kcore.data.dir": str(folder), "kcore.durability": "os", **settings})


def open_node(folder: Path) -> Engine:
    return Engine.open(config(folder), clock=ManualClock(wall_ms=WALL_MS))


def write_commits(folder: Path, rounds: int, batch_records: int = GROUP_RECORDS) -> None:
    """Writes a log in which every group commits all of its offsets `rounds` times, `batch_records` per batch."""
    engine = open_node(folder)
    groups = [f"group-{number}" for number in range(RECORDS // GROUP_RECORDS)]
    topic = engine.topics.by_name(CONSUMER_OFFSETS)
    assert topic is not None
    for turn in range(rounds):
        for count, group in enumerate(groups):
            log = engine.log.open(PartitionKey(topic.topic_id, partition_for(group, topic.partitions)))
            records = [
                (CommitKey(group, f"topic-{at // PARTITIONS_A_TOPIC}", at % PARTITIONS_A_TOPIC), at)
                for at in range(GROUP_RECORDS)
            ]
            for start in range(0, GROUP_RECORDS, batch_records):
                builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
                for key, at in records[start : start + batch_records]:
                    value = OffsetAndMetadata(-1, turn * 1000 + at, 3, "", WALL_MS, -1, bytes(15) + b"\x01")
                    builder.append(WALL_MS, key.encode_key(), value.encode_value(4))
                log.append(builder.build_bytearray(), log.leader_epoch)
            if count % 200 == 0:
                engine.log.commit()
        engine.log.commit()
    engine.close()


def compact_all(folder: Path) -> None:
    engine = open_node(folder)
    housekeeping = Housekeeping(engine.partitions, engine.wheel, engine.slices, engine.now, engine.config)
    for partition in engine.partitions:
        if partition.config.compact:
            for _ in housekeeping.cleaner.compact(partition):
                pass
    engine.close()


def measure(benchmark: Callable[..., Any], folder: Path, **info: Any) -> None:
    recovered: list[Any] = []

    def run() -> None:
        engine = open_node(folder)
        recovered.append((engine.recovery.records, sum(shard.machine.offsets.offset_count for shard in engine.groups)))
        engine.log.close()

    benchmark.pedantic(run, rounds=3, warmup_rounds=0)  # type: ignore[attr-defined]
    benchmark.extra_info.update(info, records=recovered[0][0])  # type: ignore[attr-defined]
    assert {offsets for _, offsets in recovered} == {RECORDS // GROUP_RECORDS * GROUP_RECORDS}


def test_offsets_as_requests_wrote_them(benchmark: Callable[..., Any], tmp_path: Path) -> None:
    """Measures opening a log in which each request committed a hundred offsets, in a batch of a hundred records."""
    write_commits(tmp_path / "data", 1)
    measure(benchmark, tmp_path / "data", shape="100 records a batch")


def test_offsets_in_batches_of_one(benchmark: Callable[..., Any], tmp_path: Path) -> None:
    """Measures opening a log in which consumers committed one partition at a time."""
    write_commits(tmp_path / "data", 1, 1)
    measure(benchmark, tmp_path / "data", shape="1 record a batch")


@pytest.mark.parametrize("compacted", [False, True])
def test_a_long_history(benchmark: Callable[..., Any], tmp_path: Path, compacted: bool) -> None:
    """Measures opening a log in which each offset was committed five times, before or after a compaction."""
    write_commits(tmp_path / "data", 5, 10)
    if compacted:
        compact_all(tmp_path / "data")
    measure(benchmark, tmp_path / "data", shape="history of 5" + (", compacted" if compacted else ""))


def test_many_partitions(benchmark: Callable[..., Any], tmp_path: Path) -> None:
    """Measures opening a log with many partitions, none of which is empty.

    The log has a partition for every hundred offsets, but at least a thousand partitions.
    """
    engine = open_node(tmp_path / "data")
    count = max(1_000, RECORDS // 100)
    batch = BatchBuilder(1000, base_timestamp_ms=WALL_MS)
    batch.append(WALL_MS, b"key", b"value")
    for number in range(count):
        engine.log.open(PartitionKey(bytes(15) + b"\x07", number)).append(batch.build_bytearray(), 0)
    engine.log.commit()
    engine.close()

    def run() -> None:
        engine = open_node(tmp_path / "data")
        assert len(engine.log.partitions()) > count
        engine.log.close()

    benchmark.pedantic(run, rounds=3, warmup_rounds=0)  # type: ignore[attr-defined]
