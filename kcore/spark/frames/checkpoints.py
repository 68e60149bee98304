"""The checkpoints of a rebuild as files: written with its tables, and found by the run that continues from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kcore.errors import KcoreError
from kcore.spark.export.storage import LocalStorage
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.logs import Beside, EventLogs, LocalLogs, is_local
from kcore.spark.frames.output import PARQUET, Output
from kcore.spark.state.table_files import PLACE, SUCCESS
from kcore.spark.state.table_schemas import CHECKPOINT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def forget_checkpoints(target: Output) -> None:
    """Marks the checkpoints of an earlier run in the same output as incomplete: its tables will not fit them."""
    if target.files is not None and target.replaces:
        target.files.delete(f"{CHECKPOINT}/{SUCCESS}")


def write_checkpoints(target: Output, checkpoints: DataFrame) -> None:
    """Writes checkpoints as Parquet, in a folder for each partition.

    Raises:
        KcoreError: the output has no folder, or keeps rows of earlier runs.
    """
    if target.files is None or not target.replaces:
        raise KcoreError("checkpoints need an output with a folder, and the mode overwrite or error")
    writer = checkpoints.write.format(PARQUET).mode("overwrite").partitionBy(*PLACE)
    writer.save(f"{target.files.uri}/{CHECKPOINT}")


def checkpoints_at(spark: SparkSession, logs: EventLogs, previous: str | Path) -> Beside:
    """Returns the checkpoints in the output of an earlier run.

    Raises:
        KcoreError: there are none, they are incomplete, or executors cannot read them with these logs.
    """
    local = is_local(spark, previous)
    if local != isinstance(logs, LocalLogs):
        raise KcoreError(f"{previous} and {logs.name}: name both as paths or both as URIs")
    files = LocalStorage(Path(previous).absolute()) if local else HadoopFiles(spark, previous)
    names: dict[tuple[str, int], tuple[str, ...]] = {}
    complete = False
    for name in sorted(files.sizes()):
        complete |= name == f"{CHECKPOINT}/{SUCCESS}"
        for place in _place_of(name):
            names[place] = (*names.get(place, ()), name)
    if not complete or not names:
        raise KcoreError(f"{previous} has no complete checkpoints: rebuild with --checkpoint first")
    rows = spark.read.parquet(f"{files.uri}/{CHECKPOINT}").where("number = 0").select(*PLACE, "offset").collect()
    return Beside(files.uri, names, {(str(topic), int(partition)): offset for topic, partition, offset in rows})


def _place_of(name: str) -> Iterator[tuple[str, int]]:
    """Yields the partition of a checkpoint's file: checkpoint/topic=T/partition=N/FILE.parquet."""
    parts = name.split("/")
    if len(parts) == 4 and parts[0] == CHECKPOINT and parts[3].endswith(".parquet") and parts[3][0] not in "._":
        yield unquote(parts[1].partition("=")[2]), int(parts[2].partition("=")[2])
