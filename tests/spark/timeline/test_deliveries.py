"""Deliveries of share groups in the timeline: counts of deliveries, which result from differences of states, and their
sums and lag in each time window.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcore.protocol.records import SHARE_GROUP_STATE
from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue, StateBatch
from kcore.share.batches import Batches, combine
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.export.exporter import export
from kcore.spark.frames.logs import logs_at
from kcore.spark.jobs.timeline import TimelineOptions, timeline
from kcore.spark.timeline.deliveries import ACKNOWLEDGED, ARCHIVED, AVAILABLE, Progress, progress
from kcore.spark.timeline.event_kinds import EVENT_KINDS, kind_ddl
from kcore.spark.timeline.frames import log_ends, log_times_of, share_windows
from kcore.spark.timeline.history import History, HistoryOptions
from tests.spark.timeline.logs import Log

TOPIC_ID = bytes(range(16))
PLACE: dict[str, Any] = {"group_id": "s", "topic_id": TOPIC_ID, "partition": 2}


def update(*batches: tuple[int, int, int, int], start_offset: int = -1, complete: int = 0) -> ShareUpdateValue:
    return ShareUpdateValue(
        leader_epoch=-1,
        start_offset=start_offset,
        delivery_complete_count=complete,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )


def by_offset(batches: Batches) -> dict[int, tuple[int, int]]:
    return {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}


@pytest.mark.parametrize("seed", range(20))
def test_progress_is_the_sum_over_single_records(seed: int) -> None:
    """The job counts deliveries for ranges of offsets at once. The counts equal the sum over single offsets."""
    chance = random.Random(seed)
    before: Batches = ()
    for _ in range(30):
        added = []
        for _ in range(chance.randrange(4)):
            first = chance.randrange(40)
            state = chance.choice([AVAILABLE, ACKNOWLEDGED, ARCHIVED])
            added.append((first, first + chance.randrange(12), state, chance.randrange(1, 5)))
        after = combine(before, added, chance.choice([-1, chance.randrange(10)]))
        old, expected = by_offset(before), Progress()
        for offset, (state, count) in by_offset(after).items():
            old_state, old_count = old.get(offset, (AVAILABLE, 0))
            expected = Progress(
                expected.delivered + max(0, count - old_count),
                expected.redelivered + max(0, count - max(1, old_count)),
                expected.acknowledged + (state == ACKNOWLEDGED and old_state != ACKNOWLEDGED),
                expected.archived + (state == ARCHIVED and old_state != ARCHIVED),
            )
        assert progress(before, after) == expected
        before = after


def share_log() -> Log:
    """Returns a log of ten records: seven acknowledged, one archived at delivery 3, and two released. The last record
    repeats a state.
    """
    log = Log(SHARE_GROUP_STATE)
    log.put(ShareSnapshotKey(**PLACE), ShareSnapshotValue(start_offset=0, delivery_complete_count=0))
    log.passes(500).put(ShareUpdateKey(**PLACE), update((0, 6, 2, 1), (7, 9, 0, 1), complete=7))
    log.passes(700).put(ShareUpdateKey(**PLACE), update((7, 7, 0, 2), start_offset=7))
    log.passes(100).put(ShareUpdateKey(**PLACE), update((7, 7, 4, 3), complete=1))
    log.put(ShareUpdateKey(**PLACE), update((7, 7, 4, 3), complete=1))
    return log


def events(log: Log, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    history = History(log.topic, 0, HistoryOptions(**options))
    return [
        (kind, dict(zip((name for name, _, _ in EVENT_KINDS[kind]), row, strict=True)))
        for kind, row in history.events(log.rows)
        if kind != "logs"
    ]


def test_each_change_of_a_share_partition_is_an_event() -> None:
    """A record that changes nothing is no event. `--group` filters the events."""
    found = events(share_log())
    assert {kind for kind, _ in found} == {"deliveries"}
    columns = ("timestamp_ms", "start_offset", "complete", "delivered", "redelivered", "acknowledged", "archived")
    assert [tuple(row[name] for name in (*columns, "waiting")) for _, row in found] == [
        (0, 0, 0, 0, 0, 0, 0, 0),
        (500, 0, 7, 10, 0, 7, 0, 3),
        (1_200, 7, 0, 1, 1, 0, 0, 3),
        (1_300, 7, 1, 1, 1, 0, 1, 2),
    ]
    assert {(row["group_id"], row["topic_id"], row["partition"]) for _, row in found} == {("s", TOPIC_ID.hex(), 2)}
    assert events(share_log(), groups=frozenset({"other"})) == []


def test_the_topics_of_share_groups_have_names() -> None:
    """A share group lists a topic first as initializing and then as initialized. The timeline has one event with the
    topic's name.
    """
    log = Log()
    topic = TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="jobs", partitions=[2])
    key = ShareGroupStatePartitionMetadataKey(group_id="s")
    log.put(key, ShareGroupStatePartitionMetadataValue(initializing_topics=[topic]))
    log.put(key, ShareGroupStatePartitionMetadataValue(initialized_topics=[topic]))
    log.put(key, None)
    named = {"coordinator_partition": 0, "group_id": "s", "topic_id": TOPIC_ID.hex(), "topic": "jobs"}
    assert events(log) == [("share_topics", named)]


@pytest.mark.spark
def test_windows_of_share_groups_have_the_lag(spark: Any) -> None:
    """The lag of a window uses the newest end of the log before the end of the window. Without an end or a topic name,
    the lag is unknown.
    """
    rows = [row for _, row in events(share_log())]
    deliveries = spark.createDataFrame(rows, kind_ddl("deliveries"))
    names = spark.createDataFrame([(0, "s", TOPIC_ID.hex(), "jobs")], kind_ddl("share_topics"))
    produced = [
        ("jobs", 2, 9, 100),
        ("jobs", 2, 11, 1_900),
        ("jobs", 2, 20, 2_000),
        ("jobs", 1, 90, 0),
        ("x", 2, 90, 0),
    ]
    frame = spark.createDataFrame(produced, "topic string, partition int, offset bigint, timestamp_ms bigint")
    ends = log_ends(frame, ["jobs"], 1_000)
    columns = ("window_start_ms", "topic", "acknowledged", "archived", "redelivered", "waiting", "end_offset", "lag")

    def collected(found: Any) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns) for row in found.orderBy("window_start_ms").collect()]

    assert collected(share_windows(deliveries, names, ends, 1_000)) == [
        (0, "jobs", 7, 0, 0, 3, 10, 3),
        (1_000, "jobs", 0, 1, 2, 2, 12, 4),
    ]
    nameless = names.where("false")
    for found in (share_windows(deliveries, names, None, 1_000), share_windows(deliveries, nameless, ends, 1_000)):
        assert [row[-2:] for row in collected(found)] == [(None, None)] * 2


class Rows(Source):
    """Logs as lists of rows."""

    def __init__(self, *logs: list[EventRow]) -> None:
        self._logs = {(rows[0].topic, rows[0].partition): rows for rows in logs}

    def parts(self) -> list[Part]:
        return [Part(*place, 0, rows[-1].offset + 1) for place, rows in sorted(self._logs.items())]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        return (row for row in self._logs[span.part[:2]] if span.has(row.offset))


@pytest.fixture(scope="module")
def shared_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yields an export of the logs of a share group and of its topic, whose last record has no timestamp."""
    named = Log()
    topic = TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="jobs", partitions=[2])
    key = ShareGroupStatePartitionMetadataKey(group_id="s")
    named.put(key, ShareGroupStatePartitionMetadataValue(initialized_topics=[topic]))
    times = [100] * 10 + [1_900] * 2 + [2_000] * 9 + [-1]
    produced = [EventRow(None, b"job", "jobs", 2, offset, time) for offset, time in enumerate(times)]
    folder = tmp_path_factory.mktemp("shared") / "events"
    export(Rows(named.rows, share_log().rows, produced), folder)
    return folder


