"""`kcore log copy` of a folder that two processes serve: the copy shows both processes at the same moment."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

import kcore
from kcore.client import Connection
from kcore.cluster.local import LocalClusterStore
from kcore.cluster.store import METADATA
from kcore.log import verify_folder
from kcore.log.lmdb_copy import copy_folder
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit import batch, commit, committed, make_topic, produce, read_all, wait_until
from tests.processes.supervised import Supervised

pytestmark = [pytest.mark.long, pytest.mark.clients, pytest.mark.timeout(300)]

SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
WRITERS = 4
COPIES = 3
ENTRIES = 40
PRODUCE_VERSION, COMMIT_VERSION = 9, 8


class Writer(threading.Thread):
    """A client that writes a number to a partition of one process, then commits the number as an offset, and so on.

    The other process is the coordinator of the offset's group.

    Args:
        topic: the port of the partition's leader.
        coordinator: the port of the group's coordinator.
        partition: the partition.
        group: the group.
    """

    def __init__(self, topic: int, coordinator: int, partition: int, group: str, stop: threading.Event) -> None:
        super().__init__()
        self.topic, self.coordinator = topic, coordinator
        self.partition, self.group = partition, group
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._stop_requested = stop

    def run(self) -> None:
        try:
            with Connection("127.0.0.1", self.topic) as topic, Connection("127.0.0.1", self.coordinator) as other:
                while not self._stop_requested.is_set():
                    number = self.acknowledged
                    produced = topic.send(produce("n", batch([b"%d" % number]), self.partition), PRODUCE_VERSION)
                    assert produced.responses[0].partition_responses[0].error_code == 0
                    done = other.send(commit(self.group, {("n", self.partition): number + 1}), COMMIT_VERSION)
                    assert done.topics[0].partitions[0].error_code == 0
                    self.acknowledged = number + 1
        except BaseException as error:  # the test checks it
            self.error = error


def leader_of(client: Connection, partition: int) -> int:
    """Returns the port of the leader of a partition."""
    response = client.send(MetadataRequest(topics=[MetadataRequestTopic(name="n")]), 12)
    ports = {broker.node_id: broker.port for broker in response.brokers}
    [row] = [row for row in response.topics[0].partitions if row.partition_index == partition]
    return ports[row.leader_id]


def group_elsewhere(client: Connection, port: int, partition: int) -> tuple[str, int]:
    """Returns a group whose coordinator is a process other than the one at `port`, and the port of this coordinator."""
    names = [f"group-{partition}-{number}" for number in range(50)]
    found = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4).coordinators
    return next((one.key, one.port) for one in found if one.port not in (port, 0) and not one.error_code)


def start_writers(cluster: Supervised, stop: threading.Event) -> list[Writer]:
    with Connection("127.0.0.1", cluster.ports[0]) as client:
        writers = []
        for partition in range(WRITERS):
            port = leader_of(client, partition)
            group, other = group_elsewhere(client, port, partition)
            writers.append(Writer(port, other, partition, group, stop))
    for writer in writers:
        writer.start()
    return writers


def is_spread(cluster: Supervised) -> bool:
    """Returns True if each process leads half of each topic, so that the controller moves no further partition."""
    store = LocalClusterStore(str(cluster.data), "os")
    try:
        topics: dict[bytes, Counter[int]] = {}
        for row in store.leaders():
            if row.key != METADATA:
                topics.setdefault(row.key.topic_id, Counter())[row.leader] += 1
    finally:
        store.close()
    return len(topics) == 2 and all(count == {1: WRITERS // 2, 2: WRITERS // 2} for count in topics.values())


def test_a_copy_has_one_moment_of_all_processes(tmp_path: Path) -> None:
    """A client writes each record to one process, and then commits its offset at another process. A copy of the folder
    must not contain the committed offset without the record.
    """
    stop = threading.Event()
    bounds = []
    with Supervised(tmp_path, 2, SETTINGS) as cluster:
        with Connection("127.0.0.1", cluster.ports[0]) as client:
            make_topic(client, "n", WRITERS)
        wait_until(lambda: is_spread(cluster), "the leaders are spread", 60)
        writers = start_writers(cluster, stop)
        try:
            for attempt in range(COPIES):
                least = (attempt + 1) * ENTRIES
                wait_until(
                    lambda least=least: all(one.error or one.acknowledged >= least for one in writers), "writing", 60
                )
                before = [writer.acknowledged for writer in writers]
                copy_folder(str(cluster.data), str(tmp_path / f"copy-{attempt}"))
                bounds.append((before, [writer.acknowledged for writer in writers]))
        finally:
            stop.set()
            for writer in writers:
                writer.join(60)
        assert [writer.error for writer in writers] == [None] * WRITERS
        assert cluster.stop() == 0
    for attempt, (before, after) in enumerate(bounds):
        copy = tmp_path / f"copy-{attempt}"
        assert verify_folder(copy) == []
        with kcore.open(copy, config=SETTINGS, create=False) as node:
            for partition, writer in enumerate(writers):
                values = read_all(node, "n", partition)
                assert values == [(n, b"%d" % n) for n in range(len(values))]
                assert before[partition] <= len(values) <= after[partition] + 1
                offset = committed(node, writer.group)[("n", partition)]
                assert before[partition] <= offset <= len(values), "the record is older than the commit"
