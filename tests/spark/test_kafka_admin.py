"""The tests compare the results of jobs on a live cluster with the reports of Kafka's own admin client, while groups
have members.

`KCORE_TEST_KAFKA=start` (`make test-kafka`) also runs the tests against Apache Kafka.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kcore
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment
from kcore.spark.state.table_schemas import TABLES
from tests.clients.java_programs import QUICK, classpath
from tests.kit import wait_until
from tests.spark.maven_packages import KAFKA_SOURCE, packages
from tests.spark.test_kafka_source import causes, spark_job

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.clients, pytest.mark.timeout(1800)]

SOURCE = Path(__file__).with_name("java") / "AdminState.java"
PARTITIONS, RECORDS = 4, 40
LONG_MS = 1_700_000
"""Maximum poll interval in ms of the tests' clients, which do not poll while a job runs."""

Facts = set[tuple[str, ...]]


def admin_state(bootstrap: str, folder: Path) -> Facts:
    """Returns the groups, offsets and transactions that Kafka's admin client reports."""
    libraries = classpath()
    if not (folder / "AdminState.class").exists():
        subprocess.run(["javac", "-cp", libraries, "-d", str(folder), str(SOURCE)], check=True, timeout=120)
    command = ["java", *QUICK, "-cp", f"{folder}:{libraries}", "AdminState", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return {tuple(line.split("\t")) for line in done.stdout.splitlines()}


def table_state(tables: dict[str, list[dict[str, Any]]], names: dict[str, str]) -> Facts:
    """Returns the rows of a rebuild's tables in the form of `admin_state`.

    Args:
        tables: the rows by table.
        names: the names of topics by their ids.
    """
    assigned: dict[tuple[str, str, bool], set[str]] = {}
    for row in tables["assignments"]:
        found = assigned.setdefault((row["group_id"], row["member_id"], row["kind"] == "target"), set())
        found |= {f"{names[row['topic_id']]}-{number}" for number in row["partitions"]}
    kinds = {row["group_id"]: row["group_type"] for row in tables["groups"]}
    facts: Facts = set()
    for row in tables["groups"]:
        facts.add(("group", row["group_id"], row["group_type"], row["state"]))
        if row["group_type"] != "classic":
            assignor = "-" if row["group_type"] == "share" else row["assignor_name"]
            facts.add(("epochs", row["group_id"], str(row["group_epoch"]), str(row["assignment_epoch"]), assignor))
    for row in tables["members"]:
        group, member = row["group_id"], row["member_id"]
        kind = kinds[group]
        current, target = ((group, member, wanted) for wanted in (False, True))
        if kind == "classic":
            decoded, _ = ConsumerProtocolAssignment.decode_versioned(row["assignment"])
            assigned[current] = {f"{a.topic}-{number}" for a in decoded.assigned_partitions for number in a.partitions}
        facts.add(
            (
                "member", group, member, row["group_instance_id"] or "-", row["client_id"], row["client_host"],
                "-" if kind == "classic" else str(row["member_epoch"]), ",".join(sorted(assigned.get(current, ()))),
                ",".join(sorted(assigned.get(target, ()))) if kind == "consumer" else "-",
            )
        )  # fmt: skip
    for row in tables["offsets"]:
        assert not row["pending"]
        topic_partition = f"{row['topic']}-{row['partition']}"
        committed = (str(row["offset"]), str(row["leader_epoch"]), row["metadata"])
        facts.add(("offset", row["group_id"], topic_partition, *committed))
    for row in tables["transactions"]:
        parts = ",".join(sorted(f"{part['topic']}-{part['partition']}" for part in row["partitions"]))
        numbers = (row["producer_id"], row["producer_epoch"], row["timeout_ms"], row["start_timestamp_ms"])
        facts.add(("transaction", row["transactional_id"], row["state"], *map(str, numbers), parts))
    for row in tables["share_states"]:
        topic_partition = f"{names[row['topic_id']]}-{row['partition']}"
        if row["start_offset"] >= 0:
            facts.add(
                ("share-start", row["group_id"], topic_partition, str(row["start_offset"]), str(row["leader_epoch"]))
            )
    return facts


def joined(common: dict[str, Any], protocol: str, number: int, stack: ExitStack) -> Consumer:
    """Returns a new consumer in the group `live-PROTOCOL`, which stays a member even without polls.

    With the classic protocol, the member is static.
    """
    own = {"group.instance.id": f"static-{number}", "session.timeout.ms": 60_000} if protocol == "classic" else {}
    member = Consumer(
        {
            **common,
            **own,
            "group.id": f"live-{protocol}",
            "group.protocol": protocol,
            "client.id": f"{protocol}-{number}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": LONG_MS,
        }
    )
    stack.enter_context(closing(member))
    member.subscribe(["orders"])
    return member


def make_members(common: dict[str, Any], stack: ExitStack) -> None:
    """Creates a classic group and a consumer group of two members each, which have read and committed all records."""
    for protocol in ("classic", "consumer"):
        members = [joined(common, protocol, number, stack) for number in range(2)]

        def shared(members: list[Consumer] = members) -> bool:
            for member in members:
                member.poll(0.1)
            return {len(member.assignment()) for member in members} == {PARTITIONS // len(members)}

        wait_until(shared, f"the members of the {protocol} group share its partitions", 120)
        for member in members:
            ends = [
                TopicPartition("orders", part.partition, RECORDS // PARTITIONS, metadata=f"read by {protocol}")
                for part in member.assignment()
            ]
            member.commit(offsets=ends, asynchronous=False)


def commit(common: dict[str, Any], group: str, offset: int) -> None:
    """Commits an offset of a group without members."""
    with closing(Consumer({**common, "group.id": group})) as reader:
        reader.commit(offsets=[TopicPartition("orders", 1, offset)], asynchronous=False)


def send_offsets(common: dict[str, Any], transactional_id: str, group: str, stack: ExitStack) -> Producer:
    """Begins a transaction that produces a record and sends an offset. Returns the producer."""
    producer = Producer({**common, "transactional.id": transactional_id, "transaction.timeout.ms": 800_000})
    stack.callback(producer.purge)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", "in a transaction", partition=3)
    with closing(Consumer({**common, "group.id": group})) as reader:
        producer.send_offsets_to_transaction([TopicPartition("orders", 2, 7)], reader.consumer_group_metadata(), 60)
    wait_until(lambda: not producer.flush(1), "the record is sent")
    return producer


@contextmanager
def traffic(bootstrap: str) -> Iterator[None]:
    """Creates groups of three types with members, groups without members, and transactions, of which the last one stays
    open.
    """
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    with ExitStack() as stack:
        node = stack.enter_context(kcore.connect(bootstrap))
        node.topics.create("orders", PARTITIONS)
        node.topics.create("jobs", 2)
        for number in range(PARTITIONS):
            node.topics["orders"].append_many(["order"] * (RECORDS // PARTITIONS), partition=number)
        make_members(common, stack)

        node.group("live-share").set_config({"share.auto.offset.reset": "earliest"})
        node.topics["jobs"].append_many(["job"] * 5, partition=0)
        queue = stack.enter_context(node.queue("jobs", group="live-share", auto_accept=False))
        for _ in range(3):
            job = queue.get(60)
            assert job is not None
            job.accept()

        commit(common, "idle", 4)
        commit(common, "deleted", 5)
        node.group("deleted").delete()
        send_offsets(common, "committed", "by-transaction", stack).commit_transaction(60)
        send_offsets(common, "aborted", "idle", stack).abort_transaction(60)
        send_offsets(common, "open", "pending", stack)
        yield


def test_jobs_and_kafkas_admin_client_report_the_same_state(cluster: str, tmp_path: Path) -> None:
    """Groups with members, static members, offsets, share states and transactions are equal, field by field.

    A rebuild of a live cluster ends at the last stable offset, so it lacks groups that have only pending offsets.
    """
    jars = packages(KAFKA_SOURCE)
    out = tmp_path / "state"
    with traffic(cluster):
        wait_until(lambda: not unsettled(admin_state(cluster, tmp_path)), "markers are written, members agree", 120)
        before = admin_state(cluster, tmp_path)
        rebuilt = spark_job("rebuild", "--kafka", cluster, "--out", str(out), jars=jars)
        audited = spark_job("audit", "--kafka", cluster, "--out", str(tmp_path / "audit"), jars=jars)
        assert admin_state(cluster, tmp_path) == before, "the cluster has changed during the jobs"
        with kcore.connect(cluster) as node:
            names = {node.topics[name].describe().id.hex(): name for name in ("orders", "jobs")}
    assert rebuilt.returncode == 0, rebuilt.stdout + causes(rebuilt)
    tables = {name: pq.read_table(out / name).to_pylist() for name in TABLES}
    found = table_state(tables, names)
    pending = ("group", "pending", "classic", "Empty")
    assert pending in before
    assert sorted(found) == sorted(before - {pending})
    assert {fact[:1] + fact[3:4] for fact in found if fact[0] == "group"} >= {("group", "Stable"), ("group", "Empty")}
    assert {fact[1:3] for fact in found if fact[0] == "transaction"} == {
        ("committed", "CompleteCommit"),
        ("aborted", "CompleteAbort"),
        ("open", "Ongoing"),
    }
    assert {fact[1] for fact in found if fact[0] == "member"} == {"live-classic", "live-consumer", "live-share"}
    assert ("offset", "by-transaction", "orders-2", "7", "-1", "") in found
    assert audited.returncode == 0, audited.stdout + causes(audited)
    assert pq.read_table(tmp_path / "audit" / "findings").to_pylist() == []


def unsettled(facts: Facts) -> bool:
    """Returns True if the markers of a transaction are not all written, or if a group has not reached its target
    assignment.
    """
    states = [fact[2 if fact[0] == "transaction" else 3] for fact in facts if fact[0] in ("transaction", "group")]
    return any(state.startswith("Prepar") or state in ("Assigning", "Reconciling") for state in states)
