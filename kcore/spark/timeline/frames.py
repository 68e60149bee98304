"""Functions from DataFrame to DataFrame: from log rows to events, and from events to the tables of a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.spark.frames.transforms import LogProperties, coordinator_events
from kcore.spark.state.partition_state import COORDINATOR_TOPICS
from kcore.spark.timeline.event_kinds import TIMELINE_EVENTS_DDL, TimelineEvent, event_batches
from kcore.spark.timeline.history import History, HistoryOptions
from kcore.spark.timeline.tables import TABLES
from kcore.spark.timeline.text import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kcore.spark.events.sources import Part, Source
    from kcore.spark.frames.logs import EventLogs

ROWS_PER_BATCH = 5_000
NICE_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000)
GAP_MS, STORM_COUNT, STORM_WINDOW_MS = 60_000, 5, 300_000
"""Default values of `Bounds.gap_ms`, `Bounds.storm_count` and `Bounds.storm_window_ms`. Times are in ms."""

Stored = Callable[[str, "DataFrame"], "DataFrame"]
"""A function that stores a table: called with its name and the table, it returns the stored table."""


class Bounds(NamedTuple):
    """The parameters of the tables: time range, window width and thresholds.

    Attributes:
        window_ms: the width of a window.
        gap_ms: the minimum length of a gap without commits.
        storm_count: the minimum number of rebalances of one group in a storm.
        storm_window_ms: the time in ms within which the rebalances of a storm must begin. Overlapping storms are
            merged.
        from_ms: events that ended before this time are ignored; None: no limit.
        to_ms: events that began at this time or later are ignored; None: no limit.
    """

    window_ms: int
    gap_ms: int = GAP_MS
    storm_count: int = STORM_COUNT
    storm_window_ms: int = STORM_WINDOW_MS
    from_ms: int | None = None
    to_ms: int | None = None


def timeline_events(
    events: DataFrame, options: HistoryOptions, logs: LogProperties | None = None, tasks: int | None = None
) -> DataFrame:
    """Returns the events of every coordinator partition, as rows of all kinds (`TIMELINE_EVENTS_DDL`).

    Args:
        events: as for `kcore.spark.frames.transforms.coordinator_events`; duplicates of an offset are skipped.
        options: the groups to include, and the session timeout of consumer groups.
        logs: properties of the logs that their rows do not show.
        tasks: the number of tasks; None: Spark's number of shuffle partitions. More tasks than partitions cost
            time without a benefit.
    """
    properties = logs or LogProperties()

    def walk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return walk_batches(batches, options, properties)

    chosen = coordinator_events(events)
    spread = (
        chosen.repartition("topic", "partition") if tasks is None else chosen.repartition(tasks, "topic", "partition")
    )
    ordered = spread.sortWithinPartitions("topic", "partition", "offset")
    return ordered.mapInArrow(walk, TIMELINE_EVENTS_DDL)


def timeline_events_of(logs: EventLogs, options: HistoryOptions) -> DataFrame:
    """Returns the events of every coordinator partition of some logs, as rows of all kinds (`TIMELINE_EVENTS_DDL`)."""

    def walk(pairs: Iterable[tuple[Source, Part]]) -> Iterator[pa.RecordBatch]:
        events = (
            History(*part[:2], options, part.cleaned_to).events(source.rows(part), part.active_offset)
            for source, part in pairs
        )
        return event_batches(chain.from_iterable(events), ROWS_PER_BATCH)

    parts = [part for part in logs.parts() if part.topic in COORDINATOR_TOPICS]
    return logs.run(parts, walk, TIMELINE_EVENTS_DDL)


def log_times_of(logs: EventLogs, topics: Sequence[str], window_ms: int) -> DataFrame:
    """Returns the newest row of each partition of some topics in each window, in the columns that `log_ends` reads."""

    def newest(pairs: Iterable[tuple[Source, Part]]) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(_newest(source, part, window_ms) for source, part in pairs)

    parts = [part for part in logs.parts() if part.topic in topics]
    return logs.run(parts, newest, "topic string, partition int, offset bigint, timestamp_ms bigint")


def _newest(source: Source, part: Part, window_ms: int) -> Iterator[pa.RecordBatch]:
    """Yields the highest offset of each window in each record batch of a partition. A window may occur repeatedly."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    for batch in source.batches(part, columns=("offset", "timestamp")):
        times = pc.divide(batch.column("timestamp").cast(pa.int64()), 1_000 * window_ms)
        starts = pc.multiply(times, window_ms)
        table = pa.table({"timestamp_ms": starts, "offset": batch.column("offset")}).drop_null()
        ends = table.group_by("timestamp_ms").aggregate([("offset", "max")])
        place = [
            pa.repeat(pa.scalar(part.topic), len(ends)),
            pa.repeat(pa.scalar(part.partition, pa.int32()), len(ends)),
        ]
        columns = [*place, ends.column("offset_max"), ends.column("timestamp_ms")]
        names = ["topic", "partition", "offset", "timestamp_ms"]
        yield from pa.table(columns, names=names).combine_chunks().to_batches()


