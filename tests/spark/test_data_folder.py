"""A rebuilt state is written as records into a new data folder. A server that opens this folder has the same state."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kcore
from kcore.client import Connection
from kcore.errors import KcoreError
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.records.offset_commit import OffsetCommitKey
from kcore.spark.events.arrow import to_batches
from kcore.spark.events.event import EventRow
from kcore.spark.events.segments import find_partitions, read_rows
from kcore.spark.events.sources import FolderSource, ServerSource
from kcore.spark.export.exporter import export
from kcore.spark.jobs import rebuild as rebuild_job
from kcore.spark.state import live_records
from kcore.spark.state.batch_replay import rebuild_batches
from kcore.spark.state.data_folder import write_data_folder
from kcore.spark.state.rebuild import AsOf, Rebuilt, rebuild
from kcore.spark.state.tables import table_rows
from kcore.testing import ServerProcess, replay
from tests import kit
from tests.nodes import node_of
from tests.seeds import SEED
from tests.spark import oracle
from tests.spark.traffic import HISTORY, QUICK_ENDS, Sender, Traffic
from tests.transaction.world import World

Shown = list[tuple[str, str]]

MOVED = ("record_offset",)
"""Columns that are not compared: they have log offsets, which differ in a new folder."""


def tables_of_state(result: Rebuilt) -> Shown:
    """Returns a state's tables without the log offsets of records."""
    found = []
    for table, row in table_rows(result.state):
        if table in ("partitions", "faults"):
            continue
        if table == "producers":
            row["current_txn_start_offset"] = row["current_txn_start_offset"] >= 0
        found.append((table, repr(sorted((name, value) for name, value in row.items() if name not in MOVED))))
    return sorted(found)


def renumbered(rows: Iterable[EventRow]) -> Iterator[EventRow]:
    """Returns the rows with the offsets 0, 1, 2 and so on, as if they were written to an empty log."""
    for offset, row in enumerate(rows):
        yield row._replace(offset=offset)


def kept(topic: str, partition: int, rows: Iterable[EventRow], as_of: AsOf) -> tuple[Rebuilt, list[EventRow]]:
    result = rebuild_batches(topic, partition, to_batches(rows), as_of, with_records=True)
    assert result.live is not None
    return result, list(result.live.rows())


@pytest.mark.parametrize("moment", oracle.SOME_MOMENTS)
def test_live_records_of_a_real_log_give_its_state(kafka_logs: Path, moment: str) -> None:
    """Covers every kind of group and coordinator, at the end and in the middle of each log."""
    compared = 0
    for part in find_partitions(kafka_logs / moment):
        rows = list(read_rows(part))
        for at in (rows[-1].offset + 1, rows[len(rows) // 2].offset, rows[len(rows) // 3].offset):
            result, live = kept(part.topic, part.partition, rows, AsOf(at))
            again = rebuild(part.topic, part.partition, renumbered(live))
            assert again.state.faults == []
            assert tables_of_state(again) == tables_of_state(result)
            compared += len(live)
    assert compared > 5_000


@pytest.mark.seeded
def test_live_records_of_kcores_log_give_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers random offsets of random traffic with open transactions. Obsolete records are removed frequently."""
    monkeypatch.setattr(live_records, "SLACK", 20)
    seed = SEED
    print("seed", seed)
    chance = random.Random(seed)
    world = World({**HISTORY, **QUICK_ENDS}, Traffic.TOPICS)
    traffic = Traffic(world, chance, groups=8, burst=5)
    for _ in range(600):
        traffic.step()
    world.settle()
    source = ServerSource(node_of(Sender(world)))
    opened = 0
    for part in source.parts():
        if not part.topic.startswith("__") or part.topic == "__cluster_metadata" or not part.end:
            continue
        rows = list(source.rows(part))
        for at in chance.sample(range(part.end + 1), min(30, part.end)):
            result, live = kept(part.topic, part.partition, rows, AsOf(at))
            again = rebuild(part.topic, part.partition, renumbered(live))
            assert again.state.faults == []
            assert tables_of_state(again) == tables_of_state(result), (part[:2], at)
            opened += result.state.producers.first_unstable_offset() is not None
    assert opened


# ---- folders


def test_a_folder_has_the_state(kafka_logs: Path, tmp_path: Path) -> None:
    """The rebuilt state of a real broker is written to a data folder. kcore's engine opens the folder, and a rebuild
    from its log gives the same state.
    """
    results, live, counts = {}, [], {"__consumer_offsets": 1}
    for part in find_partitions(kafka_logs / "moment-2"):
        if part.topic != "__share_group_state":
            result, rows = kept(part.topic, part.partition, read_rows(part), AsOf())
            results[part[:2]] = result
            live += rows
            counts[part.topic] = max(counts.get(part.topic, 0), part.partition + 1)
    written = write_data_folder(tmp_path / "data", counts, live)
    assert sum(written.records.values()) == len(live)
    with FolderSource(tmp_path / "data") as source:
        found = {part[:2]: part for part in source.parts()}
        for topic_partition, result in results.items():
            again = rebuild(*topic_partition, source.rows(found[topic_partition]))
            assert again.state.faults == []
            assert tables_of_state(again) == tables_of_state(result)


def test_invalid_input_is_refused(tmp_path: Path) -> None:
    """The job refuses a folder that is not empty. It also refuses records in a partition to which their group does not
    belong, or whose number exceeds the partition count.
    """
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    row = EventRow(key.encode_key(), b"\x00\x04" + bytes(40), "__consumer_offsets", 0, 0, 0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(KcoreError, match="is not empty"):
        write_data_folder(tmp_path / "full", {"__consumer_offsets": 1}, [])
    with pytest.raises(KcoreError, match="'g' is in partition 0 of __consumer_offsets, but belongs to 3 of 4"):
        write_data_folder(tmp_path / "new", {"__consumer_offsets": 4}, [row])
    with pytest.raises(KcoreError, match="has 1 partitions, but there are records for partition 7"):
        write_data_folder(tmp_path / "new", {"__consumer_offsets": 1}, [row._replace(partition=7, key=b"\x7f\xff")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    with pytest.raises(KcoreError, match="is not TOPIC=N"):
        rebuild_job.parse_partitions(["__consumer_offsets=0"])
    assert rebuild_job.parse_partitions(["__transaction_state=5"]) == {"__transaction_state": 5}


SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
LONG_MS = 1_800_000


def reported_state(connection: Connection, node: kcore.Node) -> dict[str, Any]:
    """Returns the state that a server's APIs report."""
    groups = [(group.group_id, group.type, group.state) for group in node.groups.list()]
    modern = [group_id for group_id, kind, _ in groups if kind == "consumer"]
    found: dict[str, Any] = {"groups": groups}
    described = connection.send(ConsumerGroupDescribeRequest(group_ids=modern)).groups
    found["modern"] = {
        group.group_id: (
            group.error_code,
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            sorted((one.member_id, one.member_epoch, one.client_id, one.client_host) for one in group.members),
        )
        for group in described
    }
    ids = [group_id for group_id, kind, _ in groups if kind == "classic"]
    found["classic"] = sorted(map(repr, connection.send(DescribeGroupsRequest(groups=ids)).groups))
    for stable in (False, True):
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 2, 3])]
        requested = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id, _, _ in groups]
        request = OffsetFetchRequest(groups=requested, require_stable=stable)
        found[f"offsets, stable {stable}"] = sorted(map(repr, connection.send(request, kit.OFFSETS_VERSION).groups))
    ids = [one.transactional_id for one in node.transactions.list()]
    found["transactions"] = node.transactions.describe(ids)
    return found


