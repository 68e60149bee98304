"""The timeline in Spark: its windows, gaps and storms are compared with pure Python, and the job runs on a real
broker's logs.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.frames.output import TIMELINE_DONE
from kcore.spark.jobs.timeline import REPORT, TimelineOptions, timeline
from kcore.spark.timeline.event_kinds import EVENT_KINDS, kind_ddl
from kcore.spark.timeline.frames import (
    Bounds,
    commit_gaps,
    commit_windows,
    nice_width,
    rebalance_windows,
    storms,
    transaction_windows,
)
from kcore.spark.timeline.history import History, HistoryOptions
from kcore.spark.timeline.tables import TABLES
from tests.seeds import SEED
from tests.spark.timeline.test_report import parsed

pytestmark = pytest.mark.spark

BOUNDS = Bounds(window_ms=1_000, gap_ms=700, storm_count=3, storm_window_ms=900)
GROUPS = ("g", "h", "i")


def row_of(fact: str, **given: Any) -> dict[str, Any]:
    """Returns an event of a kind; columns without a given value are None."""
    return {name: given.get(name) for name, _, _ in EVENT_KINDS[fact]}


def plain(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[column] for column in columns) for row in frame.collect()), key=repr)


@pytest.fixture(scope="module")
def chance() -> random.Random:
    seed = SEED
    print("seed", seed)
    return random.Random(seed)


@pytest.fixture(scope="module")
def rebalances(chance: random.Random) -> list[dict[str, Any]]:
    return [
        row_of(
            "rebalances",
            coordinator_partition=0,
            group_id=chance.choice(GROUPS),
            group_type="consumer",
            start_offset=offset,
            start_ms=chance.randrange(20_000),
            duration_ms=chance.choice([None, 5, 50]),
            outcome=chance.choice(["completed", "superseded", "replaced"]),
            cause=chance.choice(["member joined", "member left"]),
            joined=["a"] * chance.randrange(3),
            left=[],
            moved=chance.choice([None, 2]),
            whole=chance.random() < 0.9,
        )
        for offset in range(60)
    ]


@pytest.fixture(scope="module")
def commits(chance: random.Random) -> list[dict[str, Any]]:
    return [
        row_of(
            "commits",
            coordinator_partition=0,
            group_id=chance.choice(GROUPS),
            topic=chance.choice("tu"),
            partition=chance.randrange(4),
            record_offset=offset,
            timestamp_ms=chance.randrange(20_000),
            committed_offset=offset,
            kind=chance.choice(["plain", "plain", "transactional", "aborted", "pending"]),
            whole=chance.random() < 0.9,
        )
        for offset in range(120)
    ]


def frame(spark: Any, kind: str, rows: list[dict[str, Any]]) -> Any:
    return spark.createDataFrame([tuple(row.values()) for row in rows], kind_ddl(kind))


def test_windows_are_counted_as_python_counts_them(
    spark: Any, rebalances: list[dict[str, Any]], commits: list[dict[str, Any]]
) -> None:
    expected: Counter[Any] = Counter()
    for row in rebalances:
        if row["outcome"] != "replaced":
            expected[row["start_ms"] // 1_000 * 1_000, row["group_id"], row["cause"]] += 1
    found = plain(
        rebalance_windows(frame(spark, "rebalances", rebalances), 1_000),
        "window_start_ms", "group_id", "cause", "rebalances",
    )  # fmt: skip
    assert found == sorted(((*key, count) for key, count in expected.items()), key=repr)

    per_window: dict[Any, Counter[str]] = defaultdict(Counter)
    for row in commits:
        per_window[row["timestamp_ms"] // 1_000 * 1_000, row["group_id"], row["topic"]][row["kind"]] += 1
    found = plain(
        commit_windows(frame(spark, "commits", commits), 1_000),
        "window_start_ms", "group_id", "topic", "commits", "transactional", "aborted", "pending", "commits_per_s",
    )  # fmt: skip
    assert found == sorted(
        (
            (
                *key,
                kinds["plain"] + kinds["transactional"],
                kinds["transactional"],
                kinds["aborted"],
                kinds["pending"],
                float(kinds["plain"] + kinds["transactional"]),
            )
            for key, kinds in per_window.items()
        ),
        key=repr,
    )


def test_gaps_are_found_as_python_finds_them(
    spark: Any, rebalances: list[dict[str, Any]], commits: list[dict[str, Any]]
) -> None:
    """The last gap of each topic ends at the end of the log."""
    end_ms = 25_000
    times: dict[Any, list[int]] = defaultdict(list)
    for row in commits:
        if row["kind"] in ("plain", "transactional"):
            times[row["group_id"], row["topic"]].append(row["timestamp_ms"])
    expected = []
    for (group_id, topic), at in times.items():
        at.sort()
        for begin, end in zip(at, [*at[1:], end_ms], strict=True):
            if end - begin >= BOUNDS.gap_ms:
                within = sum(
                    row["group_id"] == group_id and begin <= row["start_ms"] <= end and row["outcome"] != "replaced"
                    for row in rebalances
                )
                expected.append((group_id, topic, begin, end, end - begin, begin == at[-1], within))
    logs = frame(spark, "logs", [row_of("logs", coordinator_partition=0, last_ms=end_ms)])
    gaps = commit_gaps(frame(spark, "commits", commits), frame(spark, "rebalances", rebalances), logs, BOUNDS)
    found = plain(gaps, "group_id", "topic", "from_ms", "to_ms", "gap_ms", "open", "rebalances")
    assert found == sorted(expected, key=repr)


def test_storms_are_found_as_python_finds_them(spark: Any, rebalances: list[dict[str, Any]]) -> None:
    """In a storm, any three consecutive rebalances begin within 900 ms. Overlapping storms are merged."""
    expected = []
    for group_id in GROUPS:
        own = sorted(
            row["start_ms"] for row in rebalances if row["group_id"] == group_id and row["outcome"] != "replaced"
        )
        spans: list[list[int]] = []
        for first, last in zip(own, own[BOUNDS.storm_count - 1 :], strict=False):
            if last - first <= BOUNDS.storm_window_ms:
                if spans and first <= spans[-1][1]:
                    spans[-1][1] = last
                else:
                    spans.append([first, last])
        expected += [(group_id, a, z, sum(a <= at <= z for at in own)) for a, z in spans]
    found = plain(storms(frame(spark, "rebalances", rebalances), BOUNDS), "group_id", "from_ms", "to_ms", "rebalances")
    assert found == sorted(expected, key=repr)


def test_transactions_are_counted_by_window(spark: Any) -> None:
    rows = [
        row_of("transactions", start_ms=start_ms, outcome=outcome, cause=cause, duration_ms=duration_ms)
        for start_ms, outcome, cause, duration_ms in (
            (5, "committed", None, 10), (999, "committed", None, 20), (1_000, "aborted", "timeout", 30),
        )
    ]  # fmt: skip
    found = transaction_windows(frame(spark, "transactions", rows), 1_000)
    assert plain(found, "window_start_ms", "outcome", "cause", "transactions", "longest_ms", "mean_ms") == [
        (0, "committed", None, 2, 20, 15.0),
        (1_000, "aborted", "timeout", 1, 30, 30.0),
    ]


@pytest.mark.parametrize(
    ("span_ms", "most", "least_ms", "expected"),
    [
        (100, 100, 1, 1),
        (9_000, 96, 1, 100),
        (9_000, 96, 300, 300),
        (90_000, 96, 300, 1_500),
        (90_000, 96, 1_000, 1_000),
        (7 * 86_400_000, 96, 60_000, 2 * 3_600_000),
        (10**9, 96, 1, 6 * 3_600_000),
        (10**12, 96, 7, 10_416_666_667),
    ],
)
def test_widths_are_round_and_few_enough(span_ms: int, most: int, least_ms: int, expected: int) -> None:
    width = nice_width(span_ms, most, least_ms)
    assert width % least_ms == 0
    assert span_ms <= width * most
    assert width == -(-expected // least_ms) * least_ms


@pytest.fixture(scope="module")
def logs(kafka_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yields a compacted partition of groups, one of transactions, and one of share states."""
    folder = tmp_path_factory.mktemp("logs")
    for name in ("__consumer_offsets-2", "__transaction_state-3", "__share_group_state-1"):
        (folder / name).symlink_to(kafka_logs / "moment-2" / name)
    return folder


