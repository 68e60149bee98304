"""Rebuilds of large logs through Spark's readers and writers: rates, memory, and growth.

    python -m bench.spark_scale --events 1000000 --folder FOLDER [--master local[2]] [--peer]

The log has 200 partitions, of which one has 30 % of the events. They are generated from prepared batches: committed
offsets of groups in their own partitions, again and again. Each line of the output is a JSON object: the job, wall
seconds, processor seconds of the JVM and all its workers, events per processor second, and the peak memory of the
processes in MB. `--peer` also reads 1 % of the events with kafka-python and pandas from `kcore serve`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from kcore.protocol.records import CONSUMER_OFFSETS, decode_key, decode_value
from kcore.runtime.partitioner import partition_for
from kcore.spark.events.arrow import EVENT_SCHEMA, filled_array
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.export.exporter import export
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.jobs.session import prepare_local_workers
from kcore.spark.state.live_records import COMMITTED
from kcore.testing import ServerProcess
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.offset_columns import OffsetRecords

PARTITIONS = 200
LARGEST = 0.3
GROUPS = 10
"""Groups of a partition, each with a hundred offsets."""
LARGEST_GROUPS = 300
VARIANTS = 4
WALL_MS = 1_700_000_000_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def names_by_partition() -> list[list[str]]:
    """Returns the groups of each partition, by the hash of their names. The first partition has more of them."""
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    number = 0
    while any(len(names) < (GROUPS if at else LARGEST_GROUPS) for at, names in enumerate(found)):
        name = f"group-{number}"
        names = found[partition_for(name, PARTITIONS)]
        if len(names) < LARGEST_GROUPS:
            names.append(name)
        number += 1
    return [names[: GROUPS if at else LARGEST_GROUPS] for at, names in enumerate(found)]


class GeneratedSource(Source):
    """A log of committed offsets that is made while it is read.

    Args:
        events: the number of events in all partitions.
    """

    def __init__(self, events: int) -> None:
        rest = int(events * (1 - LARGEST)) // (PARTITIONS - 1)
        self._sizes = [events - rest * (PARTITIONS - 1), *[rest] * (PARTITIONS - 1)]
        self._names = names_by_partition()

    def parts(self) -> list[Part]:
        """Returns the partitions."""
        return [Part(CONSUMER_OFFSETS, number, 0, size) for number, size in enumerate(self._sizes)]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Is not used: the log is read as batches."""
        raise NotImplementedError

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yields the events of a partition: every offset of its groups once, with other values, and again."""
        number = span.part.partition
        cycles = [self._cycle(self._names[number], variant) for variant in range(VARIANTS)]
        start, stop, turn = span.start, self._sizes[number], 0
        while start < stop:
            cycle = cycles[turn % VARIANTS]
            batch = cycle.slice(0, min(len(cycle), stop - start))
            yield _events(batch, number, start)
            start += len(batch)
            turn += 1

    def _cycle(self, names: list[str], variant: int) -> pa.RecordBatch:
        records = OffsetRecords()
        for group in names:
            for topic in range(10):
                offsets = {
                    at: OffsetAndMetadata(-1, variant * 1_000 + at, 3, "", WALL_MS, -1, bytes(15) + b"\1")
                    for at in range(10)
                }
                records.add_all(group, f"topic-{topic}", offsets)
        arrays = [filled_array(field.type, one) for field, one in zip(COMMITTED, records.take(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=COMMITTED)


def _events(cycle: pa.RecordBatch, partition: int, start: int) -> pa.RecordBatch:
    size = cycle.num_rows
    given: dict[str, Any] = {
        "key": cycle.column("key"),
        "value": cycle.column("value"),
        "offset": pa.array(range(start, start + size), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(WALL_MS * 1_000 + start, pa.int64()), size).cast(pa.timestamp("us", "UTC")),
        "headers": pa.array([[]] * size, EVENT_SCHEMA.field("headers").type),
    }
    fixed = {
        "topic": CONSUMER_OFFSETS,
        "partition": partition,
        "timestampType": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "last_sequence": -1,
        "transactional": False,
        "control": False,
        "batch_only": False,
    }
    arrays = [
        given[field.name] if field.name in given else pa.repeat(pa.scalar(fixed[field.name], field.type), size)
        for field in EVENT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)


# ---- measurements


class Usage(NamedTuple):
    """The resources of a job: wall seconds, processor seconds, and peak memory in MB by program."""

    wall_s: float
    cpu_s: float
    peak_mb: dict[str, int]


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from _children(int(child))


def _ticks(pid: int) -> int:
    """Returns the processor time of a process and of its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _peak(pid: int) -> tuple[str, int]:
    """Returns the program of a process, and its peak memory in kB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return status["Name"].strip(), int(status.get("VmHWM", "0 kB").split()[0])


def _read(function: Callable[[int], Any], pid: int, missing: Any) -> Any:
    """Calls a function on a process; returns `missing` if the process has ended."""
    try:
        return function(pid)
    except (FileNotFoundError, ProcessLookupError):
        return missing


def measured(job: Callable[[], Any]) -> Usage:
    """Runs a job and measures this process and its descendants."""
    done, peaks = threading.Event(), dict[str, int]()

    def sample() -> None:
        while True:
            for pid in _read(lambda own: list(_children(own)), os.getpid(), []):
                name, peak_kb = _read(_peak, pid, ("", 0))
                peaks[name] = max(peaks.get(name, 0), peak_kb)
            if done.wait(0.1):
                return

    def ticks() -> int:
        return sum(_read(_ticks, pid, 0) for pid in [os.getpid(), *_children(os.getpid())])

    sampler = threading.Thread(target=sample)
    sampler.start()
    begin_s, begun = time.perf_counter(), ticks()
    try:
        job()
        used = ticks() - begun
        wall_s = time.perf_counter() - begin_s
    finally:
        done.set()
        sampler.join()
    return Usage(wall_s, used / TICKS_PER_S, {name: kb >> 10 for name, kb in sorted(peaks.items()) if kb >= 1 << 14})


def report(name: str, events: int, usage: Usage) -> None:
    """Prints a line of the output."""
    line = {
        "job": name,
        "events": events,
        "wall_s": round(usage.wall_s, 2),
        "cpu_s": round(usage.cpu_s, 2),
        "events_per_cpu_s": round(events / usage.cpu_s) if usage.cpu_s else None,
        "peak_mb": usage.peak_mb,
    }
    print(json.dumps(line), flush=True)


# ---- the peer


def read_with_pandas(events: int, folder: Path) -> Usage:
    """Reads 1 % of the log with kafka-python and keeps the newest offset of each key with pandas.

    The records are in a topic of a user, because the server's own internal topic has its own records.
    """

    def read(bootstrap: str, count: int) -> None:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("events", 0)])
        rows: list[tuple[Any, ...]] = []
        while len(rows) < count:
            for records in consumer.poll(timeout_ms=1_000, max_records=5_000).values():
                for record in records:
                    key = decode_key(CONSUMER_OFFSETS, record.key)
                    rows.append((key.group, key.topic, key.partition, decode_value(key, record.value).offset))
        consumer.close()
        frame = pd.DataFrame(rows, columns=["group_id", "topic", "partition", "offset"])
        frame.drop_duplicates(["group_id", "topic", "partition"], keep="last").to_parquet(folder / "pandas.parquet")

    source = GeneratedSource(events)
    with ServerProcess(folder / "data", {"num.partitions": "1"}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
        count = 0
        for part in source.parts():
            for batch in source.batches(part):
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                    producer.produce("events", value, key, 0)
                    count += 1
                producer.flush(60)
        return measured(lambda: read(server.bootstrap, count))


def main() -> None:
    """Makes the log and runs the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="a folder for the log and the tables")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--peer", action="store_true", help="also run kafka-python with pandas on 1 %% of the events")
    options = parser.parse_args()
    folder: Path = options.folder
    log = folder / f"events-{options.events}"
    if not log.exists():
        report("generate", options.events, measured(lambda: export(GeneratedSource(options.events), log)))
    prepare_local_workers()
    spark = (
        SparkSession.builder.master(options.master)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    uri, out = log.absolute().as_uri(), (folder / "out").absolute()
    spark.range(1_000).count()  # starts the session's threads
    jobs: dict[str, Callable[[], Any]] = {
        "count (Spark SQL)": lambda: (
            spark.read.parquet(f"{uri}/topic={CONSUMER_OFFSETS}").agg({"key": "max", "offset": "count"}).collect()
        ),
        "rebuild, first of the session": lambda: rebuild(spark, uri, out.as_uri()),
        "rebuild through Spark's readers and writers": lambda: rebuild(spark, uri, out.as_uri()),
        "rebuild of a local folder": lambda: rebuild(spark, log, out),
    }
    for name, job in jobs.items():
        report(name, options.events, measured(job))
        shutil.rmtree(out, ignore_errors=True)
    spark.stop()
    if options.peer:
        report("kafka-python and pandas", options.events // 100, read_with_pandas(options.events // 100, folder))


if __name__ == "__main__":
    main()
