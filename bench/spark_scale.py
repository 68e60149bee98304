"""Rebuilds of large logs through Spark's readers and writers: rates, memory, and growth.

    python -m bench.spark_scale --events 1000000 --folder FOLDER [--master local[2]] [--peer] >>RESULTS
    python -m bench.spark_scale --events 1000000 --folder FOLDER --cluster >>RESULTS
    python -m bench.spark_scale_report RESULTS

The log has 200 partitions, of which one has 30 % of the events. Each partition has its own
groups, which commit the same offsets repeatedly. The events are generated from prepared batches. The last 1 % of each
partition is in separate files.

Each line of the output is a JSON object. It has the job, wall seconds, processor seconds of the JVM and all its
workers, events per processor second, and peak memory of the processes in MB. `--peer` also reads 1 % of the events with
kafka-python and pandas from `kcore serve`. `--cluster` starts a master and two workers with a core each, and runs the
jobs there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from bench.spark_scale_report import (
    BEFORE,
    COUNT,
    DAY,
    DAY_WITH_CHECKPOINTS,
    EMPTY_DAY,
    EMPTY_DAY_WITH_CHECKPOINTS,
    FIRST,
    LOCAL,
    ONE_PROCESS,
    PEER,
    READING,
    REPLAYING,
    ROWS,
    START,
    THROUGH_SPARK,
    WRITING,
)
from kcore.demo.spark_cluster import HOST, Cluster, in_environment
from kcore.protocol.records import CONSUMER_OFFSETS, decode_key, decode_value
from kcore.runtime.partitioner import partition_for
from kcore.spark.events.arrow import EVENT_SCHEMA, filled_array, from_batch
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.export.exporter import ExportSource, export
from kcore.spark.jobs.rebuild import END, Moment, rebuild, rebuild_with_uncertainties
from kcore.spark.jobs.session import prepare_local_workers, settings_of
from kcore.spark.state.batch_replay import REPLAYED, BatchReplay
from kcore.spark.state.live_records import COMMITTED
from kcore.spark.state.table_batches import TableBatch, all_tables
from kcore.spark.state.table_files import write_tables
from kcore.testing import ServerProcess
from kcore_ext.group.offsets import OffsetAndMetadata
from kcore_ext.spark.offset_columns import OffsetRecords

PARTITIONS = 200
LARGEST = 0.3
GROUPS = 10
"""Number of groups per partition, each with a hundred offsets. The first partition has more groups."""
LARGEST_GROUPS = 300
VARIANTS = 4
WALL_MS = 1_700_000_000_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DAY_PERCENT = 1
FOLDERS = ("out", "previous", "following")
START_EVENTS = 20_000
"""Number of events in a small log, on average a hundred per partition. Its rebuild measures the startup costs."""


def names_by_partition() -> list[list[str]]:
    """Returns the groups of each partition, by the hash of their names. The first partition has more groups than the
    others.
    """
    names_: list[list[str]] = [[] for _ in range(PARTITIONS)]
    number = 0
    while any(len(names) < (GROUPS if at else LARGEST_GROUPS) for at, names in enumerate(names_)):
        name = f"group-{number}"
        names = names_[partition_for(name, PARTITIONS)]
        if len(names) < LARGEST_GROUPS:
            names.append(name)
        number += 1
    return [names[: GROUPS if at else LARGEST_GROUPS] for at, names in enumerate(names_)]


class GeneratedSource(Source):
    """A log of committed offsets that is generated while it is read.

    Args:
        events: the number of events in all partitions.
    """

    def __init__(self, events: int) -> None:
        rest = int(events * (1 - LARGEST)) // (PARTITIONS - 1)
        self._sizes = [events - rest * (PARTITIONS - 1), *[rest] * (PARTITIONS - 1)]
        self._names = names_by_partition()

    def sizes(self) -> dict[tuple[str, int], int]:
        """Returns the number of events of each partition."""
        return {(CONSUMER_OFFSETS, number): size for number, size in enumerate(self._sizes)}

    def parts(self) -> list[Part]:
        """Returns the partitions."""
        return [Part(CONSUMER_OFFSETS, number, 0, size) for number, size in enumerate(self._sizes)]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        """Yields the events of `read_batches` as rows."""
        return chain.from_iterable(map(from_batch, self.read_batches(span)))

    def read_batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yields events with committed offsets, up to the end of a partition.

        Each group of the partition commits all of its offsets again and again, each time with other values.

        Args:
            span: the partition, and the offset of the first event.
        """
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
    columns: dict[str, Any] = {
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
        columns[field.name] if field.name in columns else pa.repeat(pa.scalar(fixed[field.name], field.type), size)
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
    """Returns the processor time of a process and of its ended children, in ticks of the kernel's clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _peak(pid: int) -> tuple[str, int]:
    """Returns the program of a process, and its peak memory in kB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    # Not the name of the process: a new one has that of the thread that started it.
    program = Path(f"/proc/{pid}/exe").readlink().name.rstrip("0123456789.")
    return "driver" if pid == os.getpid() else program, int(status.get("VmHWM", "0 kB").split()[0])


def _read(function: Callable[[int], Any], pid: int, missing: Any) -> Any:
    """Calls a function on a process; returns `missing` if the process has ended."""
    try:
        return function(pid)
    except (FileNotFoundError, ProcessLookupError):
        return missing


def measured(job: Callable[[], Any]) -> Usage:
    """Runs a job. Measures this process and its descendants."""
    done, peaks = threading.Event(), dict[str, int]()

    def sample() -> None:
        while True:
            for pid in [os.getpid(), *_read(lambda own: list(_children(own)), os.getpid(), [])]:
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


def report(name: str, events: int, usage: Usage, where: str, shares: Mapping[str, float] | None = None) -> None:
    """Prints the measurement of one job as a line of JSON.

    Args:
        name: the name of the job.
        events: the number of events in the log.
        usage: the time and memory that the job took.
        where: the Spark master of the job, or `cluster`.
        shares: processor seconds by the parts of the work, if known.
    """
    line = {
        "job": name,
        "where": where,
        "events": events,
        "wall_s": round(usage.wall_s, 2),
        "cpu_s": round(usage.cpu_s, 2),
        "events_per_cpu_s": round(events / usage.cpu_s) if usage.cpu_s else None,
        "peak_mb": usage.peak_mb,
        **({} if shares is None else {"shares": {part: round(seconds, 2) for part, seconds in shares.items()}}),
    }
    print(json.dumps(line), flush=True)


# ---- the jobs


def generated(folder: Path, events: int) -> Path:
    """Returns the export of a log, and generates it if it does not exist. The last 1 % of each partition is in separate
    files.
    """
    log = folder / f"events-{events}"
    if not log.exists():
        making = log.with_suffix(".part")
        for end in (events * (100 - DAY_PERCENT) // 100, events):
            export(GeneratedSource(end), making)
        making.rename(log)
    return log


def jobs(spark: SparkSession, log: Path, folder: Path, events: int, clustered: bool) -> dict[str, Callable[[], Any]]:
    """Returns the jobs by name, in the order in which they must run.

    Args:
        spark: a session.
        log: the folder of the exported log.
        folder: the folder for output and for the small log whose rebuild measures the startup costs.
        events: the number of events in the log.
        clustered: True to pass all data through Spark's readers and writers.
    """
    uri, (out, previous, following) = log.absolute().as_uri(), ((folder / name).absolute() for name in FOLDERS)
    before = Moment(GeneratedSource(events * (100 - DAY_PERCENT) // 100).sizes())
    small = generated(folder, START_EVENTS).absolute()

    def as_argument(path: Path) -> Path | str:
        return path.as_uri() if clustered else path

    def run(source: Path, to: Path, moment: Moment = END, **options: Any) -> Callable[[], Any]:
        return lambda: rebuild_with_uncertainties(spark, as_argument(source), as_argument(to), moment, **options)

    jobs_: dict[str, Callable[[], Any]] = {
        COUNT: lambda: (
            spark.read.parquet(f"{uri}/topic={CONSUMER_OFFSETS}").agg({"key": "max", "offset": "count"}).collect()
        ),
        FIRST: lambda: rebuild(spark, uri, out.as_uri()),
        THROUGH_SPARK: lambda: rebuild(spark, uri, out.as_uri()),
    }
    if not clustered:
        jobs_[LOCAL] = lambda: rebuild(spark, log, out)
    jobs_ |= {
        START: run(small, out),
        BEFORE: run(log, previous, before, checkpoint=True),
        DAY: run(log, out, since=as_argument(previous)),
        DAY_WITH_CHECKPOINTS: run(log, following, since=as_argument(previous), checkpoint=True),
        EMPTY_DAY: run(log, out, since=as_argument(following)),
        EMPTY_DAY_WITH_CHECKPOINTS: run(log, out, since=as_argument(following), checkpoint=True),
    }
    return jobs_


def without_spark(log: Path, folder: Path) -> dict[str, float]:
    """Does the work of all tasks of a local rebuild in this process. Returns CPU seconds by the parts of the work."""
    shares = dict.fromkeys((READING, REPLAYING, ROWS, WRITING), 0.0)

    def timed(part: str, iterator: Iterator[Any]) -> Iterator[Any]:
        while True:
            begin_s = time.process_time()
            try:
                one = next(iterator)
            except StopIteration:
                return
            finally:
                shares[part] += time.process_time() - begin_s
            yield one

    def tables() -> Iterator[TableBatch]:
        source = ExportSource(log)
        for part in source.parts():
            replay = BatchReplay(*part[:2], cleaned_to=part.cleaned_to)
            columns = [name for name, _ in REPLAYED]
            for batch in timed(READING, source.batches(part, columns=columns)):
                begin_s = time.process_time()
                replay.add(batch)
                shares[REPLAYING] += time.process_time() - begin_s
            yield from timed(ROWS, all_tables([replay.end(part.active_offset, part.log_start)]))

    begin_s = time.process_time()
    list(write_tables(tables(), folder))
    shares[WRITING] = time.process_time() - begin_s - sum(shares.values())
    return shares


# ---- the peer


def read_with_pandas(events: int, folder: Path) -> Usage:
    """Reads 1 % of the log with kafka-python and keeps the newest offset of each key with pandas.

    The records are written to an ordinary topic, because the server's internal topic contains the server's own records.
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


def session(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Returns a session whose threads and workers have started."""
    builder: Any = SparkSession.builder.master(master)
    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
    }
    for name, value in {**fixed, **settings_of("rebuild", ()), **settings}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.range(1_000).count()
    return spark


def main() -> None:
    """Generates the log and runs the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="a folder for the log and the tables")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--cluster", action="store_true", help="run on a master and two workers instead")
    parser.add_argument("--peer", action="store_true", help="also run kafka-python with pandas on 1 %% of the events")
    parser.add_argument("--generate", action="store_true", help="only make the log")
    options = parser.parse_args()
    folder: Path = options.folder
    where = "cluster" if options.cluster else options.master
    log = folder / f"events-{options.events}"
    if not log.exists():
        report("generate", options.events, measured(lambda: generated(folder, options.events)), where)
    if options.generate:
        return
    prepare_local_workers()
    with ExitStack() as stack:
        master, settings = options.master, dict[str, str]()
        if options.cluster:
            shutil.rmtree(folder / "cluster", ignore_errors=True)
            cluster = stack.enter_context(Cluster((folder / "cluster").absolute(), ()))
            stack.enter_context(in_environment({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}))
            master, settings = cluster.master, cluster.settings()
        spark = session(master, settings)
        for name, job in jobs(spark, log, folder, options.events, options.cluster).items():
            report(name, options.events, measured(job), where)
            shutil.rmtree(folder / FOLDERS[0], ignore_errors=True)
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        spark.stop()
    if not options.cluster:
        shares: dict[str, float] = {}
        usage = measured(lambda: shares.update(without_spark(log, folder / FOLDERS[0])))
        report(ONE_PROCESS, options.events, usage, where, shares)
        shutil.rmtree(folder / FOLDERS[0])
    if options.peer:
        report(PEER, options.events // 100, read_with_pandas(options.events // 100, folder), where)


if __name__ == "__main__":
    main()