@pytest.mark.spark
@pytest.mark.clients
def test_a_server_with_the_written_folder_responds_like_the_original(spark: Any, tmp_path: Path) -> None:
    """A job writes a server's state into a new data folder. A server on this folder sends the same responses as the
    original.

    Groups of both protocols, and open transactions, continue on the new server.
    """
    with (
        ServerProcess(tmp_path / "data", SETTINGS) as server,
        Connection.to(server.bootstrap) as connection,
        kcore.connect(server.bootstrap) as node,
    ):
        common = {"bootstrap.servers": server.bootstrap, "log_level": 0}
        kit.make_topic(connection, "t", 4)
        for number in range(20):
            connection.send(kit.commit(f"g{number}", {("t", number % 4): number}, metadata="x"), kit.COMMIT_VERSION)
        member, generation = kit.stable_alone(connection, "crew", session_ms=LONG_MS)
        joining = ConsumerGroupHeartbeatRequest(
            group_id="modern",
            member_id="someone",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = connection.send(joining)
        assert joined.error_code == 0
        producers = []
        for number, end in enumerate(("commit", "abort", "open", "open")):
            producer = Producer({**common, "transactional.id": f"tx{number}", "transaction.timeout.ms": 900_000})
            producer.init_transactions(30)
            producer.begin_transaction()
            reader = Consumer({**common, "group.id": f"g{number}"})
            offsets = [TopicPartition("t", 3, 100 + number)]
            producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 30)
            if end != "open":
                (producer.commit_transaction if end == "commit" else producer.abort_transaction)(30)
            producers.append((producer, reader))
        before = reported_state(connection, node)
        assert sorted(group for group, _, _ in before["groups"]) == sorted(
            [*(f"g{n}" for n in range(20)), "crew", "modern"]
        )
        export(ServerSource(node), tmp_path / "events", topic_filter=lambda topic: topic.startswith("__"))
        for _, reader in producers:
            reader.close()
    rebuild_job.rebuild_folder(spark, tmp_path / "events", tmp_path / "rebuilt")
    with replay(tmp_path / "rebuilt") as broker:
        found = {number: broker.committed(f"g{number}") for number in range(4, 20)}
        assert found == {number: {("t", number % 4): number} for number in range(4, 20)}
        assert broker.groups["crew"].state == "Stable"
    with (
        ServerProcess(tmp_path / "rebuilt") as server,
        Connection.to(server.bootstrap) as connection,
        kcore.connect(server.bootstrap) as node,
    ):
        assert reported_state(connection, node) == before
        beat = connection.send(kit.heartbeat("crew", member, generation))
        assert beat.error_code == 0
        beat = connection.send(
            ConsumerGroupHeartbeatRequest(group_id="modern", member_id="someone", member_epoch=joined.member_epoch)
        )
        assert beat.error_code == 0
        # The transaction that was open is aborted by the producer's next life, and no producer id is allocated twice.
        common = {"bootstrap.servers": server.bootstrap, "log_level": 0}
        Producer({**common, "transactional.id": "tx2"}).init_transactions(30)
        used = {one.producer_id for one in node.transactions.list()}
        fresh = connection.send(kit.producer_id())
        assert fresh.error_code == 0
        assert fresh.producer_id > max(used)
        assert kit.committed(connection, "g2") == {("t", 2): 2}
