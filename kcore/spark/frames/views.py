"""SQL views over the tables of jobs and over logs: current offsets, lag, owners, commits.

`register_views` adds them to a session. Their columns have comments, which `DESCRIBE` shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kcore.errors import KcoreError
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.decode.columns import decode
from kcore.spark.frames.logs import LogSource, exists_at, logs_at
from kcore.spark.frames.output import DELTA_LOG, ICEBERG, INCOMPLETE, PARQUET, REBUILD_DONE, TIMELINE_DONE
from kcore.spark.frames.transforms import coordinator_events
from kcore.spark.state.table_schemas import GROUP, NUMBER, TABLES, TOPIC, Columns
from kcore.spark.timeline.tables import TABLES as TIMELINE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX: Final = "kcore_"
OFFSET: Final = ("offset", "bigint", "the committed offset")

VIEWS: Final[dict[str, Columns]] = {
    "current_offsets": (
        GROUP,
        TOPIC,
        NUMBER,
        OFFSET,
        *(column for column in TABLES["offsets"] if column[0] in ("metadata", "commit_timestamp_ms")),
        ("group_type", "string", "classic, consumer, share or streams; null for offsets without a group"),
        ("group_state", "string", "the group's state under Kafka's name"),
        ("member_count", "int", "number of members of the group"),
    ),
    "log_ends": (
        TOPIC,
        NUMBER,
        ("start_offset", "bigint", "the first offset in the source"),
        ("end_offset", "bigint", "the offset after the last one; null for segment files, which do not tell it"),
    ),
    "lag": (
        GROUP,
        TOPIC,
        NUMBER,
        OFFSET,
        ("end_offset", "bigint", "the end of the partition; null if the source lacks its log"),
        ("lag", "bigint", "number of offsets from the committed one to the end; null if the end is unknown"),
    ),
    "commits": (
        GROUP,
        TOPIC,
        NUMBER,
        ("timestamp_ms", "bigint", "the time of the record"),
        ("offset", "bigint", "the committed offset; null: the record removes it"),
        ("record_offset", "bigint", "the offset of the record in __consumer_offsets"),
    ),
    "owners": (
        GROUP,
        ("topic", "string", "its name (classic), its id (consumer, share) or TASKTYPE:SUBTOPOLOGY (streams)"),
        NUMBER,
        ("member_id", "string", "the member that owned the partition; null: no member did"),
        ("client_id", "string", "its client id"),
        ("from_ms", "bigint", "since when"),
        ("to_ms", "bigint", "until when; null: at the end of the log"),
    ),
}
"""View -> its columns. Views of the tables of rebuild and timeline are left out, because they have the columns of the
tables.
"""


def register_views(
    spark: SparkSession,
    *,
    state: str | Path | None = None,
    events: LogSource | None = None,
    timeline: str | Path | None = None,
    prefix: str = PREFIX,
    form: str = "parquet",
) -> list[str]:
    """Registers temporary views over the outputs of jobs and over logs. Spark reads their rows only in queries.

    Args:
        spark: a session.
        state: the output of a rebuild, for views of its tables, and `current_offsets`.
        events: the logs, for the views `log_ends`, `commits` (not of a live cluster) and `lag` (only if `state` is
            also given).
        timeline: the output of a timeline, for views of its tables, named `timeline_NAME`, and `owners`.
        prefix: the beginning of all names.
        form: the format of the tables.

    Returns:
        The names of the views.

    Raises:
        KcoreError: there are no logs at `events`, the tables are of Delta Lake but `form` is `parquet`, or the job that
            writes the tables is still running or failed.
    """
    views: dict[str, tuple[DataFrame, Columns]] = {}
    if form != ICEBERG:
        _check_complete(spark, state, REBUILD_DONE)
        _check_complete(spark, timeline, TIMELINE_DONE)

    def table(folder: str | Path, name: str, columns: Columns) -> DataFrame:
        reader = spark.read.format(form)
        if form == PARQUET and exists_at(spark, f"{folder}/{name}/{DELTA_LOG}"):
            raise KcoreError(f'{folder} has tables of Delta Lake: pass form="delta"')
        if form == PARQUET:  # a table that a stream keeps has no files until it has rows
            reader = reader.schema(", ".join(f"`{column}` {kind}" for column, kind, _ in columns))
        return reader.load(f"{folder}/{name}")

    if state is not None:
        tables = {name: table(state, name, TABLES[name]) for name in TABLES}
        views.update({name: (frame, TABLES[name]) for name, frame in tables.items()})
        views["current_offsets"] = current_offsets(tables["offsets"], tables["groups"]), VIEWS["current_offsets"]
    if events is not None:
        views["log_ends"] = log_ends(spark, events), VIEWS["log_ends"]
        if isinstance(events, str | Path):
            rows = spark.read.format("kcore").option("topic", CONSUMER_OFFSETS).load(str(events))
            views["commits"] = commits(rows), VIEWS["commits"]
        if state is not None:
            views["lag"] = lag(views["current_offsets"][0], views["log_ends"][0]), VIEWS["lag"]
    if timeline is not None:
        frames = {name: table(timeline, name, TIMELINE_TABLES[name]) for name in TIMELINE_TABLES}
        views.update({f"timeline_{name}": (frame, TIMELINE_TABLES[name]) for name, frame in frames.items()})
        views["owners"] = owners(frames["moves"], frames["rebalances"]), VIEWS["owners"]
    for name, (frame, columns) in views.items():
        commented(frame, columns).createOrReplaceTempView(f"{prefix}{name}")
    return [f"{prefix}{name}" for name in views]


def _check_complete(spark: SparkSession, folder: str | Path | None, done: str) -> None:
    """Raises KcoreError if a job is changing the tables in a folder, or failed before it had changed all tables."""
    if folder is None or not exists_at(spark, f"{folder}/{done}{INCOMPLETE}"):
        return
    if not exists_at(spark, f"{folder}/{done}"):
        raise KcoreError(
            f"the tables in {folder} are incomplete, because a job writes them or did not end: wait for its end, or "
            "run it again"
        )


def commented(frame: DataFrame, columns: Columns) -> DataFrame:
    """Returns these columns of a frame, with their meanings as comments."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return frame.select(*(f.col(name).alias(name, metadata={"comment": meaning}) for name, _, meaning in columns))


