"""Lag and alerts, which the job `watch` derives from its tables at a point in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kcore.spark.audit.logs import GRACE_MS
from kcore.spark.frames.views import lag as lag_of_offsets
from kcore.spark.timeline.frames import GAP_MS, STORM_COUNT, STORM_WINDOW_MS, Bounds, storms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HANGING: Final = "hanging-transaction"
STORM: Final = "rebalance-storm"
STALLED: Final = "no-commits"


OWN_GROUPS: Final = "kcore-watch"
"""The prefix of the ids of groups that Spark's Kafka source uses to find the partitions of a stream. These groups never
commit."""


class Limits(NamedTuple):
    """The limits of alerts.

    Attributes:
        gap_ms: the time in ms without a commit after which a group with members gets an alert.
        storm_count: the number of rebalances of one group in a storm.
        storm_window_ms: the time in ms within which the rebalances of a storm begin.
        grace_ms: the tolerance beyond a transaction's timeout.
    """

    gap_ms: int = GAP_MS
    storm_count: int = STORM_COUNT
    storm_window_ms: int = STORM_WINDOW_MS
    grace_ms: int = GRACE_MS


def lag_by_group(offsets: DataFrame, ends: DataFrame, now_ms: int) -> DataFrame:
    """Returns the lag of each group in each topic, in the columns of `tables.LAG_DDL`.

    Args:
        offsets: the table `offsets`.
        ends: topic, partition and end offset of partitions. The lag in other partitions is unknown and not counted.
        now_ms: the time at which the end offsets were read.
    """
    of_partitions = lag_of_offsets(offsets.where("not pending"), ends)
    return offsets.sparkSession.sql(
        """
        select {now_ms} as at_ms, group_id, topic, cast(count(lag) as int) as partitions, sum(lag) as lag,
               max(lag) as max_lag
        from {of_partitions} group by group_id, topic having count(lag) > 0
        """,
        of_partitions=of_partitions,
        now_ms=now_ms,
    )


def hanging_transactions(
    transactions: DataFrame, now_ms: int, limits: Limits, as_of_ms: int | None = None
) -> DataFrame:
    """Returns an alert for each transaction that is open beyond its timeout, or whose markers are overdue.

    Args:
        transactions: the table `transactions`.
        now_ms: the time of the alerts.
        limits: the limits, of which `grace_ms` is added to each transaction's timeout.
        as_of_ms: the time up to which the table has the events of the source; None: `now_ms`. While a slow micro-batch
            runs, the table may lack the end of a transaction.
    """
    return transactions.sparkSession.sql(
        """
        select {now_ms} as at_ms, {kind} as kind, transactional_id as subject,
               if(state = 'Ongoing', start_timestamp_ms, last_update_timestamp_ms) as since_ms,
               concat(state, ', producer ', producer_id, ' with epoch ', producer_epoch, ', timeout ', timeout_ms,
                      ' ms, ', size(partitions), if(size(partitions) = 1, ' partition', ' partitions')) as detail
        from {transactions}
        where (state = 'Ongoing' and start_timestamp_ms >= 0
               and {as_of_ms} - start_timestamp_ms > timeout_ms + {grace_ms})
           or (state in ('PrepareCommit', 'PrepareAbort') and {as_of_ms} - last_update_timestamp_ms > {grace_ms})
        """,
        transactions=transactions,
        now_ms=now_ms,
        as_of_ms=now_ms if as_of_ms is None else as_of_ms,
        kind=HANGING,
        grace_ms=limits.grace_ms,
    )


def rebalance_storms(rebalances: DataFrame, now_ms: int, limits: Limits) -> DataFrame:
    """Returns an alert for each group with a storm whose last rebalance began at most `storm_window_ms` ago."""
    recent = rebalances.where(f"start_ms >= {now_ms - 2 * limits.storm_window_ms}")
    storm_rows = storms(recent, Bounds(1, limits.gap_ms, limits.storm_count, limits.storm_window_ms))
    return rebalances.sparkSession.sql(
        """
        select {now_ms} as at_ms, {kind} as kind, group_id as subject, from_ms as since_ms,
               concat(rebalances, ' rebalances, ', superseded, ' of them superseded; causes: ', to_json(causes))
                   as detail
        from {found} where to_ms >= {now_ms} - {window_ms}
        """,
        found=storm_rows,
        now_ms=now_ms,
        kind=STORM,
        window_ms=limits.storm_window_ms,
    )


def groups_without_commits(
    groups: DataFrame, offsets: DataFrame, lags: DataFrame, now_ms: int, limits: Limits, as_of_ms: int | None = None
) -> DataFrame:
    """Returns an alert for each group that has members and lag, but no commit for `gap_ms`.

    A group without lag has nothing to commit. A group whose lag is unknown counts as a group with lag.

    Args:
        groups: the table `groups`.
        offsets: the table `offsets`.
        lags: the result of `lag_by_group`.
        now_ms: the time of the alerts.
        limits: the limits. `gap_ms` is the allowed time without a commit.
        as_of_ms: the time up to which the tables have the events of the source; None: `now_ms`.
    """
    return groups.sparkSession.sql(
        """
        with committed as (
            select group_id, max(commit_timestamp_ms) as last_ms from {offsets} where not pending group by group_id
        ),
        behind as (select group_id, sum(lag) as lag from {lags} group by group_id),
        found as (
            select group_id, member_count, lag, last_ms,
                   coalesce(last_ms, assigned_timestamp_ms, state_timestamp_ms) as since_ms
            from {groups} left join committed using (group_id) left join behind using (group_id)
            where member_count > 0 and not startswith(group_id, {own_groups}) and (group_type in ('consumer', 'streams')
                  or (group_type = 'classic' and protocol_type = 'consumer'))
        )
        select {now_ms} as at_ms, {kind} as kind, group_id as subject, since_ms,
               concat(member_count, if(member_count = 1, ' member, ', ' members, '),
                      if(last_ms is null, 'no commit', concat('last commit at ', last_ms)), ', lag ',
                      coalesce(cast(lag as string), 'unknown')) as detail
        from found where since_ms > 0 and {as_of_ms} - since_ms >= {gap_ms} and coalesce(lag, 1) > 0
        """,
        groups=groups,
        offsets=offsets,
        lags=lags,
        now_ms=now_ms,
        as_of_ms=now_ms if as_of_ms is None else as_of_ms,
        kind=STALLED,
        own_groups=f"{OWN_GROUPS}-",
        gap_ms=limits.gap_ms,
    )