@pytest.mark.spark
def test_the_ends_of_shared_topics_come_from_their_logs(spark: Any, shared_export: Path) -> None:
    """The job computes the end offset in each window from the timestamps of the topic's records."""
    ends = log_ends(log_times_of(logs_at(spark, shared_export), ["jobs"], 1_000), ["jobs"], 1_000)
    columns = ("topic", "partition", "window_start_ms", "end_offset")
    found = [tuple(row[name] for name in columns) for row in ends.orderBy("window_start_ms").collect()]
    assert found == [("jobs", 2, 0, 10), ("jobs", 2, 1_000, 12), ("jobs", 2, 2_000, 21)]


@pytest.mark.long
@pytest.mark.spark
def test_the_timeline_of_a_share_group_has_the_lag(spark: Any, shared_export: Path, tmp_path: Path) -> None:
    """The source includes the log of the topic that the share group uses."""
    timeline(spark, shared_export, tmp_path, TimelineOptions(window_ms=1_000))
    rows = spark.read.parquet(f"{tmp_path}/share_windows").orderBy("window_start_ms").collect()
    assert [(row["topic"], row["window_start_ms"], row["end_offset"], row["lag"]) for row in rows] == [
        ("jobs", 0, 10, 3),
        ("jobs", 1_000, 12, 4),
    ]
