"""A log grows and is compacted between rebuilds that continue from checkpoints. Each rebuild equals a rebuild of the
whole log, or is refused.

`KCORE_SPARK_EVENTS` sets the number of events in the log (see docs/spark.md, "Proof").
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kcore.errors import KcoreError
from kcore.log import PartitionKey
from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.events.sources import Part, ServerSource, Source
from kcore.spark.frames.folders import rebuilt_of
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.state.rebuild import END, Rebuilt
from kcore.spark.state.table_batches import tables_and_checkpoints
from kcore.spark.state.table_files import write_tables
from kcore.spark.state.table_schemas import CHECKPOINT
from kcore.spark.state.tables import table_rows
from tests.group.context import WALL_MS
from tests.nodes import node_of
from tests.seeds import SEED
from tests.spark.test_engine_oracle import real_clients
from tests.spark.traffic import QUICK_ENDS, FolderWorld, Sender, Traffic, live, shown
from tests.transaction.world import World

EVENTS = int(os.environ.get("KCORE_SPARK_EVENTS", "12000"))
SETTINGS = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "kcore.snapshot.min.bytes": 20_000,
    "kcore.snapshot.live.ratio": 0,
    "log.cleaner.delete.retention.ms": 600_000,
    **QUICK_ENDS,
}
ABOUT_THE_LOG = ("partitions", "faults")
"""Tables about the log, which are not compared: compaction may have removed records since the checkpoint."""
PRODUCERS = "producers"
Producers = dict[int, dict[str, Any]]
"""Dict of producer id to its row of the table `producers`."""
EVENT_LAG_MS = 270
"""A factor: the minimum compaction lag of the test, in ms, is this factor times the number of events in the log.

The tests continue the rebuild at about twenty offsets. Virtual time advances 3.6 s per event on average, so the time
between two of these offsets is 180 ms times the number of events. Most of these times are thus shorter than the lag,
and some are longer.
"""


def state_tables(result: Rebuilt) -> list[str]:
    not_state = (*ABOUT_THE_LOG, PRODUCERS)
    return sorted(repr(row) for row in table_rows(result.state, result.cut) if row[0] not in not_state)


def producers_of(result: Rebuilt) -> Producers:
    rows = [row for table, row in table_rows(result.state, result.cut) if table == PRODUCERS]
    return {row["producer_id"]: row for row in rows}


def check_producers(found: Producers, whole: Producers, before: Producers) -> None:
    """Compares the producers of a continued run with the producers of a whole run.

    Compaction may have removed batches and markers below the checkpoint. The whole run cannot read them, but the
    checkpoint contains their effects. So the whole run may lack a producer, its sequence number, or its newest epoch. A
    producer without later records must equal the one in the checkpoint.

    Args:
        found: the producers of the continued run.
        whole: the producers of the whole run.
        before: the producers of the checkpoint.
    """
    assert whole.keys() <= found.keys()
    for producer_id, row in found.items():
        if row != before.get(producer_id):
            assert whole[producer_id] in (row, {**row, "last_sequence": -1})


def parts_of(world: World, source: Source) -> Iterator[Part]:
    """Yields the coordinator partitions with the compaction progress of their logs."""
    for part in source.parts():
        if part.topic in COORDINATOR_TOPICS and part.end:
            topic = world.engine.topics.by_name(part.topic)
            assert topic is not None
            log = world.log.open(PartitionKey(topic.topic_id, part.partition))
            yield part._replace(cleaned_to=log.cleaned_to)


class DailyRuns:
    """A chain of runs: each run continues from the one before it, as long as compaction allows.

    Args:
        world: the node whose log grows.
        folder: the folder for checkpoints.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._checkpoints: dict[tuple[str, int], list[Path]] = {}
        self._producers: dict[tuple[str, int], Producers] = {}
        self.outcomes: Counter[str] = Counter()
        self.compacted = 0

    def run(self) -> None:
        """Continues every partition, and compares the results with a whole run and with the engine."""
        moment = live(self._world)
        source = ServerSource(node_of(Sender(self._world)))
        source.beside = lambda part: [pa.py_buffer(path.read_bytes()) for path in self._checkpoints[part[:2]]]
        for part in parts_of(self._world, source):
            topic_partition = part[:2]
            whole = rebuilt_of(source, part, END, True)
            stand = moment[topic_partition]
            assert shown(table_rows(whole.state, whole.cut), stand.unwritten) == stand.rows, topic_partition
            self.compacted += bool(part.cleaned_to)
            self._write(topic_partition, self._continued(source, part, whole))

    def _continued(self, source: Source, part: Part, whole: Rebuilt) -> Rebuilt:
        if part[:2] not in self._checkpoints:
            return whole
        try:
            found = rebuilt_of(source, part, END, True, from_checkpoint=True)
        except KcoreError as error:
            # The log of share states from its start gives the whole state, so no run over it is refused.
            if part.topic == SHARE_GROUP_STATE or "compaction has passed the checkpoint" not in str(error):
                raise
            self.outcomes["refused"] += 1
            return whole
        assert state_tables(found) == state_tables(whole), part[:2]
        check_producers(producers_of(found), producers_of(whole), self._producers[part[:2]])
        assert found.state.faults == whole.state.faults == []
        assert found.state.completeness.lost is whole.state.completeness.lost is False
        self.outcomes["equal"] += 1
        return found

    def _write(self, topic_partition: tuple[str, int], result: Rebuilt) -> None:
        self._producers[topic_partition] = producers_of(result)
        written = write_tables(tables_and_checkpoints([result]), self._folder)
        self._checkpoints[topic_partition] = [
            self._folder / one.table / one.file for one in written if one.table.startswith(CHECKPOINT)
        ]


