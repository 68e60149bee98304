"""Collects the content of the report from the tables, limited to the size of a page, with the total counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.spark.timeline.frames import Bounds, nice_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

TOP_GROUPS: Final = 12
"""Maximum number of groups that have their own plot."""
TOP_ROWS: Final = 20
"""Maximum number of rows in each list of the report."""
MAX_BUCKETS: Final = 96
"""The maximum number of steps on the plots' time axes."""
LABELS: Final = 5
"""Maximum number of names in a list of members or topics. The list ends with the number of further names."""

Summary = dict[str, Any]


def summarise(tables: Mapping[str, DataFrame], bounds: Bounds) -> Summary:
    """Collects the content of the report.

    Every query has an aggregate or a limit, so the size of the result does not grow with the log.

    Args:
        tables: `TABLES` by name.
        bounds: the parameters with which the tables were computed.
    """
    spark = next(iter(tables.values())).sparkSession

    def rows(query: str, **values: Any) -> list[dict[str, Any]]:
        named: dict[str, Any] = {**tables, **values}
        return [row.asDict(recursive=True) for row in spark.sql(query, **named).collect()]

    span = rows("select min(if(first_ms < 0, null, first_ms)) as a, max(last_ms) as z from {logs}")[0]
    from_ms = (span["a"] or 0) if bounds.from_ms is None else bounds.from_ms
    to_ms = max(from_ms, (span["z"] or 0) if bounds.to_ms is None else bounds.to_ms - 1)
    step_ms = nice_width(to_ms - from_ms + 1, MAX_BUCKETS, bounds.window_ms)
    summary: Summary = {
        "bounds": bounds._asdict(),
        "from_ms": from_ms,
        "to_ms": to_ms,
        "step_ms": step_ms,
        "logs": rows("select * from {logs} order by topic, coordinator_partition"),
        "totals": _totals(rows),
    }
    summary |= _rebalances(rows, step_ms)
    summary |= _commits(rows, step_ms)
    summary |= _transactions(rows, step_ms)
    summary |= _deliveries(rows, step_ms)
    return summary


def _totals(rows: Any) -> dict[str, Any]:
    one = rows(
        """
        select (select count(*) from {groups}) as groups,
               (select count_if(outcome <> 'replaced') from {rebalances}) as rebalances,
               (select count_if(not whole) from {rebalances}) as rebalances_not_whole,
               (select count_if(outcome = 'superseded') from {rebalances}) as superseded,
               (select sum(moved) from {rebalances}) as moved,
               (select sum(commits) from {groups}) as commits,
               (select sum(aborted) from {groups}) as commits_aborted,
               (select count(*) from {commit_gaps}) as gaps,
               (select count(*) from {storms}) as storms,
               (select count(*) from {transactions}) as transactions,
               (select count_if(outcome = 'aborted') from {transactions}) as aborted,
               (select count_if(cause = 'timeout') from {transactions}) as timed_out,
               (select count_if(outcome = 'open') from {transactions}) as open,
               (select sum(faults) from {logs}) as faults
        """
    )[0]
    return {name: value or 0 for name, value in one.items()}


def _rebalances(rows: Any, step_ms: int) -> Summary:
    return {
        "causes": rows(
            """
            select window_start_ms div {step_ms} * {step_ms} as at_ms, cause, sum(rebalances) as count
            from {rebalance_windows} group by all order by at_ms, cause
            """,
            step_ms=step_ms,
        ),
        "restless": rows(
            """
            select group_id, group_type, rebalances, superseded, storms, longest_rebalance_ms, moved
            from {groups} where rebalances > 0 order by rebalances desc, group_id limit {top}
            """,
            top=TOP_GROUPS,
        ),
        "restless_steps": rows(
            """
            with busiest as (select group_id from {groups} where rebalances > 0
                             order by rebalances desc, group_id limit {top})
            select group_id, window_start_ms div {step_ms} * {step_ms} as at_ms, sum(rebalances) as count
            from {rebalance_windows} left semi join busiest using (group_id) group by all order by group_id, at_ms
            """,
            top=TOP_GROUPS,
            step_ms=step_ms,
        ),
        "longest_rebalances": rows(
            """
            select group_id, group_type, epoch, start_ms, duration_ms, covers, outcome, cause,
                   concat_ws(', ', causes) as causes, left(detail, 300) as detail, members,
                   slice(joined, 1, {labels}) as joined, size(joined) as joined_count,
                   slice(`left`, 1, {labels}) as gone, size(`left`) as gone_count, moved, gained, lost, whole
            from {rebalances} where duration_ms is not null
            order by duration_ms desc, start_ms, group_id limit {top}
            """,
            top=TOP_ROWS,
            labels=LABELS,
        ),
        "movers": rows(
            """
            select group_id, coalesce(group_instance_id, client_id, member_id) as member,
                   count(*) as rebalances, sum(size(gained)) as gained, sum(size(lost)) as lost
            from {moves} group by all order by gained + lost desc, group_id, member limit {top}
            """,
            top=TOP_ROWS,
        ),
        "storms": rows("select * from {storms} order by rebalances desc, from_ms, group_id limit {top}", top=TOP_ROWS),
        "cause_totals": rows(
            """
            select cause, group_type, sum(rebalances) as count from {rebalance_windows}
            group by all order by count desc, cause, group_type
            """
        ),
    }


