"""The example examples/lag_monitor.py: measurements of an embedded node and of servers, and its command line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "lag_monitor.py"


@pytest.fixture(scope="module")
def monitor() -> Any:
    spec = importlib.util.spec_from_file_location("lag_monitor", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lag_monitor"] = module
    spec.loader.exec_module(module)
    return module


def prepare(node: kcore.Node, name: str) -> None:
    """Creates a topic with 5 and 2 records, a group that is 3 records behind, and a group without lag."""
    topic = node.topics.create(name, 2)
    for partition, count in ((0, 5), (1, 2)):
        topic.append_many([str(number) for number in range(count)], partition=partition)
    node.group(f"{name}-behind").commit({(name, 0): 3, (name, 1): 1})
    node.group(f"{name}-done").commit({(name, 0): 5, (name, 1): 2})


def test_the_monitor_measures_groups_of_all_types(node: kcore.Node, name: str, monitor: Any) -> None:
    prepare(node, name)
    node.group(f"{name}-queue").set_config({"share.auto.offset.reset": "earliest"})
    with (
        node.queue(name, group=f"{name}-queue", auto_accept=False) as queue,
        node.group(f"{name}-member").consume(name, auto_commit=None) as consumer,
    ):
        job = queue.get(30)
        assert job is not None
        job.accept()
        first = consumer.poll(30)[0]
        consumer.commit({first.topic_partition: first.offset + 1})
        rows = {row.group_id: row for row in monitor.measure(node) if row.group_id.startswith(name)}
    at = kcore.TopicPartition
    assert {key: (row.type, row.state, row.lag, row.worst) for key, row in rows.items() if row.type == "classic"} == {
        f"{name}-behind": ("classic", "Empty", 3, at(name, 0)),
        f"{name}-done": ("classic", "Empty", 0, None),
    }
    member, share = rows[f"{name}-member"], rows[f"{name}-queue"]
    # Seven records less the committed one, also in the partition that the member owns without a committed offset.
    assert (member.type, member.state, member.lag, member.worst) == ("consumer", "Stable", 6, at(name, 0))
    assert (share.type, share.state) == ("share", "Stable")
    assert set(rows) == {f"{name}-{kind}" for kind in ("behind", "done", "member", "queue")}


def test_a_group_that_never_commits_is_behind(node: kcore.Node, name: str, monitor: Any) -> None:
    prepare(node, name)
    with node.group(f"{name}-member").consume(name, auto_commit=None) as consumer:
        assert consumer.poll(30)
        assert node.group(f"{name}-member").lag() == {}
        row = next(row for row in monitor.measure(node) if row.group_id == f"{name}-member")
    assert (row.lag, row.worst) == (7, kcore.TopicPartition(name, 0))


def test_tasks_that_never_commit_are_behind(monitor: Any) -> None:
    """A streams group has tasks, but has never committed an offset. The monitor counts all records of the source and
    repartition topics of these tasks as lag.
    """
    settings = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
    count = Subtopology(subtopology_id="0", source_topics=["words"], repartition_sink_topics=["words-by-key"])
    total = Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name="words-by-key", partitions=1)])
    with kcore.open(config=settings) as node:
        prepare(node, "words")
        node.topics.create("words-by-key", 1).append("by-key")
        join = StreamsGroupHeartbeatRequest(
            group_id="counters",
            member_id="m",
            process_id="p",
            rebalance_timeout_ms=60_000,
            topology=Topology(subtopologies=[count, total]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        response = node.send(join)
        assert (response.error_code, len(response.active_tasks or ())) == (0, 2)
        (member,) = node.group("counters").describe().members
        row = next(row for row in monitor.measure(node) if row.group_id == "counters")
    owned = tuple(kcore.TopicPartition(*each) for each in (("words", 0), ("words", 1), ("words-by-key", 0)))
    assert member.tasks == (("0", 0), ("0", 1), ("1", 0))
    assert member.assignment == member.target == owned
    assert (row.type, row.lag, row.worst) == ("streams", 8, owned[0])


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(None, 10, "-"), (None, 0, "caught up"), (30, 10, "5 s"), (10, 10, "no progress"), (5, 10, "falls behind")],
)
def test_the_forecast_follows_from_two_measurements(monitor: Any, before: int | None, now: int, expected: str) -> None:
    def row(lag: int, time_s: float) -> Any:
        return monitor.Row("g", "classic", "Empty", lag, None, time_s)

    assert monitor.forecast(None if before is None else row(before, 0.0), row(now, 10.0)) == expected


def test_its_command_watches_a_cluster_until_the_count(bootstrap: str, name: str) -> None:
    with kcore.connect(bootstrap) as node:
        prepare(node, name)
    command = [sys.executable, str(EXAMPLE), bootstrap, "0.01", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "")
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{name}-behind")]
    row = [f"{name}-behind", "classic", "Empty", "3", f"{name}-0"]
    assert lines == [[*row, "-"], [*row, "no", "progress"]]


def test_the_number_of_requests_does_not_grow_with_the_number_of_groups(monitor: Any) -> None:
    """With requests for each group, one measurement of a cluster with some hundred groups would take a minute."""
    counts = []
    with kcore.open() as node:
        node.topics.create("t", 2)
        send = node._calls.transport.send
        sent: list[str] = []

        def count(request: Any, *args: Any, **options: Any) -> Any:
            sent.append(type(request).__name__)
            return send(request, *args, **options)

        node._calls.transport.send = count  # type: ignore[method-assign]
        for groups in (2, 40):
            for number in range(groups):
                node.group(f"g{number}").commit({("t", 0): 0})
            sent.clear()
            assert len(monitor.measure(node)) == groups
            counts.append(len(sent))
    assert 3 <= counts[0] == counts[1] <= 8
