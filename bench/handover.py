"""Measures planned moves of a coordinator between two nodes: the time in which neither node serves the group.

python -m bench.handover [--postgresql] [--moves N] [--offsets N] [--load N]

A client commits an offset at both nodes in turns, about every millisecond. The pause is the time between the last
successful commit at the old leader and the first successful commit at the new leader. `--offsets` fills the moved
partition beforehand. `--load` keeps N further commits of other groups outstanding at each node.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.scaling import SETTINGS, Seats
from bench.tcp import Pipeline
from kcore.client import Connection
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.runtime.partitioner import partition_for
from tests.kit import wait_until
from tests.postgresql.nodes import NodeProcesses
from tests.postgresql.servers import Servers
from tests.processes.supervised import Supervised

GROUP = "moved"
BATCH = 500
TOPIC = "offsets"
MOVE_S = 30.0
SETTLE_S = 0.3
"""Pause in seconds after each move."""
NODES = {**SETTINGS, "auto.leader.rebalance.enable": "false"}


def commit_request(group: str, partitions: range) -> OffsetCommitRequest:
    """Returns an OffsetCommit of some partitions, by a client that is not a member."""
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in partitions
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)])


def succeeds(client: Connection, request: OffsetCommitRequest) -> bool:
    """Returns True if a node accepts a commit."""
    return client.send(request, 8).topics[0].partitions[0].error_code == 0


class Mover:
    """A mover of the partition of `GROUP`, which measures the pauses.

    Args:
        ports: the ports of the nodes 1 and 2.
        offsets: the number of offsets in the partition.
    """

    def __init__(self, ports: list[int], offsets: int) -> None:
        self.port = ports[0]
        self.clients = [Connection.to(f"127.0.0.1:{port}") for port in ports]
        topic = CreatableTopic(name=TOPIC, num_partitions=BATCH, replication_factor=1)
        self.clients[0].send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        self.partition = partition_for(GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
        self.request = commit_request(GROUP, range(1))
        self.leader = wait_until(self._leader, "a node serves the group", 30) - 1
        names = (f"filled-{number}" for number in range(10**9))
        mine = (name for name in names if partition_for(name, 12) == self.partition)
        for _ in range(0, offsets, BATCH):
            assert succeeds(self.clients[self.leader], commit_request(next(mine), range(BATCH)))

    def _leader(self) -> int:
        """Returns the number of the node that serves the group, 1 or 2, or 0 if neither does."""
        return next((number for number, client in enumerate(self.clients, 1) if succeeds(client, self.request)), 0)

    def move(self) -> float:
        """Moves the partition to the other node. Returns the pause in seconds."""
        heir = 1 - self.leader
        part = ReassignablePartition(partition_index=self.partition, replicas=(heir + 1,))
        moves = [ReassignableTopic(name=CONSUMER_OFFSETS, partitions=[part])]
        request = AlterPartitionReassignmentsRequest(topics=moves, timeout_ms=10_000)
        sender = threading.Thread(target=self._send_request, args=(request,))
        last_s = time.perf_counter()
        sender.start()
        end_s = last_s + MOVE_S
        while not succeeds(self.clients[heir], self.request):
            if succeeds(self.clients[self.leader], self.request):
                last_s = time.perf_counter()
            assert time.perf_counter() < end_s, "the partition was not moved"
            time.sleep(0.0005)
        pause_s = time.perf_counter() - last_s
        sender.join()
        self.leader = heir
        return pause_s

    def _send_request(self, request: AlterPartitionReassignmentsRequest) -> None:
        with Connection("127.0.0.1", self.port) as client:
            assert client.send(request, 0).error_code == 0


@contextmanager
def nodes(folder: Path, postgresql: bool) -> Iterator[list[int]]:
    """Runs two nodes. Yields their ports."""
    if not postgresql:
        with Supervised(folder, 2, NODES) as cluster:
            yield cluster.ports
        return
    servers = Servers()
    try:
        url = servers.server("bench").create(shared_buffers="128MB").url()
        with NodeProcesses(url, folder, 2, NODES) as processes:
            yield list(processes.ports.values())
    finally:
        servers.close()


@contextmanager
def load(ports: list[int], depth: int) -> Iterator[None]:
    """Keeps `depth` commits outstanding at each node."""
    if not depth:
        yield
        return
    with Connection("127.0.0.1", ports[0]) as client:
        client.send(ElectLeadersRequest(election_type=0, topic_partitions=None), 2)
    seats = Seats(ports)
    pipelines = [
        Pipeline(port, request, version, depth)
        for port, (request, version) in zip(seats.ports, seats.commits(), strict=True)
    ]
    ended = threading.Event()

    def run(pipeline: Pipeline) -> None:
        while not ended.is_set():
            pipeline.round()

    threads = [threading.Thread(target=run, args=(pipeline,)) for pipeline in pipelines]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def main() -> None:
    """Moves the coordinator between the nodes, and prints the pause of each move in ms."""
    parser = argparse.ArgumentParser(prog="python -m bench.handover", description=__doc__)
    parser.add_argument("--postgresql", action="store_true", help="two nodes over PostgreSQL in place of processes")
    parser.add_argument("--moves", type=int, default=30, help="the number of moves")
    parser.add_argument("--offsets", type=int, default=0, help="the number of offsets in the moved partition")
    parser.add_argument("--load", type=int, default=0, help="outstanding commits of other groups at each node")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = stack.enter_context(nodes(folder, options.postgresql))
        stack.enter_context(load(ports, options.load))
        mover = Mover(ports, options.offsets)
        pauses = []
        for _ in range(options.moves):
            pauses.append(mover.move() * 1e3)
            time.sleep(SETTLE_S)
    print(" ".join(f"{pause:.0f}" for pause in pauses))
    print(
        f"{options.moves} moves, {options.offsets} offsets, load {options.load}: "
        f"p50 {statistics.median(pauses):.1f} ms, p90 {sorted(pauses)[int(len(pauses) * 0.9)]:.1f} ms, "
        f"max {max(pauses):.1f} ms"
    )


if __name__ == "__main__":
    main()
