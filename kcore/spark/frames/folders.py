"""Rebuilds states from event logs: each task replays its own coordinator partitions in offset order.

`transforms` rebuilds the same states from events in a DataFrame, for example from Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kcore.errors import KcoreError
from kcore.protocol.records.base import SHARE_GROUP_STATE
from kcore.spark.frames.logs import Beside, EventLogs, LogSource, logs_at
from kcore.spark.frames.transforms import CHECKPOINTED_DDL, STATE_DDL
from kcore.spark.state.partition_state import COORDINATOR_TOPICS, LOSSES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kcore.spark.events.sources import Part, Source
    from kcore.spark.state.rebuild import AsOf, Rebuilt, Resumed

Moments = Mapping[tuple[str, int], "AsOf"]
Give = Callable[[Iterable["Rebuilt"]], Iterator["pa.RecordBatch"]]


def folder_state(
    spark: SparkSession,
    path: LogSource | EventLogs,
    *,
    topics: Iterable[str] = COORDINATOR_TOPICS,
    partitions: Iterable[int] | None = None,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
) -> DataFrame:
    """Returns the state of every coordinator partition in a folder, as rows of all tables (`transforms.STATE_DDL`).

    Args:
        spark: a session.
        path: an export, a data folder, or a broker's log folder, as a path or a URI; or a cluster.
        topics: the internal topics to rebuild.
        partitions: the numbers of the partitions to rebuild in each topic; None: all.
        offsets: (topic, partition) -> the offset before which to stop; other partitions are read to their ends.
        timestamp_ms: stop before the first record with a later timestamp.

    Raises:
        KcoreError: an offset names a missing partition.
    """
    return _replayed(spark, path, (topics, partitions), (offsets, timestamp_ms), (_tables, STATE_DDL))


def folder_tables(
    spark: SparkSession,
    path: LogSource | EventLogs,
    staging: str | Path,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    checkpoint: bool = False,
    previous: Beside | None = None,
) -> DataFrame:
    """Writes the state to files in a folder that executors share; returns a row per file.

    `table_files.WRITTEN_DDL` has the columns, which are the input of `table_files.complete_tables`. `folder_state`
    documents the other arguments.

    Args:
        spark: a session.
        path: the logs, as for `folder_state`.
        staging: the shared folder that receives the files.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        checkpoint: True to write checkpoints, too.
        previous: the checkpoints to continue from; None: replays the logs from their start.
    """
    from kcore.spark.state.table_files import WRITTEN_DDL  # noqa: PLC0415

    folder = str(staging)

    def give(results: Iterable[Rebuilt]) -> Iterator[pa.RecordBatch]:
        return _files(results, folder, checkpoint)

    moment = (offsets, timestamp_ms)
    return _replayed(spark, path, (COORDINATOR_TOPICS, None), moment, (give, WRITTEN_DDL), previous, checkpoint)


def folder_checkpoints(
    spark: SparkSession,
    logs: EventLogs,
    previous: Beside | None,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    checkpoint: bool = True,
) -> DataFrame:
    """Returns the state and its checkpoints, as rows of `CHECKPOINTED_DDL`.

    Args:
        spark: a session.
        logs: the logs to replay.
        previous: the checkpoints to continue from; None: replays the logs from their start.
        offsets: (topic, partition) -> the offset before which to stop.
        timestamp_ms: stop before the first record with a later timestamp.
        checkpoint: False to return the state only, as rows of `STATE_DDL`.
    """
    moment = (offsets, timestamp_ms)
    output = (_checkpointed, CHECKPOINTED_DDL) if checkpoint else (_tables, STATE_DDL)
    return _replayed(spark, logs, (COORDINATOR_TOPICS, None), moment, output, previous, checkpoint)


def folder_live_records(
    spark: SparkSession,
    path: LogSource | EventLogs,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
) -> DataFrame:
    """Returns the records that make up the states of all coordinator partitions, in the columns of `EVENT_DDL`.

    Rows of a partition are adjacent and in replay order, as `LiveRecords.rows` yields them. `folder_state` documents
    the arguments.
    """
    from kcore.spark.events.arrow import EVENT_DDL  # noqa: PLC0415

    moment = (offsets, timestamp_ms)
    return _replayed(spark, path, (COORDINATOR_TOPICS, None), moment, (_live_records, EVENT_DDL), with_records=True)


def _replayed(
    spark: SparkSession,
    path: LogSource | EventLogs,
    selection: tuple[Iterable[str], Iterable[int] | None],
    moment: tuple[Mapping[tuple[str, int], int] | None, int | None],
    output: tuple[Give, str],
    beside: Beside | None = None,
    with_records: bool = False,
) -> DataFrame:
    from kcore.spark.state.rebuild import AsOf  # noqa: PLC0415

    (topics, partitions), (offsets, timestamp_ms), (give, ddl) = selection, moment, output
    names, numbers = frozenset(topics), None if partitions is None else frozenset(partitions)
    moments = {place: AsOf(offset, timestamp_ms) for place, offset in (offsets or {}).items()}
    otherwise = AsOf(None, timestamp_ms)
    logs = logs_at(spark, path)
    parts = [p for p in logs.parts() if p.topic in names and (numbers is None or p.partition in numbers)]
    _check_places(logs, offsets or {})
    hides_control = logs.hides_control
    starts = {} if beside is None else beside.starts

    def replay(pairs: Iterable[tuple[Source, Part]]) -> Iterator[pa.RecordBatch]:
        return give(
            rebuilt_of(source, part, moments.get(part[:2], otherwise), with_records, hides_control, part[:2] in starts)
            for source, part in pairs
        )

    return logs.run(parts, replay, ddl, beside)


def _check_places(logs: EventLogs, offsets: Mapping[tuple[str, int], int]) -> None:
    """Raises KcoreError if an offset is given for a missing partition, because its state cannot be rebuilt."""
    missing = sorted(offsets.keys() - {part[:2] for part in logs.parts()})
    if missing:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise KcoreError(f"{logs.name} does not contain {names}, but the options set an offset for it")


# ---- what runs on executors


def rebuilt_of(
    source: Source,
    part: Part,
    as_of: AsOf,
    with_records: bool,
    hides_control: bool = False,
    from_checkpoint: bool = False,
) -> Rebuilt:
    """Rebuilds one partition. Records the unreadable parts of its log as faults of its state.

    Args:
        source: the logs that contain the partition.
        part: the partition to rebuild.
        as_of: the offset or time up to which to replay the log.
        with_records: True to keep the records that make up the state.
        hides_control: True if the source lacks transaction markers, so that a gap may be a marker.
        from_checkpoint: True to continue from the checkpoint that `source.beside` returns.
    """
    from kcore.spark.events.event import LogFault  # noqa: PLC0415
    from kcore.spark.state.batch_replay import REPLAYED, rebuild_batches  # noqa: PLC0415

    unread: list[LogFault] = []
    resumed = _resumed(source, part) if from_checkpoint else None
    start = 0 if resumed is None else resumed.state.next_offset
    if start < part.log_start and _needs_no_front(part, as_of):
        resumed, start = None, part.log_start
    names = [name for name, _ in REPLAYED]
    result = rebuild_batches(
        *part[:2],
        source.batches(part, start, on_fault=unread.append, columns=names),
        as_of,
        cleaned_to=part.cleaned_to,
        active_offset=part.active_offset,
        log_start=part.log_start,
        hides_control=hides_control,
        with_records=with_records,
        resumed=resumed,
    )
    result.state.topic_id = part.topic_id or result.state.topic_id
    front = part.front
    if front is not None and resumed is None:  # the checkpoint contains the fault already
        result.state.completeness.lost = True
        result.state.fault(part.log_start, "front", front)
    for fault in unread:
        if fault.kind == "truncated" and fault.offset < min(part.active_offset or 0, result.state.next_offset):
            result.state.completeness.lost = True  # only the newest segment may be truncated
        if fault.kind in LOSSES and (not result.cut or fault.offset < (as_of.offset or 0)):
            result.state.completeness.lost = True  # damage may hide a gap made by compaction
        result.state.fault(fault.offset, fault.kind, fault.detail)
    return result


def _needs_no_front(part: Part, as_of: AsOf) -> bool:
    """Returns True if the records from the log start on are enough to rebuild the state as of a moment.

    The share coordinator deletes only records that precede the oldest snapshot that a state needs. A checkpoint from
    before the log start must not be used: the deleted records after it may include tombstones.
    """
    if part.topic != SHARE_GROUP_STATE or part.requested_start or as_of.timestamp_ms is not None:
        return False
    return as_of.offset is None or as_of.offset >= part.log_start


def _tables(results: Iterable[Rebuilt]) -> Iterator[pa.RecordBatch]:
    from kcore.spark.state.table_batches import all_tables, in_one_frame  # noqa: PLC0415

    return in_one_frame(all_tables(results))


def _files(results: Iterable[Rebuilt], folder: str, checkpoint: bool) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.decode.ddl import arrow_struct  # noqa: PLC0415
    from kcore.spark.state.table_batches import all_tables, tables_and_checkpoints  # noqa: PLC0415
    from kcore.spark.state.table_files import WRITTEN_DDL, write_tables  # noqa: PLC0415

    schema = pa.schema(list(arrow_struct(WRITTEN_DDL)))
    tables = tables_and_checkpoints(results) if checkpoint else all_tables(results)
    for written in write_tables(tables, folder):
        yield pa.RecordBatch.from_pylist([written._asdict()], schema)


def _resumed(source: Source, part: Part) -> Resumed:
    """Returns the state at the checkpoint of a partition.

    Raises KcoreError if the checkpoint belongs to another log.
    """
    from kcore.spark.state.checkpoint import resume  # noqa: PLC0415
    from kcore.spark.state.table_files import read_checkpoint  # noqa: PLC0415

    resumed = resume(*part[:2], map(read_checkpoint, source.beside(part)), part.cleaned_to)
    if part.end is not None and part.end < resumed.state.next_offset:
        raise KcoreError(
            f"{part.topic}-{part.partition} ends at {part.end}, before its checkpoint at {resumed.state.next_offset}: "
            "it is a different log"
        )
    if part.topic_id is not None and resumed.state.topic_id not in (None, part.topic_id):
        raise KcoreError(
            f"{part.topic}-{part.partition} has the topic id {part.topic_id}, and its checkpoint "
            f"{resumed.state.topic_id}: it is a different log"
        )
    return resumed


def _checkpointed(results: Iterable[Rebuilt]) -> Iterator[pa.RecordBatch]:
    from kcore.spark.state.table_batches import in_one_frame, tables_and_checkpoints  # noqa: PLC0415
    from kcore.spark.state.table_schemas import CHECKPOINT  # noqa: PLC0415

    return in_one_frame(tables_and_checkpoints(results), CHECKPOINT)


def _live_records(results: Iterable[Rebuilt]) -> Iterator[pa.RecordBatch]:
    from kcore.spark.events.arrow import to_batches  # noqa: PLC0415

    for result in results:
        if result.live is not None:
            yield from to_batches(result.live.rows())