def current_offsets(offsets: DataFrame, groups: DataFrame) -> DataFrame:
    """Returns the committed offsets with the states of their groups, without pending offsets of open transactions."""
    about = groups.selectExpr("group_id", "group_type", "state as group_state", "member_count")
    return offsets.where("not pending").join(about, "group_id", "left")


def log_ends(spark: SparkSession, events: LogSource) -> DataFrame:
    """Returns the first offset and the end offset of each log, without reading the logs."""
    rows = [(part.topic, part.partition, part.start, part.end) for part in logs_at(spark, events).parts()]
    return spark.createDataFrame(rows, "topic string, partition int, start_offset bigint, end_offset bigint")


def lag(current: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the lag of each committed offset."""
    joined = current.join(ends, ["topic", "partition"], "left")
    return joined.selectExpr("*", "if(end_offset is null, null, greatest(end_offset - offset, 0)) as lag")


def commits(events: DataFrame) -> DataFrame:
    """Returns the records of committed offsets as rows, in any order, including the records of aborted transactions."""
    decoded = decode(coordinator_events(events), ["OffsetCommit"]).where("OffsetCommit is not null")
    return decoded.selectExpr(
        "OffsetCommit.key.group as group_id",
        "OffsetCommit.key.topic as topic",
        "OffsetCommit.key.partition as partition",
        "unix_millis(timestamp) as timestamp_ms",
        "OffsetCommit.value.offset as offset",
        "offset as record_offset",
    )


def owners(moves: DataFrame, rebalances: DataFrame) -> DataFrame:
    """Returns the intervals during which members owned partitions.

    An interval begins when the rebalance that moved the partition was completed or superseded. It ends with the next
    rebalance that moved the partition. A partition that a member lost and no member gained has no owner.
    """
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    times = rebalances.selectExpr("group_id", "epoch", "start_offset", "coalesce(end_ms, start_ms) as from_ms")
    columns = ("group_id", "epoch", "start_offset", "member_id", "client_id")
    gained = moves.selectExpr(*columns, "explode(gained) as moved", "true as gains")
    lost = moves.selectExpr(*columns, "explode(lost) as moved", "false as gains")
    placed = gained.unionByName(lost).join(times, ["group_id", "epoch", "start_offset"])
    place = ("group_id", "moved.topic", "moved.partition")
    steps = placed.groupBy(*place, "start_offset", "from_ms").agg(
        f.max(f.when(f.col("gains"), f.struct("member_id", "client_id"))).alias("owner")
    )
    following = Window.partitionBy("group_id", "topic", "partition").orderBy("start_offset")
    intervals = steps.withColumn("to_ms", f.lead("from_ms").over(following))
    return intervals.selectExpr("*", "owner.member_id as member_id", "owner.client_id as client_id")
