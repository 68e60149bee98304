"""A daily run that continues from checkpoints, compared with a run over the whole log, without Spark.

    pytest bench/test_spark_incremental.py --benchmark-timer=time.process_time
    KCORE_BENCH_SPARK_EVENTS=10000000 pytest bench/test_spark_incremental.py --benchmark-timer=time.process_time

The last day has 1 % of the log. Every offset of the state was committed a hundred times, once a day.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa

from kcore.clock import ManualClock
from kcore.config.node import Config
from kcore.engine import Engine
from kcore.log import PartitionKey
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.runtime.partitioner import partition_for
from kcore.spark.events.sources import FolderSource, Part
from kcore.spark.export.exporter import ExportSource, export
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.rebuild import END
from kcore.spark.state.table_batches import all_tables, tables_and_checkpoints
from kcore.spark.state.table_files import WrittenFile, write_tables
from kcore_ext.batch import BatchBuilder
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

DAYS = 100
GROUP_OFFSETS = 100
GROUPS = max(1, int(os.environ.get("KCORE_BENCH_SPARK_EVENTS", "200000")) // (DAYS * GROUP_OFFSETS))
PARTITIONS = 2
WALL_MS = 1_700_000_000_000

Benchmark = Callable[..., Any]


def commit_days(folder: Path, days: range) -> None:
    """Appends committed offsets to a data folder. Every group commits each of its offsets once a day.

    Args:
        folder: the data folder.
        days: the numbers of the days. The number determines the values of the day's offsets.
    """
    settings = {
        "kcore.data.dir": str(folder),
        "kcore.durability": "os",
        "offsets.topic.num.partitions": str(PARTITIONS),
    }
    engine = Engine.open(Config.of(settings), clock=ManualClock(wall_ms=WALL_MS))
    topic = engine.topics.by_name(CONSUMER_OFFSETS)
    assert topic is not None
    for day in days:
        for number in range(GROUPS):
            group = f"group-{number}"
            log = engine.log.open(PartitionKey(topic.topic_id, partition_for(group, PARTITIONS)))
            builder = BatchBuilder(1 << 20, base_timestamp_ms=WALL_MS)
            for at in range(GROUP_OFFSETS):
                key = CommitKey(group, f"topic-{at // 10}", at % 10)
                value = OffsetAndMetadata(-1, day * 1000 + at, 3, "", WALL_MS, -1, bytes(15) + b"\x01")
                builder.append(WALL_MS, key.encode_key(), value.encode_value(4))
            log.append(builder.build_bytearray(), log.leader_epoch)
        engine.log.commit()
    engine.close()


class Runs:
    """The measured rebuilds of an export: over the whole log, or continued from checkpoints.

    Args:
        events: the folder of the exported log.
        out: the folder of tables and checkpoints.
    """

    def __init__(self, events: Path, out: Path) -> None:
        self._events = events
        self._out = out

    def _parts(self) -> tuple[ExportSource, list[Part]]:
        source = ExportSource(self._events)
        return source, source.parts()

    def whole(self) -> list[WrittenFile]:
        source, parts = self._parts()
        return list(write_tables(all_tables(rebuilt_of(source, part, END, False) for part in parts), self._out))

    def with_checkpoints(self) -> list[WrittenFile]:
        source, parts = self._parts()
        results = (rebuilt_of(source, part, END, True) for part in parts)
        return list(write_tables(tables_and_checkpoints(results), self._out))

    def continued(self, previous: list[WrittenFile], checkpoint: bool) -> list[WrittenFile]:
        def beside(part: Part) -> list[Any]:
            own = f"checkpoint/topic={part.topic}/partition={part.partition}"
            files = [self._out / one.table / one.file for one in previous if one.table == own]
            return [pa.py_buffer(path.read_bytes()) for path in files]

        source, parts = self._parts()
        source.beside = beside
        results = (rebuilt_of(source, part, END, checkpoint, from_checkpoint=True) for part in parts)
        return list(write_tables(tables_and_checkpoints(results) if checkpoint else all_tables(results), self._out))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runs, list[WrittenFile]]:
    """Yields runs over a log whose last day is in separate files, with the checkpoints of the day before."""
    root = tmp_path_factory.mktemp("incremental")
    runs_ = Runs(root / "events", root / "state")
    previous: list[WrittenFile] = []
    for days in (range(DAYS - 1), range(DAYS - 1, DAYS)):
        commit_days(root / "data", days)
        with FolderSource(root / "data") as source:
            export(source, root / "events", topic_filter={CONSUMER_OFFSETS}.__contains__)
        previous = previous or runs_.with_checkpoints()
    shutil.rmtree(root / "data")
    return runs_, previous


def counts(written: list[WrittenFile]) -> dict[str, int]:
    counts_: dict[str, int] = {}
    for one in written:
        kind = one.table.partition("/")[0]
        counts_[kind] = counts_.get(kind, 0) + one.rows
    return counts_


def test_whole(benchmark: Benchmark, runs: tuple[Runs, list[WrittenFile]]) -> None:
    """Measures a run over the whole log, from Parquet to the tables' Parquet."""
    assert counts(benchmark(runs[0].whole))["offsets"] == GROUPS * GROUP_OFFSETS


def test_whole_with_checkpoints(benchmark: Benchmark, runs: tuple[Runs, list[WrittenFile]]) -> None:
    """Measures a run over the whole log that also writes checkpoints."""
    assert counts(benchmark(runs[0].with_checkpoints))["checkpoint"] > GROUPS * GROUP_OFFSETS


def test_day(benchmark: Benchmark, runs: tuple[Runs, list[WrittenFile]]) -> None:
    """Measures a run over the last day, which continues from the checkpoints of the day before."""
    written = benchmark(runs[0].continued, runs[1], False)
    assert counts(written)["offsets"] == GROUPS * GROUP_OFFSETS


def test_day_with_checkpoints(benchmark: Benchmark, runs: tuple[Runs, list[WrittenFile]]) -> None:
    """Measures a run over the last day that also writes the checkpoints for the next day."""
    written = benchmark(runs[0].continued, runs[1], True)
    assert counts(written)["checkpoint"] > GROUPS * GROUP_OFFSETS
