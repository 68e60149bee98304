"""Functions DataFrame -> DataFrame. None of them makes a session, reads or writes: that is for `jobs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.spark.table_schemas import TABLES, table_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kcore.spark.event import EventRow
    from kcore.spark.rebuild import AsOf

EVENT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
FACT_COLUMNS = ("producer_id", "producer_epoch", "last_sequence", "transactional", "control", "batch_only")
STATE_DDL = "`table` string, " + ", ".join(f"`{name}` struct<{table_ddl(name)}>" for name in TABLES)
"""All tables in one frame: `table` says which of the structs a row has."""

ROWS_PER_BATCH = 5_000


class LogFacts(NamedTuple):
    """What is known of partitions beside their rows, by (topic, partition); see `sources.Part`."""

    cleaned_to: Mapping[tuple[str, int], int] = {}
    active_offset: Mapping[tuple[str, int], int] = {}


def coordinator_events(events: DataFrame) -> DataFrame:
    """The rows that coordinators' state is made of, with all columns that a rebuild looks at.

    Args:
        events: `EVENT_COLUMNS`, and as many of `FACT_COLUMNS` as there are. Spark's own Kafka source has none of
            these: read it with `kafka.isolation.level=read_committed`, since it never shows how a transaction ended.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE  # noqa: PLC0415

    topics = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    columns = [*EVENT_COLUMNS, *(name for name in FACT_COLUMNS if name in events.columns)]
    return events.where(f.col("topic").isin(*topics)).select(*columns)


def rebuild_state(
    events: DataFrame,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
    facts: LogFacts | None = None,
) -> DataFrame:
    """The state of every coordinator partition, as rows of all tables (`STATE_DDL`).

    Each partition is replayed in the order of its offsets by one task, and held in that task's memory; its log is not.

    Args:
        events: as for `coordinator_events`; duplicates of an offset are passed over.
        offsets: (topic, partition) -> the offset before which to stop; partitions that are not in it are read to
            their ends.
        timestamp_ms: stop before the first record with a later timestamp.
        facts: what is known of the logs beside their rows.
    """
    from kcore.spark.rebuild import AsOf  # noqa: PLC0415

    moments = {place: AsOf(offset, timestamp_ms) for place, offset in (offsets or {}).items()}
    otherwise = AsOf(None, timestamp_ms)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay_batches(batches, moments, otherwise, facts or LogFacts())

    return _by_partition(events).mapInArrow(replay, STATE_DDL)


def living_events(
    events: DataFrame,
    *,
    offsets: Mapping[tuple[str, int], int] | None = None,
    timestamp_ms: int | None = None,
) -> DataFrame:
    """The records that the state of every coordinator partition is made of, in the columns of `EVENT_DDL`.

    Rows of a partition stand together and in the order in which they are to be replayed; see `LiveRecords.rows`. The
    arguments are those of `rebuild_state`.
    """
    from kcore.spark.arrow import EVENT_DDL  # noqa: PLC0415
    from kcore.spark.rebuild import AsOf  # noqa: PLC0415

    moments = {place: AsOf(offset, timestamp_ms) for place, offset in (offsets or {}).items()}
    otherwise = AsOf(None, timestamp_ms)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return living_batches(batches, moments, otherwise)

    return _by_partition(events).mapInArrow(replay, EVENT_DDL)


def _by_partition(events: DataFrame) -> DataFrame:
    """Each coordinator partition in one task, by offset."""
    return (
        coordinator_events(events)
        .repartition("topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )


def table_of(state: DataFrame, name: str) -> DataFrame:
    """One table of `rebuild_state`'s answer."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return state.where(f.col("table") == name).select(f"{name}.*")


# ---- what runs on executors


def replay_batches(
    batches: Iterable[pa.RecordBatch],
    moments: Mapping[tuple[str, int], AsOf],
    otherwise: AsOf,
    facts: LogFacts,
) -> Iterator[pa.RecordBatch]:
    """Replays sorted rows partition after partition; gives the tables' rows in batches."""
    from kcore.spark.arrow import from_batch  # noqa: PLC0415

    rows = chain.from_iterable(map(from_batch, batches))
    return state_batches(
        chain.from_iterable(
            _partition_rows(place, of_partition, moments.get(place, otherwise), facts)
            for place, of_partition in groupby(rows, key=attrgetter("topic", "partition"))
        )
    )


def state_batches(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[pa.RecordBatch]:
    """Rows of all tables as record batches of `STATE_DDL`."""
    rows = iter(rows)
    while found := list(islice(rows, ROWS_PER_BATCH)):
        yield _state_batch(found)


def living_batches(
    batches: Iterable[pa.RecordBatch], moments: Mapping[tuple[str, int], AsOf], otherwise: AsOf
) -> Iterator[pa.RecordBatch]:
    """Replays sorted rows partition after partition; gives the records that are left, in batches."""
    from kcore.spark.arrow import from_batch, to_batches  # noqa: PLC0415
    from kcore.spark.rebuild import rebuild  # noqa: PLC0415

    rows = chain.from_iterable(map(from_batch, batches))
    for place, of_partition in groupby(rows, key=attrgetter("topic", "partition")):
        result = rebuild(*place, of_partition, moments.get(place, otherwise), with_records=True)
        if result.live is not None:
            yield from to_batches(result.live.rows())


def _partition_rows(
    place: tuple[str, int], rows: Iterable[EventRow], as_of: AsOf, facts: LogFacts
) -> Iterator[tuple[str, dict[str, Any]]]:
    from kcore.spark.rebuild import rebuild  # noqa: PLC0415
    from kcore.spark.tables import table_rows  # noqa: PLC0415

    result = rebuild(
        *place,
        rows,
        as_of,
        cleaned_to=facts.cleaned_to.get(place),
        active_offset=facts.active_offset.get(place),
    )
    yield from table_rows(result.state, result.cut)


def _state_batch(rows: list[tuple[str, dict[str, Any]]]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    from kcore.spark.ddl import arrow_struct  # noqa: PLC0415

    arrays: list[pa.Array] = [pa.array([table for table, _ in rows], pa.string())]
    for name in TABLES:
        kind = arrow_struct(table_ddl(name))
        own = [row for table, row in rows if table == name]
        if not own:
            arrays.append(pa.nulls(len(rows), kind))
            continue
        places, count = [], 0
        for table, _ in rows:
            places.append(count if table == name else None)
            count += table == name
        arrays.append(pa.array(own, kind).take(pa.array(places, pa.int64())))
    return pa.RecordBatch.from_arrays(arrays, names=["table", *TABLES])
