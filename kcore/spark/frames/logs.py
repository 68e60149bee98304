"""The event logs of a job: local folders, folders at URIs, and live clusters.

`EventLogs.run` runs a function on every partition, in one task per partition and in offset order, and returns a frame
of the results. The tasks themselves read local folders; Spark's own readers read all other logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.errors import KcoreError
from kcore.spark.events.sources import Part, Source, is_cluster, open_source
from kcore.spark.export.storage import is_uri
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.stored_files import FILE_DDL, sources_of, stored_log

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark's setting for the number of tasks that list files."""
LISTING_TASKS_PER_CORE: Final = 8

Give = Callable[[Iterable[tuple[Source, Part]]], Iterator["pa.RecordBatch"]]
"""A function for executors: reads partitions from their sources, one after the other, and yields results."""


class KafkaCluster(NamedTuple):
    """A live cluster as the source of a job.

    Attributes:
        bootstrap: HOST:PORT of a broker.
        options: settings of Kafka's clients, without the prefix `kafka.`: TLS and SASL, for example.
    """

    bootstrap: str
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"kafka://{self.bootstrap}"


class Beside(NamedTuple):
    """The files that a job needs beside the logs: the checkpoints of an earlier run.

    Attributes:
        uri: the folder of the checkpoints.
        names: partition -> the names of its files in the folder.
        starts: partition -> the offset from which the log is read.
    """

    uri: str
    names: Mapping[tuple[str, int], tuple[str, ...]]
    starts: Mapping[tuple[str, int], int]


LogSource = str | Path | KafkaCluster
"""The source of event logs: a path, a URI, or a cluster."""


class EventLogs(ABC):
    """The event logs of one export, folder, store or cluster.

    Attributes:
        name: the path, URI or address, for messages.
        hides_control: True if the rows lack transaction markers, which then look like gaps.
    """

    name: str
    hides_control = False

    @abstractmethod
    def parts(self) -> list[Part]:
        """Returns the partitions, by topic and number."""

    @abstractmethod
    def run(self, parts: Iterable[Part], give: Give, ddl: str, beside: Beside | None = None) -> DataFrame:
        """Runs a function on partitions, and returns its results.

        Args:
            parts: the partitions to pass to the function.
            give: the function, which runs on executors (see `Give`).
            ddl: the columns of the function's results.
            beside: other files that the function needs; None: the function needs no other files.
        """


def shares(parts: Iterable[Part], count: int) -> list[list[Part]]:
    """Distributes partitions among at most `count` tasks, of which each has at least one partition.

    The tasks receive partitions in turn, the largest partition first.
    """
    sized = sorted(parts, key=lambda part: (part.start - (part.end or part.start), *part[:2]))
    return [share for number in range(count) if (share := sized[number::count])]


class LocalLogs(EventLogs):
    """The logs that the tasks read themselves: a local export, data folder or segment files, or a cluster's store."""

    def __init__(self, spark: SparkSession, path: str | Path) -> None:
        self._spark = spark
        self.name = str(path)
        with open_source(path) as source:
            self._parts = source.parts()
            self._parallel = source.parallel

    def parts(self) -> list[Part]:
        """Implements `EventLogs.parts`."""
        return self._parts

    def run(self, parts: Iterable[Part], give: Give, ddl: str, beside: Beside | None = None) -> DataFrame:
        """Implements `EventLogs.run`."""
        tasks = shares(parts, 4 * self._spark.sparkContext.defaultParallelism if self._parallel else 1)
        folder = self.name

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with open_source(folder) as source:
                if beside is not None:
                    source.beside = partial(_local_files, beside)
                for batch in batches:
                    for task in batch.column("id").to_pylist():
                        yield from give((source, part) for part in tasks[task])

        return self._spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, ddl)


