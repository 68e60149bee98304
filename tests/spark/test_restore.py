"""Restores committed offsets as of a moment, from real logs to a running server."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.client import Connection
from kcore.protocol.records.base import CONSUMER_OFFSETS
from kcore.spark.events.sources import ServerSource, open_source
from kcore.spark.export.exporter import export
from kcore.spark.jobs import job
from kcore.spark.jobs.restore_plan import committed_as_of, plan_restore
from kcore.spark.restore.apply import apply
from kcore.spark.restore.plan import COMPACTED, DAMAGED, WHOLE, load
from kcore.spark.restore.planning import CommittedAsOf
from kcore.testing import ServerProcess
from kcore_ext.util.java_hash import partition_for
from tests.kit import COMMIT_VERSION, batch, commit, committed, make_topic, produce

pytestmark = pytest.mark.spark

Oracle = dict[str, dict[str, list[dict[str, Any]]]]


def place(one: Any) -> tuple[str, str, int]:
    return one["group"], one["topic"], one["partition"]


@pytest.mark.parametrize(("earlier", "later"), [("moment-1", "moment-1"), ("moment-1", "moment-4")])
def test_later_log_gives_earlier_offsets_or_reports_loss(
    spark: Any, kafka_logs: Path, kafka_oracle: Oracle, earlier: str, later: str
) -> None:
    """A later copy of the log gives the committed offsets at an earlier moment. They equal the broker's responses at
    that moment.

    If compaction has removed the records of an offset since that moment, the offset is marked as compacted. A deleted
    offset may be absent.
    """
    responses = kafka_oracle[earlier]
    ends = {
        (one["topic"], one["partition"]): one["log_end_offset"]
        for one in responses["partition"]
        if one["topic"] == CONSUMER_OFFSETS
    }
    then, compacted = committed_as_of(spark, kafka_logs / later, offsets=ends)
    found = {(one.group, *one.place): one for one in then}
    still = {place(one) for one in kafka_oracle[later]["offset"]}
    expected = {place(one): one for one in responses["offset"] if one["offset"] is not None}
    assert len(expected) > 1_000
    lost = 0
    for key, one in expected.items():
        if key not in found:
            assert compacted
            assert key not in still  # deleted since, and the deletion was cleaned away too
        elif found[key].offset is None:
            assert found[key].history == COMPACTED
            lost += 1
        else:
            assert (found[key].offset, found[key].metadata) == (one["offset"], one["metadata"])
            assert found[key].pending == one["unstable"]
    for key, of_log in found.items():
        assert key in expected or of_log.offset is None, of_log
    if earlier == later:
        assert compacted == {}
        assert {of_log.history for of_log in found.values()} == {WHOLE}
        assert found.keys() == expected.keys()
    else:
        assert set(compacted.values()) == {COMPACTED}
        assert 0 < lost < len(expected)


def test_damage_is_not_reported_as_compaction(spark: Any, kafka_logs: Path, tmp_path: Path) -> None:
    """Of five partitions, one is damaged, one was compacted beyond the requested moment, and three are missing. The
    offsets of damaged and missing partitions are marked as damaged, and only those of the compacted one as compacted.
    """
    for number in (0, 1):
        shutil.copytree(
            kafka_logs / "moment-1" / f"{CONSUMER_OFFSETS}-{number}", tmp_path / f"{CONSUMER_OFFSETS}-{number}"
        )
    damaged = sorted((tmp_path / f"{CONSUMER_OFFSETS}-1").iterdir())[-1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 1
    damaged.write_bytes(data)
    with open_source(tmp_path) as source:
        ends = {part[:2]: [row.offset for row in source.rows(part)][-1] for part in source.parts()}
    moment = {(CONSUMER_OFFSETS, 0): 100, (CONSUMER_OFFSETS, 1): ends[CONSUMER_OFFSETS, 1]}
    then, histories = committed_as_of(spark, tmp_path, offsets=moment)
    assert histories == {0: COMPACTED, 1: DAMAGED} | dict.fromkeys((2, 3, 4), DAMAGED)
    for one in then:
        assert one.history == histories[partition_for(one.group, 5)]
    assert {(one.history, one.offset is None) for one in then} >= {(COMPACTED, True), (DAMAGED, False)}


def test_a_plan_from_a_running_servers_log_is_applied_to_the_server(spark: Any, tmp_path: Path) -> None:
    """The test commits, exports, overwrites, plans, applies and reads offsets. Some groups have no change."""
    settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with (
        ServerProcess(tmp_path / "data", settings) as server,
        Connection.to(server.bootstrap) as connection,
        kcore.connect(server.bootstrap) as node,
    ):
        make_topic(connection, "t", 2)
        for partition in (0, 1):
            connection.send(produce("t", batch([b"x"] * 50), partition), 9)
        for group in ("a", "b", "c"):
            connection.send(commit(group, {("t", 0): 10, ("t", 1): 20}, metadata=group), COMMIT_VERSION)
        ends = {part[:2]: part.end or 0 for part in ServerSource(node).parts() if part.topic == CONSUMER_OFFSETS}
        for group in ("a", "b", "d"):
            connection.send(commit(group, {("t", 0): 40}), COMMIT_VERSION)
        export(ServerSource(node), tmp_path / "events", topic_filter={CONSUMER_OFFSETS}.__contains__)

        then, _ = committed_as_of(spark, tmp_path / "events", offsets=ends, groups={"a", "c"})
        topic_id = then[0].topic_id
        assert topic_id
        assert then == [
            CommittedAsOf(group, "t", partition, 10 * partition + 10, group, topic_id)
            for group in ("a", "c")
            for partition in (0, 1)
        ]
        plan = replace(plan_restore(then, node, server.bootstrap), source="events")
        plan.save(tmp_path / "plan.json")
        assert load(tmp_path / "plan.json") == plan
        assert [(row.group, row.partition, row.action) for row in plan.rows] == [
            ("a", 0, "set"),
            ("a", 1, "skip"),
            ("c", 0, "skip"),
            ("c", 1, "skip"),
        ]
        assert [one.result for one in apply(plan, node)] == ["set", "skipped", "skipped", "skipped"]
        assert committed(connection, "a") == {("t", 0): 10, ("t", 1): 20}
        assert committed(connection, "b") == {("t", 0): 40, ("t", 1): 20}


def test_the_job_is_found_by_its_name() -> None:
    """The job `restore-plan` is in the module `restore_plan`, because a module name cannot contain a hyphen."""
    assert job("restore-plan").__name__ == "kcore.spark.jobs.restore_plan"