def walk_batches(
    batches: Iterable[pa.RecordBatch], options: HistoryOptions, logs: LogProperties
) -> Iterator[pa.RecordBatch]:
    """Yields the timeline's events of log rows, which are sorted by partition and offset; runs on executors."""
    from kcore.spark.events.arrow import from_batch  # noqa: PLC0415

    rows = chain.from_iterable(map(from_batch, batches))
    return event_batches(_events(rows, options, logs), ROWS_PER_BATCH)


def _events(rows: Iterable[Any], options: HistoryOptions, logs: LogProperties) -> Iterator[TimelineEvent]:
    for place, of_partition in groupby(rows, key=attrgetter("topic", "partition")):
        history = History(*place, options, logs.cleaned_to.get(place))
        yield from history.events(of_partition, logs.active_offset.get(place))


def events_of_kind(derived: DataFrame, kind: str) -> DataFrame:
    """Returns the events of one kind from the frame of `timeline_events`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return derived.where(f.col("kind") == kind).select(f"{kind}.*")


def nice_width(span_ms: int, most: int, least_ms: int = 1) -> int:
    """Returns the smallest round window width, in ms, that gives at most `most` windows.

    Args:
        span_ms: the time that the windows must cover.
        most: the maximum number of windows.
        least_ms: the width is a multiple of this number.
    """
    round_widths = {*NICE_MS, *(HOUR_MS * hours for hours in (1, 2, 6, 12)), DAY_MS, 7 * DAY_MS}
    multiples = {least_ms * factor for factor in NICE_MS} if least_ms > 1 else set()
    for width in sorted(round_widths | multiples):
        if width % least_ms == 0 and span_ms <= width * most:
            return width
    return least_ms * max(1, -(-span_ms // (most * least_ms)))


def timeline_tables(
    derived: DataFrame, bounds: Bounds, stored: Stored | None = None, ends: DataFrame | None = None
) -> dict[str, DataFrame]:
    """Returns every table of `TABLES`.

    Args:
        derived: the result of `timeline_events`, which should be persisted because it is read more than once.
        bounds: the time range and the thresholds of the tables.
        stored: writes a table and returns a frame that reads the written table, so that later tables do not compute it
            again. None: tables are not written.
        ends: the result of `log_ends`, for the lag of share groups; None: the lag is unknown.
    """
    tables: dict[str, DataFrame] = {}

    def keep(name: str, table: DataFrame) -> DataFrame:
        table = table.select(*(column for column, _, _ in TABLES[name]))
        tables[name] = table if stored is None else stored(name, table)
        return tables[name]

    logs = keep("logs", events_of_kind(derived, "logs"))
    commits = events_of_kind(derived, "commits").where(_within("timestamp_ms", "timestamp_ms", bounds))
    rebalances = keep("rebalances", events_of_kind(derived, "rebalances").where(_within("start_ms", "end_ms", bounds)))
    change = ["coordinator_partition", "group_id", "start_offset"]
    keep("moves", events_of_kind(derived, "moves").join(rebalances.select(*change), change, "left_semi"))
    transactions = keep(
        "transactions", events_of_kind(derived, "transactions").where(_within("start_ms", "end_ms", bounds))
    )
    keep("rebalance_windows", rebalance_windows(rebalances, bounds.window_ms))
    keep("commit_windows", commit_windows(commits, bounds.window_ms))
    gaps = keep("commit_gaps", commit_gaps(commits, rebalances, logs, bounds))
    storm_rows = keep("storms", storms(rebalances, bounds))
    keep("transaction_windows", transaction_windows(transactions, bounds.window_ms))
    deliveries = keep(
        "deliveries", events_of_kind(derived, "deliveries").where(_within("timestamp_ms", "timestamp_ms", bounds))
    )
    keep("share_windows", share_windows(deliveries, events_of_kind(derived, "share_topics"), ends, bounds.window_ms))
    keep("groups", groups(rebalances, commits, gaps, storm_rows))
    return tables


def _within(start: str, end: str, bounds: Bounds) -> str:
    """Returns an SQL condition: the event from `start` to `end` (null: open) overlaps the requested time."""
    conditions = ["true"]
    if bounds.from_ms is not None:
        conditions.append(f"({end} is null or {end} >= {bounds.from_ms})")
    if bounds.to_ms is not None:
        conditions.append(f"{start} < {bounds.to_ms}")
    return " and ".join(conditions)


def rebalance_windows(rebalances: DataFrame, window_ms: int) -> DataFrame:
    """Counts rebalances by window, group and cause, without rebalances that have the outcome `replaced`."""
    return rebalances.sparkSession.sql(
        """
        select start_ms div {window_ms} * {window_ms} as window_start_ms, group_id, group_type, cause,
               count(*) as rebalances, count_if(outcome = 'superseded') as superseded,
               sum(size(joined)) as members_joined, sum(size(`left`)) as members_left, sum(coalesce(moved, 0)) as moved,
               sum(coalesce(duration_ms, 0)) as duration_ms, bool_and(whole) as whole
        from {rebalances} where outcome <> 'replaced' group by all
        """,
        rebalances=rebalances,
        window_ms=window_ms,
    )


def commit_windows(commits: DataFrame, window_ms: int) -> DataFrame:
    """Counts commits by window, group and topic."""
    return commits.sparkSession.sql(
        """
        select *, commits * 1000.0D / {window_ms} as commits_per_s from (
            select timestamp_ms div {window_ms} * {window_ms} as window_start_ms, group_id, topic,
                   count_if(kind in ('plain', 'transactional')) as commits,
                   count_if(kind = 'transactional') as transactional, count_if(kind = 'aborted') as aborted,
                   count_if(kind = 'pending') as pending, count(distinct partition) as partitions,
                   bool_and(whole) as whole
            from {commits} group by all)
        """,
        commits=commits,
        window_ms=window_ms,
    )


def shared_topics(derived: DataFrame) -> list[str]:
    """Returns the names of the topics that share groups use."""
    return sorted(row[0] for row in events_of_kind(derived, "share_topics").select("topic").distinct().collect())


def log_ends(events: DataFrame, topics: Sequence[str], window_ms: int) -> DataFrame:
    """Returns the end of each partition of some topics, for each window in which it grew.

    Args:
        events: rows with topic, partition, offset and `timestamp_ms`, including rows of users' topics.
        topics: names of the topics whose ends are needed.
        window_ms: the width of a window.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    rows = events.where(f.col("topic").isin(*topics)).select("topic", "partition", "offset", "timestamp_ms")
    return rows.sparkSession.sql(
        """
        select topic, partition, timestamp_ms div {window_ms} * {window_ms} as window_start_ms,
               max(offset) + 1 as end_offset
        from {rows} group by all
        """,
        rows=rows,
        window_ms=window_ms,
    )


