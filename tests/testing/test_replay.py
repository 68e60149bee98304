"""Brokers that start with the groups and offsets of a data folder at a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kcore
from kcore.errors import KcoreError
from kcore.testing import replay
from tests.testing.clients import confluent_consumer, poll

START = datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a data folder with six records. Group `g` committed offset 2 after ten seconds.

    An hour later, `g` committed offset 5, and group `late` committed offset 1.
    """
    clock = kcore.ManualClock()
    path = tmp_path / "data"
    with kcore.open(path, clock=clock, config={"log.message.timestamp.after.max.ms": 2**63 - 1}) as node:
        node.topics.create("jobs", partitions=1)
        node.topics["jobs"].append_many([str(n) for n in range(6)])
        node.advance(10_000)
        node.group("g").commit({("jobs", 0): 2})
        node.advance(3_600_000)
        node.group("g").commit({("jobs", 0): 5})
        node.group("late").commit({("jobs", 0): 1})
    return path


@pytest.mark.parametrize(
    ("after", "offsets", "groups"),
    [
        (timedelta(seconds=5), {}, []),
        (timedelta(minutes=1), {("jobs", 0): 2}, ["g"]),
        (timedelta(hours=2), {("jobs", 0): 5}, ["g", "late"]),
        (None, {("jobs", 0): 5}, ["g", "late"]),
    ],
)
def test_the_groups_are_those_of_the_moment(
    folder: Path, after: timedelta | None, offsets: dict[tuple[str, int], int], groups: list[str]
) -> None:
    with replay(folder, None if after is None else START + after) as broker:
        assert broker.committed("g") == offsets
        assert broker.groups.ids() == groups
        assert broker.node.topics["jobs"].end_offsets()[0] == 6


def test_a_consumer_reads_on_from_the_moment(folder: Path) -> None:
    with replay(folder, START + timedelta(minutes=1)) as broker:
        assert abs(broker.clock.now - START.timestamp() - 60) < 30
        consumer = confluent_consumer(broker)
        consumer.subscribe(["jobs"])
        assert [record.value() for record in poll(consumer, 4)] == [b"2", b"3", b"4", b"5"]
        consumer.commit(asynchronous=False)
        consumer.close()
        broker.assert_committed("g", {("jobs", 0): 6})
        broker.restart()
        broker.assert_committed("g", {("jobs", 0): 6})


def test_the_folder_is_only_read(folder: Path) -> None:
    with replay(folder) as broker:
        broker.node.group("g").commit({("jobs", 0): 0})
    with kcore.open(folder) as node:
        assert {tuple(k): v.offset for k, v in node.group("g").committed().items()} == {("jobs", 0): 5}


def test_wrong_arguments_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(KcoreError, match="no kcore data folder"):
        replay(tmp_path / "absent")
    with pytest.raises(ValueError, match="has no time zone"):
        replay(folder, datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="has no time zone"):
        replay(folder, "2026-01-01")
    (tmp_path / "events").mkdir()
    with pytest.raises(KcoreError, match="files of `kcore export` are no data folder"):
        replay(tmp_path / "events")


def test_the_moment_may_be_a_text_or_a_number(folder: Path) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)  # before the folder's first record
    for at in (moment, "2020-01-01T01:00:00+01:00", "2020-01-01T00:00:00Z", moment.timestamp()):
        with replay(folder, at=at) as broker:
            assert broker.committed("g") == {}
            assert broker.clock.now == pytest.approx(moment.timestamp(), abs=60)
