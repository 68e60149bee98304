"""SQL views over the outputs of jobs, and over logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kcore.spark.events.event import EventRow
from kcore.spark.export.exporter import export
from kcore.spark.frames.views import VIEWS, owners, register_views
from kcore.spark.jobs.rebuild import rebuild
from kcore.spark.jobs.timeline import TimelineOptions, timeline
from kcore.spark.state.table_schemas import TABLES
from kcore.spark.timeline.event_kinds import EVENT_KINDS, kind_ddl
from kcore.spark.timeline.history import History, HistoryOptions
from kcore.spark.timeline.tables import TABLES as TIMELINE_TABLES
from tests.spark.timeline.logs import Log
from tests.spark.timeline.test_deliveries import Rows

pytestmark = pytest.mark.spark


def group_log() -> Log:
    """Returns the log of a classic group whose partition 1 moves from `a` to `b`, then has no owner, and returns to
    `a`.
    """
    log = Log()
    log.passes(1_000).generation(1, {"a": [0, 1]})
    log.passes(500).commits("g", 0, 10).commits("g", 1, 20)
    log.passes(500).generation(2, {"a": [0], "b": [1]})
    log.passes(500).commits("g", 1, 25).commits("g", 0, 99, producer_id=7)
    log.passes(500).generation(3, {"a": [0]})
    log.passes(1_000).generation(4, {"a": [0, 1]})
    return log.commits("alone", 5, 3)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an export of the group's log and of one partition of its topic."""
    folder = tmp_path_factory.mktemp("views") / "events"
    produced = [EventRow(None, b"x", "t", 1, offset, 100) for offset in range(40)]
    export(Rows(group_log().rows, produced), folder)
    return folder


def collected(spark: Any, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(query).collect()]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_views_show_a_state_and_its_logs(spark: Any, events: Path, tmp_path: Path) -> None:
    rebuild(spark, events, tmp_path / "state")
    names = register_views(spark, state=tmp_path / "state", events=events)
    assert names == [f"kcore_{name}" for name in (*TABLES, "current_offsets", "log_ends", "commits", "lag")]
    assert collected(spark, "select * from kcore_log_ends where topic = 't'") == [("t", 1, 0, 40)]
    lag = "select group_id, partition, offset, end_offset, lag from kcore_lag order by group_id, partition"
    assert collected(spark, lag) == [("alone", 5, 3, None, None), ("g", 0, 10, None, None), ("g", 1, 25, 40, 15)]
    current = "select group_type, group_state, member_count from kcore_current_offsets where group_id = 'g'"
    assert collected(spark, current) == [("classic", "Stable", 1)] * 2
    commits = "select timestamp_ms, partition, offset from kcore_commits where group_id = 'g'"
    assert collected(spark, f"{commits} and timestamp_ms between 2000 and 3000 order by record_offset") == [
        (2_500, 1, 25),
        (2_500, 0, 99),
    ]
    for name in ("groups", "lag", "commits"):
        comments = {row[0]: row[2] for row in spark.sql(f"describe kcore_{name}").collect()}
        columns = VIEWS[name] if name in VIEWS else TABLES[name]
        assert comments == {column: meaning for column, _, meaning in columns}


def frame_of(spark: Any, kind: str) -> Any:
    """Returns the events of a kind in the group's log."""
    rows = [row for found, row in History("__consumer_offsets", 0, HistoryOptions()).events(group_log().rows)
            if found == kind]  # fmt: skip
    assert all(len(row) == len(EVENT_KINDS[kind]) for row in rows)
    return spark.createDataFrame(rows, kind_ddl(kind))


def test_owners_have_intervals_for_each_partition(spark: Any) -> None:
    """An interval ends when the next rebalance moves the partition. Between two intervals, the partition may have no
    owner.
    """
    found = owners(frame_of(spark, "moves"), frame_of(spark, "rebalances"))
    rows = found.select("topic", "partition", "member_id", "client_id", "from_ms", "to_ms")
    assert [tuple(row) for row in rows.orderBy("partition", "from_ms").collect()] == [
        ("t", 0, "a", "client", 1_000, None),
        ("t", 1, "a", "client", 1_000, 2_000),
        ("t", 1, "b", "client", 2_000, 3_000),
        ("t", 1, None, None, 3_000, 4_000),
        ("t", 1, "a", "client", 4_000, None),
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_views_show_a_timeline(spark: Any, events: Path, tmp_path: Path) -> None:
    timeline(spark, events, tmp_path, TimelineOptions(window_ms=1_000))
    names = register_views(spark, timeline=tmp_path, prefix="t_")
    assert names == [*(f"t_timeline_{name}" for name in TIMELINE_TABLES), "t_owners"]
    at = "from_ms <= 2500 and coalesce(to_ms, 9e9) > 2500"
    assert collected(spark, f"select partition, member_id from t_owners where {at} order by partition") == [
        (0, "a"),
        (1, "b"),
    ]
    assert collected(spark, "select sum(rebalances) from t_timeline_rebalance_windows") == [(4,)]
