"""Restore plans on a running server that has real clients in its groups: all refusals, and the written offsets.

`KCORE_TEST_BOOTSTRAP=HOST:PORT` runs the tests against another server instead of `kcore serve`, such as Apache Kafka.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import kcore
from kcore.cli import main
from kcore.client.aio.threads import Cluster
from kcore.errors import KcoreError
from kcore.node.types import OffsetAndMetadata
from kcore.spark.jobs.restore_plan import plan_restore
from kcore.spark.restore.apply import Applied, apply
from kcore.spark.restore.plan import Checked, Plan, PlanRow, load
from kcore.spark.restore.planning import CommittedAsOf
from kcore.testing import ServerProcess
from tests.kit import COMMIT_VERSION, batch, commit, committed, make_topic, produce, wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

pytestmark = pytest.mark.clients

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
RECORDS = 20


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server."""
    given = os.environ.get("KCORE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    folder = tmp_path_factory.mktemp("restore")
    with ServerProcess(folder / "data", SETTINGS, stderr=folder / "log") as server:
        yield server.bootstrap
    assert "Traceback" not in (folder / "log").read_text()


@pytest.fixture
def node(bootstrap: str) -> Iterator[kcore.Node]:
    """A connection to the server."""
    with kcore.connect(bootstrap) as opened:
        yield opened


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """A client for the setup of tests."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Returns a name that is unique on the server."""
    return f"r{uuid.uuid4().hex[:8]}-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, admin: AdminClient, name: str) -> str:
    """Returns a topic of two partitions with `RECORDS` records each."""
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        for partition in (0, 1):
            producer.produce(name, str(number), partition=partition)
    assert producer.flush(30) == 0
    return name


def set_offsets(node: kcore.Node, group: str, offsets: dict[tuple[str, int], int], metadata: str = "") -> None:
    """Commits offsets without a member."""
    node.group(group).commit(
        {topic_partition: OffsetAndMetadata(offset, metadata) for topic_partition, offset in offsets.items()}
    )


def offsets_of(node: kcore.Node, group: str) -> dict[tuple[str, int], int]:
    return {tuple(topic_partition): found.offset for topic_partition, found in node.group(group).committed().items()}


def results(applied: list[Applied]) -> list[tuple[str, int, str]]:
    return [(one.row.topic, one.row.partition, one.result) for one in applied]


def brief(plan: Plan) -> list[tuple[Any, ...]]:
    return [(row.partition, row.from_offset, row.to_offset, row.action, row.why) for row in plan.rows]


def test_a_plan_is_applied_once(node: kcore.Node, topic: str, name: str) -> None:
    """Offsets move back or forward, or are new. A consumer of another library then reads from the planned offset."""
    group = f"{name}-g"
    set_offsets(node, group, {(topic, 0): 15})
    then = [CommittedAsOf(group, topic, 0, 4, "then"), CommittedAsOf(group, topic, 1, 7)]
    plan = plan_restore(then, node, "here")
    assert brief(plan) == [(0, 15, 4, "set", "back by 11"), (1, None, 7, "set", "nothing is committed now")]

    dry = apply(plan, node, dry_run=True)
    assert results(dry) == [(topic, 0, "would set"), (topic, 1, "would set")]
    assert offsets_of(node, group) == {(topic, 0): 15}

    assert results(apply(plan, node)) == [(topic, 0, "set"), (topic, 1, "set")]
    assert offsets_of(node, group) == {(topic, 0): 4, (topic, 1): 7}
    assert results(apply(plan, node)) == [(topic, 0, "already"), (topic, 1, "already")]
    assert brief(plan_restore(then, node, "here")) == [
        (0, 4, 4, "skip", "correct already"),
        (1, 7, 7, "skip", "correct already"),
    ]
    again = plan_restore(then, node, "here", include_same=True)
    assert results(apply(again, node)) == [(topic, 0, "set"), (topic, 1, "set")]


def test_offsets_are_clipped_to_the_log(node: kcore.Node, admin: AdminClient, topic: str, name: str) -> None:
    """A planned offset below the log's start is replaced by the start, and an offset above the log's end by the end."""
    group = f"{name}-g"
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(30)
    plan = plan_restore([CommittedAsOf(group, topic, 0, 3), CommittedAsOf(group, topic, 1, 99)], node, "here")
    assert brief(plan) == [
        (0, None, 6, "set", "nothing is committed now; clipped to the log's start, 6: earlier records were deleted"),
        (1, None, RECORDS, "set", f"nothing is committed now; clipped to the log's end, {RECORDS}"),
    ]
    assert {one.result for one in apply(plan, node)} == {"set"}
    assert offsets_of(node, group) == {(topic, 0): 6, (topic, 1): RECORDS}


def test_missing_topics_and_partitions_are_refused(node: kcore.Node, topic: str, name: str) -> None:
    """Covers a deleted topic, a missing partition, and a recreated topic."""
    group = f"{name}-g"
    then = [
        CommittedAsOf(group, f"{topic}-gone", 0, 3),
        CommittedAsOf(group, topic, 0, 3, topic_id="f" * 32),
        CommittedAsOf(group, topic, 9, 3),
        CommittedAsOf(group, topic, 1, 3),
    ]
    plan = plan_restore(then, node, "here")
    other = "the topic was recreated: its offsets refer to other records"
    assert brief(plan) == [
        (0, None, None, "refuse", other),
        (1, None, 3, "set", "nothing is committed now"),
        (9, None, None, "refuse", "the partition is gone, or has no leader"),
        (0, None, None, "refuse", "the topic was deleted"),
    ]
    assert [one.result for one in apply(plan, node)] == ["refused", "set", "refused", "refused"]
    assert offsets_of(node, group) == {(topic, 1): 3}


def classic_member(bootstrap: str, group: str, topic: str) -> Callable[[], Any]:
    """Starts a member of kafka-python. Returns a function that ends the member."""
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    wait_until(lambda: consumer.poll(timeout_ms=500) or consumer.assignment(), "it has partitions")
    return consumer.close


def new_member(bootstrap: str, group: str, topic: str) -> Callable[[], Any]:
    """Starts a member of confluent-kafka with the protocol of KIP-848. Returns a function that ends the member."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.2) or consumer.assignment(), "it has partitions")
    return consumer.close


@pytest.mark.parametrize("join", [classic_member, new_member], ids=["classic", "consumer"])
def test_groups_with_members_are_not_changed(
    bootstrap: str, node: kcore.Node, topic: str, name: str, join: Callable[..., Callable[[], Any]]
) -> None:
    """Planning refuses groups with members, and so does applying the plan.

    If a member joins between the check and the commit, the coordinator refuses the commit.
    """
    group = f"{name}-g"
    then = [CommittedAsOf(group, topic, 0, 4)]
    leave = join(bootstrap, group, topic)
    plan = plan_restore(then, node, "here")
    ((_, _, to, action, why),) = brief(plan)
    assert (to, action) == (None, "refuse")
    assert "the group has 1 member (" in why
    assert results(apply(plan, node)) == [(topic, 0, "refused")]
    leave()

    wait_until(lambda: plan_restore(then, node, "here").rows[0].action == "set", "the member is gone")
    plan = plan_restore(then, node, "here")
    leave = join(bootstrap, group, topic)
    (late,) = apply(plan, node, partial=True)
    assert late.result == "refused"
    assert "the group has 1 member (" in late.why
    leave()

    wait_until(lambda: plan_restore(then, node, "here").rows[0].action == "set", "the member is gone")
    plan = plan_restore(then, node, "here")
    joined: list[Callable[[], Any]] = []
    with kcore.Node(Meddled(bootstrap, lambda: joined.append(join(bootstrap, group, topic)))) as meddled:
        (race,) = apply(plan, meddled)
    assert (race.result, race.why) == ("failed", "UNKNOWN_MEMBER_ID")
    assert offsets_of(node, group) == {}
    joined[0]()


class Meddled(Cluster):
    """A cluster connection that runs an action before the first commit of offsets."""

    def __init__(self, bootstrap: str, meddle: Callable[[], Any]) -> None:
        super().__init__(bootstrap)
        self._meddle: Callable[[], Any] | None = meddle

    def send(self, request: Any, version: int | None = None, **options: Any) -> Any:
        if type(request).__name__ == "OffsetCommitRequest" and self._meddle is not None:
            meddle, self._meddle = self._meddle, None
            meddle()
        return super().send(request, version, **options)


def test_open_transactions_are_refused_and_their_offsets_kept(
    bootstrap: str, node: kcore.Node, topic: str, name: str
) -> None:
    """An open transaction contains an offset. Both the plan and its application refuse to change this offset, so the
    end of the transaction decides about it.
    """
    group = f"{name}-g"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{name}-tx", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], consumer.consumer_group_metadata(), 30)
    then = [CommittedAsOf(group, topic, 0, 4)]
    plan = plan_restore(then, node, "here")
    assert brief(plan) == [(0, None, None, "refuse", "a transaction that is open now holds an offset")]
    unaware = replace(plan, rows=(replace(plan.rows[0], to_offset=4, action="set"),))
    (found,) = apply(unaware, node)
    assert (found.result, found.why) == ("refused", "a transaction that is open now holds an offset")
    producer.commit_transaction(30)
    consumer.close()
    wait_until(lambda: offsets_of(node, group) == {(topic, 0): 9}, "the transaction is over")
    assert brief(plan_restore(then, node, "here")) == [(0, 9, 4, "set", "back by 5")]


def test_a_target_that_changed_is_refused_as_a_whole_or_in_part(node: kcore.Node, topic: str, name: str) -> None:
    """One offset has changed since the plan was made. Applying the plan then writes no offset, or with `partial` all
    other offsets.
    """
    group = f"{name}-g"
    set_offsets(node, group, {(topic, 0): 15, (topic, 1): 15})
    plan = plan_restore([CommittedAsOf(group, topic, 0, 4), CommittedAsOf(group, topic, 1, 5)], node, "here")
    set_offsets(node, group, {(topic, 1): 16})
    first, second = apply(plan, node)
    assert (first.result, second.result) == ("held back", "refused")
    assert second.why == "changed since the plan: the target has 16, the plan has 15"
    assert offsets_of(node, group) == {(topic, 0): 15, (topic, 1): 16}
    assert [one.result for one in apply(plan, node, partial=True)] == ["set", "refused"]
    assert offsets_of(node, group) == {(topic, 0): 4, (topic, 1): 16}


def test_a_topic_that_changed_is_refused(
    bootstrap: str, node: kcore.Node, admin: AdminClient, topic: str, name: str
) -> None:
    """In the first case the log start has moved above the offset. In the second, the topic was deleted and created
    again.
    """
    group = f"{name}-g"
    plan = plan_restore([CommittedAsOf(group, topic, 0, 4)], node, "here")
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(30)
    (found,) = apply(plan, node)
    assert (found.result, found.why) == (
        "refused",
        f"the log has changed since the plan: it now begins at 6 and ends at {RECORDS}",
    )
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: apply(plan, node)[0].why == "the partition is gone, or has no leader", "the topic is gone")

    def made() -> bool:
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
        return True

    wait_until(made, "it is there again")
    wait_until(
        lambda: apply(plan, node)[0].why == "the topic was deleted and made again since the plan",
        "the new topic is seen",
    )
    assert offsets_of(node, group) == {}


def test_a_refusal_of_the_server_fails_only_its_row(node: kcore.Node, topic: str, name: str) -> None:
    """Metadata above the server's limit fails only its own row. The other rows are written."""
    group = f"{name}-g"
    plan = plan_restore(
        [CommittedAsOf(group, topic, 0, 4, "x" * 5_000), CommittedAsOf(group, topic, 1, 5)], node, "here"
    )
    first, second = apply(plan, node)
    assert (first.result, first.why) == ("failed", "OFFSET_METADATA_TOO_LARGE")
    assert second.result == "set"
    assert offsets_of(node, group) == {(topic, 1): 5}


def test_plans_for_another_cluster_or_for_none_are_refused(node: kcore.Node, topic: str, name: str) -> None:
    """A plan records its target cluster. A plan without a target cannot be applied."""
    group = f"{name}-g"
    then = [CommittedAsOf(group, topic, 0, 4)]
    elsewhere = replace(plan_restore(then, node, "here"), target=Checked("there", "another"))
    with pytest.raises(KcoreError, match="the plan was made for cluster another, but the target is"):
        apply(elsewhere, node)
    (found,) = apply(plan_restore(then, None, ""), node)
    assert (found.result, "was not checked against a target" in found.why) == ("refused", True)
    assert offsets_of(node, group) == {}


def test_the_command_prints_every_row_and_an_exit_status(
    bootstrap: str, node: kcore.Node, topic: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output contains every row. The exit status reflects the results."""
    group = f"{name}-g"
    path = tmp_path / "plan.csv"
    plan_restore([CommittedAsOf(group, topic, 0, 4)], node, bootstrap).save(path)
    for arguments, result in ((["--dry-run"], "would set"), ([], "set"), ([], "already")):
        assert main(["offsets", "apply", str(path), "--bootstrap", bootstrap, "--format", "json", *arguments]) == 0
        row = json.loads(capsys.readouterr().out)
        expected = {"group": group, "topic": topic, "partition": 0, "from": None, "to": 4, "result": result}
        assert {key: row[key] for key in expected} == expected
    set_offsets(node, group, {(topic, 0): 12})
    assert main(["offsets", "apply", str(path), "--bootstrap", bootstrap]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["GROUP", "TOPIC", "PARTITION", "FROM", "TO", "RESULT", "WHY"]
    assert out[-1] == "1 refused"
    assert main(["offsets", "apply", str(path)]) == 1
    assert "name a data folder, or --bootstrap" in capsys.readouterr().err


def test_a_plan_is_applied_to_a_data_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Applies a plan to a data folder that no server has open."""
    folder = tmp_path / "data"
    with kcore.open(folder, config=SETTINGS) as engine:
        make_topic(engine, "t", 1)
        engine.send(produce("t", batch([b"one", b"two", b"three"])), 9)
        engine.send(commit("g", {("t", 0): 3}), COMMIT_VERSION)
        plan = plan_restore([CommittedAsOf("g", "t", 0, 1), CommittedAsOf("g", "t", 4, 1)], engine, str(folder))
    assert brief(plan) == [
        (0, 3, 1, "set", "back by 2"),
        (4, None, None, "refuse", "the partition is gone, or has no leader"),
    ]
    plan.save(tmp_path / "plan.json")
    assert load(tmp_path / "plan.json") == plan
    assert main(["offsets", "apply", str(tmp_path / "plan.json"), str(folder)]) == 1
    assert "1 refused, 1 set" in capsys.readouterr().out
    with kcore.open(folder, create=False) as engine:
        assert committed(engine, "g") == {("t", 0): 1}


def test_each_group_of_a_plan_has_its_own_request(node: kcore.Node, topic: str, name: str) -> None:
    """Twenty groups are written and read back separately."""
    then = [CommittedAsOf(f"{name}-{number:02}", topic, part, number) for number in range(20) for part in (0, 1)]
    plan = plan_restore(then, node, "here")
    assert {one.result for one in apply(plan, node)} == {"set"}
    for number in range(20):
        assert offsets_of(node, f"{name}-{number:02}") == {(topic, 0): number, (topic, 1): number}
    assert all(isinstance(row, PlanRow) and row.action == "skip" for row in plan_restore(then, node, "here").rows)