def share_windows(deliveries: DataFrame, names: DataFrame, ends: DataFrame | None, window_ms: int) -> DataFrame:
    """Counts deliveries of share groups by window and partition, with the lag at the end of the window."""
    spark = deliveries.sparkSession
    if ends is None:
        ends = spark.createDataFrame([], "topic string, partition int, window_start_ms bigint, end_offset bigint")
    return spark.sql(
        """
        with n as (select topic_id, max(topic) as topic from {names} group by topic_id),
        w as (
            select timestamp_ms div {window_ms} * {window_ms} as window_start_ms, group_id, topic_id, partition,
                   sum(delivered) as delivered, sum(redelivered) as redelivered, sum(acknowledged) as acknowledged,
                   sum(archived) as archived, max_by(start_offset, record_offset) as start_offset,
                   max_by(waiting, record_offset) as waiting, max_by(complete, record_offset) as complete,
                   bool_and(whole) as whole
            from {deliveries} group by all
        ),
        e as (
            select w.window_start_ms, w.group_id, w.topic_id, w.partition, max(ends.end_offset) as end_offset
            from w join n using (topic_id) join {ends} ends on ends.topic = n.topic and ends.partition = w.partition
                 and ends.window_start_ms <= w.window_start_ms
            group by all
        )
        select w.*, n.topic, e.end_offset,
               if(w.start_offset >= 0 and w.complete >= 0, e.end_offset - w.start_offset - w.complete, null) as lag
        from w left join n using (topic_id) left join e using (window_start_ms, group_id, topic_id, partition)
        """,
        names=names,
        deliveries=deliveries,
        ends=ends,
        window_ms=window_ms,
    )


