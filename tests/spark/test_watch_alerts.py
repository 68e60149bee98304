"""The alerts of the streaming job (hanging transactions, rebalance storms, groups without commits), and its lag."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.spark.state.table_schemas import TABLES
from kcore.spark.timeline.event_kinds import EVENT_KINDS
from kcore.spark.watch.alerts import (
    Limits,
    groups_without_commits,
    hanging_transactions,
    lag_by_group,
    rebalance_storms,
)

pytestmark = pytest.mark.spark

NOW_MS = 10_000_000
LIMITS = Limits(gap_ms=60_000, storm_count=3, storm_window_ms=100_000, grace_ms=5_000)


def table(spark: Any, columns: Any, rows: list[dict[str, Any]]) -> Any:
    """Returns rows of a table; missing columns are null."""
    ddl = ", ".join(f"`{name}` {kind}" for name, kind, _ in columns)
    return spark.createDataFrame([tuple(row.get(name) for name, _, _ in columns) for row in rows], ddl)


def alerts_of(frame: Any) -> list[tuple[str, str, int]]:
    return sorted((row["kind"], row["subject"], row["since_ms"]) for row in frame.collect())


def test_transactions_beyond_their_timeout_or_without_markers_are_alerts(spark: Any) -> None:
    def row(name: str, state: str, start_ms: int, update_ms: int) -> dict[str, Any]:
        return {
            "transactional_id": name,
            "state": state,
            "producer_id": 1,
            "producer_epoch": 0,
            "timeout_ms": 30_000,
            "start_timestamp_ms": start_ms,
            "last_update_timestamp_ms": update_ms,
            "partitions": [("t", 0)],
        }

    frame = table(
        spark,
        TABLES["transactions"],
        [
            row("late", "Ongoing", NOW_MS - 35_001, NOW_MS),
            row("in time", "Ongoing", NOW_MS - 35_000, NOW_MS),
            row("never began", "Empty", -1, NOW_MS - 100_000),
            row("done", "CompleteCommit", NOW_MS - 100_000, NOW_MS - 100_000),
            row("no markers", "PrepareCommit", NOW_MS - 6_000, NOW_MS - 5_001),
            row("writing markers", "PrepareAbort", NOW_MS - 60_000, NOW_MS - 5_000),
        ],
    )
    found = hanging_transactions(frame, NOW_MS, LIMITS)
    assert alerts_of(found) == [
        ("hanging-transaction", "late", NOW_MS - 35_001),
        ("hanging-transaction", "no markers", NOW_MS - 5_001),
    ]
    # The table is as old as its micro-batch: what was in time then may have ended since.
    earlier = hanging_transactions(frame, NOW_MS, LIMITS, NOW_MS - 1)
    assert alerts_of(earlier) == []
    assert "Ongoing, producer 1 with epoch 0, timeout 30000 ms, 1 partition" in {r["detail"] for r in found.collect()}


def test_present_and_recent_rebalance_storms_are_alerts(spark: Any) -> None:
    def rows(group_id: str, *times_ms: int) -> list[dict[str, Any]]:
        return [
            {
                "group_id": group_id,
                "start_ms": at_ms,
                "start_offset": number,
                "outcome": "completed",
                "cause": "member joined",
                "joined": [],
                "left": [],
                "whole": True,
            }
            for number, at_ms in enumerate(times_ms)
        ]

    frame = table(
        spark,
        EVENT_KINDS["rebalances"],
        [
            *rows("stormy", NOW_MS - 90_000, NOW_MS - 50_000, NOW_MS - 10_000),
            *rows("calm", NOW_MS - 90_000, NOW_MS - 10_000),
            *rows("over", NOW_MS - 190_000, NOW_MS - 180_000, NOW_MS - 170_000),
        ],
    )
    found = rebalance_storms(frame, NOW_MS, LIMITS)
    assert alerts_of(found) == [("rebalance-storm", "stormy", NOW_MS - 90_000)]
    assert found.collect()[0]["detail"] == '3 rebalances, 0 of them superseded; causes: {"member joined":3}'


def test_groups_with_members_and_lag_but_no_commits_are_alerts(spark: Any) -> None:
    names = ("stalled", "committing", "done", "never", "empty", "connect", "unknown", "kcore-watch-1-driver-0")
    groups = table(
        spark,
        TABLES["groups"],
        [
            {
                "group_id": name,
                "group_type": "classic" if name == "connect" else "consumer",
                "protocol_type": "connect" if name == "connect" else "consumer",
                "member_count": 0 if name == "empty" else 2,
                "assigned_timestamp_ms": NOW_MS - 70_000,
            }
            for name in names
        ],
    )
    offsets = table(
        spark,
        TABLES["offsets"],
        [
            {
                "group_id": name,
                "topic": "unread" if name == "unknown" else "t",
                "partition": partition,
                "pending": False,
                "offset": 10,
                "commit_timestamp_ms": NOW_MS - (59_999 if name == "committing" and partition else 60_000),
            }
            for name in names
            if name not in ("never", "kcore-watch-1-driver-0")
            for partition in (0, 1)
        ],
    )
    ends = spark.createDataFrame([("t", 0, 14), ("t", 1, 12)], "topic string, partition int, end_offset bigint")
    lags = lag_by_group(offsets, ends, NOW_MS)
    assert {tuple(row)[1:] for row in lags.where("group_id in ('stalled', 'unknown')").collect()} == {
        ("stalled", "t", 2, 6, 4)
    }
    known = lags.where("group_id <> 'done'").unionByName(
        lags.where("group_id = 'done'").selectExpr("at_ms", "group_id", "topic", "partitions", "0L as lag", "max_lag")
    )
    found = groups_without_commits(groups, offsets, known, NOW_MS, LIMITS)
    assert alerts_of(found) == [
        ("no-commits", "never", NOW_MS - 70_000),
        ("no-commits", "stalled", NOW_MS - 60_000),
        ("no-commits", "unknown", NOW_MS - 60_000),
    ]
    earlier = groups_without_commits(groups, offsets, known, NOW_MS, LIMITS, NOW_MS - 1)
    assert alerts_of(earlier) == [("no-commits", "never", NOW_MS - 70_000)]
    details = {row["subject"]: row["detail"] for row in found.collect()}
    assert details["stalled"] == f"2 members, last commit at {NOW_MS - 60_000}, lag 6"
    assert details["never"] == "2 members, no commit, lag unknown"