def _commits(rows: Any, step_ms: int) -> Summary:
    return {
        "committers": rows(
            """
            select group_id, commits, aborted, longest_gap_ms from {groups} where commits + aborted > 0
            order by commits desc, group_id limit {top}
            """,
            top=TOP_GROUPS,
        ),
        "commit_steps": rows(
            """
            with busiest as (select group_id from {groups} where commits + aborted > 0
                             order by commits desc, group_id limit {top})
            select group_id, window_start_ms div {step_ms} * {step_ms} as at_ms, sum(commits) as commits,
                   sum(transactional) as transactional, sum(aborted) as aborted
            from {commit_windows} left semi join busiest using (group_id) group by all order by group_id, at_ms
            """,
            top=TOP_GROUPS,
            step_ms=step_ms,
        ),
        "committed_topics": rows(
            """
            select group_id, topic, sum(commits) as commits, max(commits_per_s) as peak_per_s,
                   sum(transactional) as transactional, sum(aborted) as aborted, bool_and(whole) as whole
            from {commit_windows} group by all order by commits desc, group_id, topic limit {top}
            """,
            top=TOP_ROWS,
        ),
        "gaps": rows(
            "select * from {commit_gaps} order by gap_ms desc, from_ms, group_id, topic limit {top}", top=TOP_ROWS
        ),
    }


def _deliveries(rows: Any, step_ms: int) -> Summary:
    return {
        "sharers": rows(
            """
            with newest as (
                select group_id, sum(lag) as lag from (
                    select group_id, max_by(lag, window_start_ms) as lag from {share_windows}
                    group by group_id, topic_id, partition)
                group by group_id)
            select group_id, sum(acknowledged) as acknowledged, sum(archived) as archived,
                   sum(redelivered) as redelivered, any_value(newest.lag) as lag, bool_and(whole) as whole
            from {share_windows} left join newest using (group_id) group by group_id
            order by acknowledged + archived desc, group_id limit {top}
            """,
            top=TOP_GROUPS,
        ),
        "share_steps": rows(
            """
            select group_id, window_start_ms div {step_ms} * {step_ms} as at_ms, sum(acknowledged) as acknowledged,
                   sum(archived) as archived, sum(redelivered) as redelivered
            from {share_windows} group by all order by group_id, at_ms
            """,
            step_ms=step_ms,
        ),
        "share_partitions": rows(
            """
            select group_id, coalesce(max(topic), topic_id) as topic, partition, sum(acknowledged) as acknowledged,
                   sum(archived) as archived, sum(redelivered) as redelivered,
                   max_by(start_offset, window_start_ms) as start_offset, max(lag) as most_lag,
                   max_by(lag, window_start_ms) as lag, bool_and(whole) as whole
            from {share_windows} group by group_id, topic_id, partition
            order by redelivered + archived desc, group_id, topic, partition limit {top}
            """,
            top=TOP_ROWS,
        ),
    }


def _transactions(rows: Any, step_ms: int) -> Summary:
    return {
        "transaction_steps": rows(
            """
            select window_start_ms div {step_ms} * {step_ms} as at_ms,
                   case when cause = 'timeout' then 'timed out' else outcome end as outcome,
                   sum(transactions) as count
            from {transaction_windows} group by all order by at_ms, outcome
            """,
            step_ms=step_ms,
        ),
        "transaction_totals": rows(
            """
            select outcome, cause, count(*) as count, max(duration_ms) as longest_ms,
                   cast(percentile_approx(duration_ms, 0.5) as bigint) as median_ms,
                   cast(percentile_approx(duration_ms, 0.99) as bigint) as p99_ms
            from {transactions} group by all order by count desc, outcome, cause
            """
        ),
        "longest_transactions": rows(
            """
            select transactional_id, producer_id, producer_epoch, start_ms, prepare_ms, end_ms, duration_ms, timeout_ms,
                   state, outcome, cause, partitions, slice(topics, 1, {labels}) as topics, size(topics) as topic_count,
                   whole
            from {transactions} where duration_ms is not null
            order by duration_ms desc, start_ms, transactional_id limit {top}
            """,
            top=TOP_ROWS,
            labels=LABELS,
        ),
    }
