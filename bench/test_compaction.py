"""Measures the cost of compaction per examined record, in a coordinator's log of commits and in a topic with random
keys.

    pytest bench/test_compaction.py

Waiting requests are served between two slices. `longest_ms` is the CPU time of the longest slice, including its commit.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kcore.broker.compaction.cleaner import CompactionPass, CompactionRules
from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.partition import Partition
from kcore.log import LmdbLogEngine, LogEngine, MemoryLogEngine, PartitionKey
from kcore.runtime import CommitPipeline
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

pytestmark = [pytest.mark.benchmark(timer=time.process_time)]

WALL_MS = 1_700_000_000_000
LOG_BYTES = 4 << 20
ROUND_BATCHES = 8

Batches = Iterator[bytearray]


def batch_of(records: list[tuple[bytes, bytes]]) -> bytearray:
    builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
    for key, value in records:
        assert builder.append(WALL_MS, key, value)
    return builder.build_bytearray()


def commits() -> Batches:
    """Yields batches of two or three records. The records are alternate commits of two groups with one offset each."""
    keys = [CommitKey(f"group-{number}", "t", 0).encode_key() for number in range(2)]
    number = 0
    while True:
        records = []
        for _ in range(2 + number % 2):
            number += 1
            value = OffsetAndMetadata(-1, number, -1, "", WALL_MS, -1, bytes(16))
            records.append((keys[number % 2], value.encode_value(4)))
        yield batch_of(records)


def random_keys() -> Batches:
    """Yields batches of ten 100-byte records with five thousand keys, so that nearly every batch keeps some records."""
    chance = random.Random(7)
    while True:
        yield batch_of([(b"key-%08d" % chance.randrange(5_000), b"v" * 100) for _ in range(10)])


class Log:
    """A partition with `LOG_BYTES` bytes that were never compacted."""

    def __init__(self, engine: LogEngine, batches: Batches) -> None:
        self.engine = engine
        pipeline = CommitPipeline(engine)
        log = engine.open(PartitionKey(bytes(16), 0))
        size_bytes = 0
        while size_bytes < LOG_BYTES:
            for _ in range(ROUND_BATCHES):
                batch = next(batches)
                size_bytes += len(batch)
                log.append(batch, 0)
            engine.commit()
        config = LogConfig({"cleanup.policy": "compact"})
        self.partition = Partition("t", bytes(16), 0, log, leader_epoch=0, pipeline=pipeline, config=config)
        self.partition.finish_recovery()
        self.longest_ms = 0.0

    def compact(self) -> None:
        work = CompactionPass(self.partition, CompactionRules(WALL_MS))
        slices = work.run()
        while True:
            began = time.process_time()
            if next(slices, self) is self:
                break
            self.longest_ms = max(self.longest_ms, 1000 * (time.process_time() - began))
        assert work.done


@pytest.mark.parametrize("durability", ["memory", "fsync"])
@pytest.mark.parametrize("batches", [commits, random_keys])
def test_a_pass(benchmark: BenchmarkFixture, tmp_path: Path, batches: Callable[[], Batches], durability: str) -> None:
    """Measures all work of a compaction pass per record: reading, deciding, and the record's share of the commits."""
    benchmark.group = f"compaction: {batches.__name__}"
    folder = tmp_path / "data"
    logs: list[Log] = []

    def setup() -> tuple[tuple[Log], dict[str, object]]:
        if logs:
            logs[-1].engine.close()
            shutil.rmtree(folder, ignore_errors=True)
        engine = MemoryLogEngine() if durability == "memory" else LmdbLogEngine(folder, durability)
        logs.append(Log(engine, batches()))
        return (logs[-1],), {}

    benchmark.pedantic(Log.compact, setup=setup, rounds=5)
    benchmark.extra_info["operations"] = logs[-1].partition.high_watermark
    benchmark.extra_info["longest_ms"] = round(min(log.longest_ms for log in logs), 2)
    logs[-1].engine.close()