def check_runs(world: World, chance: random.Random, folder: Path, events: int, cuts: int) -> DailyRuns:
    """Lets a log grow while it is compacted. At random moments, continues the rebuild and checks its result."""
    traffic = Traffic(world, chance, groups=max(20, events // 2_000))
    runs = DailyRuns(world, folder)
    coordinators = [part for part in world.engine.partitions if part.internal]
    traffic.everything()
    begin = sum(part.high_watermark for part in coordinators)
    due = sorted(chance.sample(range(begin, begin + events), cuts))
    while due:
        for _ in range(10):
            traffic.step()
            world.advance(chance.choice((10, 10, 2_000)))
        world.settle()
        if sum(part.high_watermark for part in coordinators) >= due[0]:
            due.pop(0)
            runs.run()
    return runs


@pytest.mark.seeded
def test_continued_runs_equal_whole_ones_over_a_compacting_log(tmp_path: Path) -> None:
    world = FolderWorld(tmp_path / "data", WALL_MS, SETTINGS, Traffic.TOPICS)
    runs = check_runs(world, random.Random(SEED), tmp_path / "state", 2_000, 6)
    world.engine.close()
    print(dict(runs.outcomes), f"{runs.compacted} compacted logs")
    assert runs.outcomes["equal"] > 10
    assert runs.compacted > 5


@pytest.mark.long
@pytest.mark.seeded
@pytest.mark.clients
@pytest.mark.timeout(180 + EVENTS // 50)
def test_continued_runs_equal_whole_ones_with_real_clients(tmp_path: Path) -> None:
    """The test continues at twenty random offsets of a log that begins with requests of real clients."""
    real_clients(tmp_path / "data")
    # The time between two cuts grows with the log. Compaction keeps the records of somewhat more time, and so passes
    # a few checkpoints.
    settings: dict[str, Any] = {**SETTINGS, "log.cleaner.min.compaction.lag.ms": EVENT_LAG_MS * EVENTS}
    world = FolderWorld(tmp_path / "data", time.time_ns() // 1_000_000, settings, Traffic.TOPICS)
    runs = check_runs(world, random.Random(SEED), tmp_path / "state", EVENTS, 20)
    world.engine.close()
    print(dict(runs.outcomes), f"{runs.compacted} compacted logs")
    continued = sum(runs.outcomes.values())
    assert runs.outcomes["equal"] >= 0.6 * continued
    assert runs.outcomes["refused"] >= 0.02 * continued
