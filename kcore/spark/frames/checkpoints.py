"""Writes the checkpoints of a rebuild beside its tables, and finds them for a later run that continues from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kcore.errors import KcoreError
from kcore.spark.export.storage import Files, LocalStorage
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.logs import Beside, EventLogs, LocalLogs, is_local
from kcore.spark.frames.output import PARQUET, Output
from kcore.spark.state.table_files import INDEX, PLACE, index_of, indexed_offsets, place_of
from kcore.spark.state.table_schemas import CHECKPOINT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def forget_checkpoints(target: Output) -> None:
    """Marks the checkpoints of an earlier run in this output as incomplete, because its tables are about to change."""
    if target.files is not None and target.replaces:
        target.files.delete(f"{CHECKPOINT}/{INDEX}")


def write_checkpoints(target: Output, checkpoints: DataFrame) -> None:
    """Writes checkpoints as Parquet, in a folder for each partition, and an index, which marks them as complete.

    Raises:
        ConfigError: the output has no folder, or its mode is `append`, which keeps the rows of earlier runs.
    """
    target.check_checkpoints()
    assert target.files is not None, "the check refuses an output without a folder"
    writer = checkpoints.write.format(PARQUET).mode("overwrite").partitionBy(*PLACE)
    writer.save(f"{target.files.uri}/{CHECKPOINT}")
    heads = checkpoints.where("number = 0").select(*PLACE, "offset").collect()
    offsets = {(topic, partition): offset for topic, partition, offset in heads}
    target.files.write(f"{CHECKPOINT}/{INDEX}", index_of(offsets))


def checkpoints_at(spark: SparkSession, logs: EventLogs, previous: str | Path) -> Beside:
    """Returns the checkpoints in the output of an earlier run.

    Raises:
        KcoreError: the output has no checkpoints, or the checkpoints are incomplete. Or the output is on this machine
            and the logs are elsewhere, or the reverse.
    """
    local = is_local(spark, previous)
    if local != isinstance(logs, LocalLogs):
        raise KcoreError(f"{previous} and {logs.name}: name both as paths or both as URIs")
    return local_checkpoints(previous) if local else _checkpoints_in(HadoopFiles(spark, previous), previous)


def local_checkpoints(previous: str | Path) -> Beside:
    """Returns the checkpoints in the output of an earlier run on this machine.

    Raises:
        KcoreError: the output has no checkpoints, or they are incomplete.
    """
    return _checkpoints_in(LocalStorage(Path(previous).absolute()), previous)


def _checkpoints_in(files: Files, previous: str | Path) -> Beside:
    names: dict[tuple[str, int], tuple[str, ...]] = {}
    for name in sorted(files.sizes()):
        for place in place_of(name):
            names[place] = (*names.get(place, ()), name)
    try:
        offsets = indexed_offsets(files.read(f"{CHECKPOINT}/{INDEX}"))
    except FileNotFoundError:
        offsets = {}
    if not offsets:
        raise KcoreError(f"{previous} has no complete checkpoints: rebuild with --checkpoint first")
    if names.keys() != offsets.keys():
        raise KcoreError(f"some files of the checkpoints in {previous} are missing: rebuild with --checkpoint first")
    return Beside(files.uri, names, offsets)
