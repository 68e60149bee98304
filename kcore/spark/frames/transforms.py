"""Functions from DataFrame to DataFrame. They create no session and do no I/O of their own, unlike `jobs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kcore.spark.state.table_schemas import CHECKPOINT_DDL, TABLES, table_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kcore.spark.state.rebuild import AsOf, Rebuilt

EVENT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
DETAIL_COLUMNS = ("producer_id", "producer_epoch", "last_sequence", "transactional", "control", "batch_only")
STATE_DDL = "`table` string, " + ", ".join(f"`{name}` struct<{table_ddl(name)}>" for name in TABLES)
"""Schema of a frame with the rows of all tables. `table` names the table of a row. Only the struct of this name is not
null.
"""

CHECKPOINTED_DDL = f"{STATE_DDL}, `checkpoint` struct<{CHECKPOINT_DDL}>"
"""Schema of a frame with the rows of all tables and with the checkpoints."""


class LogProperties(NamedTuple):
    """Properties of partitions that their rows do not show, by (topic, partition), as in `sources.Part`."""

    cleaned_to: Mapping[tuple[str, int], int] = {}
    active_offset: Mapping[tuple[str, int], int] = {}


def coordinator_events(events: DataFrame) -> DataFrame:
    """Returns the rows of internal topics with all columns that a rebuild needs.

    Args:
        events: `EVENT_COLUMNS`, and the available columns of `DETAIL_COLUMNS`. Spark's own Kafka source has no column
            of `DETAIL_COLUMNS`. Read this source with `kafka.isolation.level=read_committed`, because it never shows
            transaction markers.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE  # noqa: PLC0415

    topics = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    columns = [*EVENT_COLUMNS, *(name for name in DETAIL_COLUMNS if name in events.columns)]
    return events.where(f.col("topic").isin(*topics)).select(*columns)


def rebuild_state(
    events: DataFrame,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    properties: LogProperties | None = None,
) -> DataFrame:
    """Returns the state of every coordinator partition, as rows of all tables (`STATE_DDL`).

    For each partition, one task replays the events in offset order. The task keeps the partition's state in memory, but
    not its log.

    Args:
        events: as for `coordinator_events`; duplicates of an offset are skipped.
        offsets: (topic, partition) -> the offset before which to stop; other partitions are read to their ends.
        timestamp_ms: stop before the first record with a later timestamp.
        properties: properties of the logs that their rows do not show.
    """
    from kcore.spark.state.rebuild import AsOf  # noqa: PLC0415

    moments = {place: AsOf(offset, timestamp_ms) for place, offset in (offsets or {}).items()}
    otherwise = AsOf(None, timestamp_ms)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay_batches(batches, moments, otherwise, properties or LogProperties())

    return _by_partition(events).mapInArrow(replay, STATE_DDL)


def _by_partition(events: DataFrame) -> DataFrame:
    """Sends each coordinator partition to one task, in offset order."""
    return (
        coordinator_events(events)
        .repartition("topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )


def table_of(state: DataFrame, name: str) -> DataFrame:
    """Returns one table of `rebuild_state`'s result."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return state.where(f.col("table") == name).select(f"{name}.*")


# ---- what runs on executors


def replay_batches(
    batches: Iterable[pa.RecordBatch],
    moments: Mapping[tuple[str, int], AsOf],
    otherwise: AsOf,
    properties: LogProperties,
) -> Iterator[pa.RecordBatch]:
    """Replays sorted rows, one partition after another; yields the tables' rows in batches."""
    from kcore.spark.state.table_batches import all_tables, in_one_frame  # noqa: PLC0415

    return in_one_frame(all_tables(_rebuilt(batches, moments, otherwise, properties)))


def _rebuilt(
    batches: Iterable[pa.RecordBatch],
    moments: Mapping[tuple[str, int], AsOf],
    otherwise: AsOf,
    properties: LogProperties,
) -> Iterator[Rebuilt]:
    from kcore.spark.state.batch_replay import BatchReplay  # noqa: PLC0415

    current: tuple[str, int] | None = None
    replay: BatchReplay | None = None
    for topic_partition, piece in chain.from_iterable(map(_pieces, batches)):
        if topic_partition != current or replay is None:
            if replay is not None and current is not None:
                yield replay.end(properties.active_offset.get(current))
            current = topic_partition
            replay = BatchReplay(*current, moments.get(current, otherwise), properties.cleaned_to.get(current))
        replay.add(piece)
    if replay is not None and current is not None:
        yield replay.end(properties.active_offset.get(current))


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Splits a batch into runs of rows of one partition."""
    import pyarrow.compute as pc  # noqa: PLC0415

    columns = [batch.column(name) for name in ("topic", "partition")]
    ends = {end for column in columns for end in pc.run_end_encode(column).run_ends.to_pylist()}
    start = 0
    for end in sorted(ends):
        topic, partition = (column[start].as_py() for column in columns)
        yield (topic, partition), batch.slice(start, end - start)
        start = end