@pytest.mark.long
def test_the_job_reads_logs_of_a_real_broker(spark: Any, logs: Path, tmp_path: Path) -> None:
    """The job's tables equal the events that are read without Spark, and the page is well-formed. A second run, for a
    part of the time and one group, replaces the first.
    """
    facts: Counter[str] = Counter()
    expected = []
    for part in find_partitions(logs):
        history = History(part.topic, part.partition, HistoryOptions())
        for kind, row in history.events(read_rows(part), part.active_offset):
            facts[kind] += 1
            if kind == "rebalances":
                expected.append(row)
    assert {kind for kind in EVENT_KINDS if not facts[kind]} == {"share_topics"}, "their groups are in other partitions"
    found = timeline(spark, logs, tmp_path, TimelineOptions(gap_ms=20_000))
    tables = {name: spark.read.parquet(str(tmp_path / name)) for name in TABLES}
    for name, columns in TABLES.items():
        assert tables[name].columns == [column for column, _, _ in columns]
    names = [name for name, _, _ in EVENT_KINDS["rebalances"]]
    assert plain(tables["rebalances"], *names) == sorted(expected, key=repr)
    done = json.loads((tmp_path / TIMELINE_DONE).read_text())
    for kind in ("rebalances", "moves", "transactions", "deliveries", "logs"):
        assert done["rows"][kind] == facts[kind]
    assert 0 < found["totals"]["commits"] + found["totals"]["commits_aborted"] <= facts["commits"]
    words = "".join(parsed((tmp_path / REPORT).read_text()).itertext())
    assert "1 of 3 partitions were compacted" in words

    middle_ms = (found["from_ms"] + found["to_ms"]) // 2
    group_id = found["restless"][0]["group_id"]
    timeline(spark, logs, tmp_path, TimelineOptions(from_ms=middle_ms, window_ms=500, groups=frozenset({group_id})))
    rebalances = plain(spark.read.parquet(str(tmp_path / "rebalances")), "group_id", "start_offset")
    later = [
        row for row in map(dict, (zip(names, row, strict=True) for row in expected)) if row["group_id"] == group_id
    ]
    assert rebalances == sorted(
        ((group_id, row["start_offset"]) for row in later if row["end_ms"] is None or row["end_ms"] >= middle_ms),
        key=repr,
    )
    windows = spark.read.parquet(str(tmp_path / "commit_windows"))
    assert windows.where(f"window_start_ms % 500 <> 0 or window_start_ms < {middle_ms - 500}").count() == 0