def commit_gaps(commits: DataFrame, rebalances: DataFrame, logs: DataFrame, bounds: Bounds) -> DataFrame:
    """Returns periods of at least `gap_ms` in which a group committed no offset of a topic, after an earlier commit.

    Counts the rebalances in the gaps in one pass over time, because a group may have many gaps and many rebalances.
    """
    end_ms = 2**63 - 1 if bounds.to_ms is None else bounds.to_ms
    return commits.sparkSession.sql(
        """
        with ordered as (
            select coordinator_partition, group_id, topic, timestamp_ms as from_ms, whole,
                   lead(timestamp_ms) over (
                       partition by coordinator_partition, group_id, topic order by timestamp_ms, record_offset
                   ) as next_ms
            from {commits} where kind in ('plain', 'transactional')
        ),
        gaps as (
            select o.*, coalesce(next_ms, least(e.end_ms, {end_ms})) as to_ms, next_ms is null as open
            from ordered o cross join (select max(last_ms) as end_ms from {logs}) e
        ),
        long as (
            select group_id, from_ms, to_ms,
                   struct(coordinator_partition, group_id, topic, from_ms, to_ms, open, whole) as gap
            from gaps where to_ms - from_ms >= {gap_ms}
        ),
        steps as (
            select group_id, from_ms as at_ms, 0 as step, gap from long
            union all
            select group_id, start_ms, 1, null from {rebalances} where outcome <> 'replaced'
            union all
            select group_id, to_ms, 2, gap from long
        ),
        counted as (
            select gap, step, count_if(step = 1) over (
                partition by group_id order by at_ms, step rows between unbounded preceding and current row) as so_far
            from steps
        )
        select gap.coordinator_partition, gap.group_id, gap.topic, gap.from_ms, gap.to_ms,
               gap.to_ms - gap.from_ms as gap_ms, gap.open,
               max(if(step = 2, so_far, null)) - max(if(step = 0, so_far, null)) as rebalances, gap.whole
        from counted where gap is not null group by gap
        """,
        commits=commits,
        rebalances=rebalances,
        logs=logs,
        gap_ms=bounds.gap_ms,
        end_ms=end_ms,
    )