class StoredLogs(EventLogs):
    """An export or segment files at a URI, read by Spark's `binaryFile` reader."""

    def __init__(self, spark: SparkSession, uri: str | Path) -> None:
        self._spark = spark
        files = HadoopFiles(spark, uri)
        self._uri = files.uri
        self.name = str(uri)
        self._log = stored_log(files)

    def parts(self) -> list[Part]:
        """Implements `EventLogs.parts`."""

        def unread(name: str) -> Any:
            raise KcoreError(f"{self.name}: {name} can only be read in Spark tasks")

        return self._log.source(unread).parts()

    def run(self, parts: Iterable[Part], give: Give, ddl: str, beside: Beside | None = None) -> DataFrame:
        """Implements `EventLogs.run`."""
        tasks = shares(parts, 4 * self._spark.sparkContext.defaultParallelism)
        ordered = [part for task in tasks for part in task]
        log = self._log
        others = None if beside is None else {place: uris_of(beside, place) for place in beside.names}

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from give(sources_of(batches, log, ordered, others))

        frame = self._files(tasks, beside or Beside("", {}, {}))
        return in_tasks(frame, len(tasks), ("part", "number")).mapInArrow(run, ddl)

    def _files(self, tasks: list[list[Part]], beside: Beside) -> DataFrame:
        """Returns the files of all tasks as rows of `FILE_DDL`, in any order.

        In each partition, the column `number` orders the files beside the log before the files of the log.
        """
        from pyspark.sql import functions as f  # noqa: PLC0415

        starts: list[tuple[Any, ...]] = []
        rows: list[tuple[Any, ...]] = []
        index = 0
        for task, of_task in enumerate(tasks):
            for part in of_task:
                starts.append((task, index, -1, "", b""))
                place = part[:2]
                unneeded = self._log.source.ends_before(place, beside.starts.get(place, 0))
                names = [name for name in self._log.files[place] if name not in unneeded]
                files = [(uri, uri) for uri in uris_of(beside, place)]
                files += [(name, f"{self._uri}/{name}") for name in names]
                rows += [(task, index, number, *file) for number, file in enumerate(files)]
                index += 1
        first = self._spark.createDataFrame(starts, FILE_DDL)
        if not rows:
            return first
        places = self._spark.createDataFrame(rows, "task int, part int, number int, name string, path string")
        with _listing_tasks(self._spark):
            contents = self._spark.read.format("binaryFile").load([row[-1] for row in rows]).select("path", "content")
        joined = contents.join(f.broadcast(places), "path").select("task", "part", "number", "name", "content")
        return first.unionByName(joined)


@contextmanager
def _listing_tasks(spark: SparkSession) -> Iterator[None]:
    """Limits the number of tasks with which Spark lists files. By default, each file has a task, which costs 12 ms."""
    before = str(spark.conf.get(LISTING))
    spark.conf.set(LISTING, str(min(int(before), LISTING_TASKS_PER_CORE * spark.sparkContext.defaultParallelism)))
    try:
        yield
    finally:
        spark.conf.set(LISTING, before)


def uris_of(beside: Beside, place: tuple[str, int]) -> list[str]:
    """Returns the URIs of a partition's checkpoints, which a job needs beside its log."""
    return [f"{beside.uri}/{name}" for name in beside.names.get(place, ())]


def _local_files(beside: Beside, part: Part) -> list[Any]:
    """Reads the files beside a partition's log from a local folder."""
    import pyarrow as pa  # noqa: PLC0415

    folder = Path(beside.uri)
    return [pa.py_buffer((folder / name).read_bytes()) for name in beside.names.get(part[:2], ())]


def in_tasks(frame: DataFrame, tasks: int, order: tuple[str, ...]) -> DataFrame:
    """Sends each row to the task that its column `task` names, and sorts the rows of each task by the columns
    `order`.
    """
    if not hasattr(frame, "repartitionById"):  # before Spark 4.1: a task may get several numbers, or none
        return frame.repartition(max(1, tasks), "task").sortWithinPartitions(*order)
    return frame.repartitionById(max(1, tasks), "task").sortWithinPartitions(*order)


def is_local(spark: SparkSession, path: str | Path) -> bool:
    """Returns True if the session resolves a path on this machine.

    A session on a Spark cluster resolves paths on the cluster's default file system.
    """
    return not is_uri(path) and str(spark.sparkContext.master).startswith("local")


def exists_at(spark: SparkSession, place: str | Path) -> bool:
    """Returns True if a path or URI exists, as the session resolves it."""
    return Path(place).exists() if is_local(spark, place) else HadoopFiles(spark, place).exists("")


def logs_at(spark: SparkSession, source: LogSource | EventLogs) -> EventLogs:
    """Opens the event logs of a source.

    Raises:
        KcoreError: there are no logs, or the source cannot be read.
    """
    if isinstance(source, EventLogs):
        return source
    if isinstance(source, KafkaCluster):
        from kcore.spark.frames.kafka_logs import KafkaLogs  # noqa: PLC0415

        return KafkaLogs(spark, source)
    # The tasks read the database of a cluster themselves, wherever they run.
    by_tasks = is_cluster(source) or is_local(spark, source)
    return LocalLogs(spark, source) if by_tasks else StoredLogs(spark, source)