def storms(rebalances: DataFrame, bounds: Bounds) -> DataFrame:
    """Returns storms: `storm_count` rebalances of one group within `storm_window_ms`; overlapping storms are merged.

    Merged storms do not overlap. So a rebalance can only belong to the last storm that began before it.
    """
    return rebalances.sparkSession.sql(
        """
        with numbered as (
            select group_id, start_ms, start_offset,
                   lag(start_ms, {storm_count} - 1) over (
                       partition by group_id order by start_ms, start_offset) as since
            from {rebalances} where outcome <> 'replaced'
        ),
        hot as (
            select group_id, since, start_ms,
                   lag(start_ms) over (partition by group_id order by start_ms, start_offset) as before
            from numbered where start_ms - since <= {storm_window_ms}
        ),
        runs as (
            select *, sum(if(before is null or since > before, 1, 0)) over (
                partition by group_id order by start_ms rows unbounded preceding) as run
            from hot
        ),
        spans as (select group_id, run, min(since) as from_ms, max(start_ms) as to_ms from runs group by group_id, run),
        steps as (
            select group_id, from_ms as at_ms, 0 as step, struct(from_ms, to_ms) as span, null as r from spans
            union all
            select group_id, start_ms, 1, null, struct(cause, outcome, joined, `left`, moved, whole)
            from {rebalances} where outcome <> 'replaced'
        ),
        placed as (
            select group_id, at_ms, r, last_value(span, true) over (
                partition by group_id order by at_ms, step rows between unbounded preceding and current row) as span
            from steps
        ),
        counted as (
            select group_id, span.from_ms, span.to_ms, r.cause, count(*) as rebalances,
                   count_if(r.outcome = 'superseded') as superseded, sum(size(r.joined)) as members_joined,
                   sum(size(r.`left`)) as members_left, sum(coalesce(r.moved, 0)) as moved, bool_and(r.whole) as whole
            from placed where r is not null and at_ms <= span.to_ms
            group by group_id, span.from_ms, span.to_ms, r.cause
        )
        select group_id, from_ms, to_ms, sum(rebalances) as rebalances, sum(superseded) as superseded,
               sum(members_joined) as members_joined, sum(members_left) as members_left, sum(moved) as moved,
               map_from_entries(sort_array(collect_list(struct(cause, rebalances)))) as causes, bool_and(whole) as whole
        from counted group by group_id, from_ms, to_ms
        """,
        rebalances=rebalances,
        storm_count=bounds.storm_count,
        storm_window_ms=bounds.storm_window_ms,
    )


def transaction_windows(transactions: DataFrame, window_ms: int) -> DataFrame:
    """Counts transactions by window, outcome and cause."""
    return transactions.sparkSession.sql(
        """
        select start_ms div {window_ms} * {window_ms} as window_start_ms, outcome, cause, count(*) as transactions,
               max(duration_ms) as longest_ms, avg(duration_ms) as mean_ms
        from {transactions} group by all
        """,
        transactions=transactions,
        window_ms=window_ms,
    )


def groups(rebalances: DataFrame, commits: DataFrame, gaps: DataFrame, storm_rows: DataFrame) -> DataFrame:
    """Returns a row for each group, with its counts and maximums over the whole time."""
    return rebalances.sparkSession.sql(
        """
        with r as (
            select coordinator_partition, group_id, max_by(group_type, start_offset) as group_type,
                   count_if(outcome <> 'replaced') as rebalances, count_if(outcome = 'superseded') as superseded,
                   max(duration_ms) as longest_rebalance_ms, sum(coalesce(moved, 0)) as moved,
                   min(start_ms) as first_ms, max(coalesce(end_ms, start_ms)) as last_ms
            from {rebalances} group by coordinator_partition, group_id
        ),
        c as (
            select coordinator_partition, group_id, min(timestamp_ms) as first_ms, max(timestamp_ms) as last_ms,
                   count_if(kind in ('plain', 'transactional')) as commits, count_if(kind = 'aborted') as aborted
            from {commits} group by coordinator_partition, group_id
        ),
        g as (select group_id, max(gap_ms) as longest_gap_ms from {gaps} group by group_id),
        s as (select group_id, count(*) as storms from {storm_rows} group by group_id)
        select coordinator_partition, group_id, r.group_type, coalesce(r.rebalances, 0) as rebalances,
               coalesce(r.superseded, 0) as superseded, coalesce(s.storms, 0) as storms, r.longest_rebalance_ms,
               coalesce(r.moved, 0) as moved, coalesce(c.commits, 0) as commits, coalesce(c.aborted, 0) as aborted,
               g.longest_gap_ms, least(r.first_ms, c.first_ms) as first_ms, greatest(r.last_ms, c.last_ms) as last_ms
        from r full outer join c using (coordinator_partition, group_id)
        left join g using (group_id) left join s using (group_id)
        """,
        rebalances=rebalances,
        commits=commits,
        gaps=gaps,
        storm_rows=storm_rows,
    )
