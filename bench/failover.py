"""Measures the failover of a cluster: the time from the death of a node until other nodes serve all of its groups.

python -m bench.failover [--processes] [--offsets N]

Three nodes over PostgreSQL coordinate groups with N committed offsets in total. The benchmark kills one node. A client
then requests the offsets of the dead node's groups from the other nodes, until it has received all of them. The time
includes the rest of the dead node's lease.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.handover import BATCH, TOPIC, commit_request, succeeds
from kcore.broker.cluster.membership import Timing
from kcore.client import Connection
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kit import wait_until
from tests.postgresql.nodes import NodeProcesses
from tests.postgresql.servers import Servers
from tests.processes.supervised import Supervised

NODES: Final = 3
LIMIT_S: Final = 60.0
FETCHED_GROUPS: Final = 20
MIN_OFFSETS: Final = 20 * BATCH
"""With fewer groups, a node may be the coordinator of no group, and the benchmark would wait for it in vain."""


class Cluster:
    """Three nodes that coordinate groups.

    Args:
        pids: node -> process id.
        ports: node -> port.
    """

    def __init__(self, pids: dict[int, int], ports: dict[int, int]) -> None:
        self.pids = pids
        self.ports = ports

    def fill(self, offsets: int) -> list[str]:
        """Commits offsets of groups, `BATCH` offsets for each group. Returns the groups."""
        groups = [f"group-{number}" for number in range(offsets // BATCH)]
        with Connection("127.0.0.1", self.ports[1]) as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=BATCH, replication_factor=1)
            client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        wait_until(lambda: len(set(self.coordinators(1, groups).values())) == NODES, "the leaders are spread", LIMIT_S)
        pending = groups
        while pending:  # leaders may still move
            for port in self.ports.values():
                with Connection("127.0.0.1", port) as client:
                    pending = [group for group in pending if not succeeds(client, commit_request(group, range(BATCH)))]
        wait_until(lambda: len(self.fetched(list(self.ports), groups)) == len(groups), "all is committed", LIMIT_S)
        return groups

    def coordinators(self, node_id: int, groups: list[str]) -> dict[str, int]:
        """Returns the coordinator of each group as one node sees it."""
        with Connection("127.0.0.1", self.ports[node_id]) as client:
            coordinators = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=groups), 4).coordinators
        return {one.key: one.node_id for one in coordinators}

    def fetched(self, node_ids: list[int], groups: list[str]) -> set[str]:
        """Requests the offsets of groups from each node. Returns the groups for which a node returned all offsets."""
        complete: set[str] = set()
        for node_id in node_ids:
            with Connection("127.0.0.1", self.ports[node_id]) as client:
                missing = [group for group in groups if group not in complete]
                for first in range(0, len(missing), FETCHED_GROUPS):
                    names = missing[first : first + FETCHED_GROUPS]
                    request = OffsetFetchRequest(
                        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
                    )
                    for group in client.send(request, 8).groups:
                        rows = [row for topic in group.topics for row in topic.partitions]
                        if not group.error_code and [row.committed_offset for row in rows] == [1] * BATCH:
                            complete.add(group.group_id)
        return complete

    def kill(self, victim: int, groups: list[str]) -> tuple[float, int]:
        """Kills a node. Returns the time in seconds until the other nodes serve its groups, and the number of these
        groups.
        """
        survivors = [node_id for node_id in self.ports if node_id != victim]
        owners = self.coordinators(survivors[0], groups)
        moved = [group for group in groups if owners[group] == victim]
        os.kill(self.pids[victim], signal.SIGKILL)
        began_s = time.perf_counter()
        while moved:
            assert time.perf_counter() < began_s + LIMIT_S, f"{len(moved)} groups are not served"
            served = self.fetched(survivors, moved)
            moved = [group for group in moved if group not in served]
        return time.perf_counter() - began_s, sum(owner == victim for owner in owners.values())


@contextmanager
def postgresql_cluster(folder: Path) -> Iterator[Cluster]:
    """Runs three nodes over PostgreSQL."""
    servers = Servers()
    try:
        url = servers.server("bench").create(shared_buffers="128MB").url()
        with NodeProcesses(url, folder, NODES) as nodes:
            yield Cluster({node_id: process.pid for node_id, process in nodes.processes.items()}, nodes.ports)
    finally:
        servers.close()


@contextmanager
def process_cluster(folder: Path) -> Iterator[Cluster]:
    """Runs three processes over one folder. The supervisor notices a death at once."""
    with Supervised(folder, NODES) as cluster:
        ports = dict(enumerate(cluster.ports, 1))
        yield Cluster({node_id: cluster.pid(node_id) for node_id in ports}, ports)


def main() -> None:
    """Prints the time of each failover."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--processes", action="store_true", help="processes over one folder in place of PostgreSQL")
    parser.add_argument("--offsets", type=int, default=100_000, help="the number of committed offsets")
    options = parser.parse_args()
    if options.offsets < MIN_OFFSETS:
        parser.error(f"--offsets: needs at least {MIN_OFFSETS}, so that each node coordinates groups")
    with (
        tempfile.TemporaryDirectory() as folder,
        (process_cluster if options.processes else postgresql_cluster)(Path(folder)) as cluster,
    ):
        groups = cluster.fill(options.offsets)
        seconds, count = cluster.kill(2, groups)
    lease_s = Timing().ttl_ms / 1_000
    print(f"{count} groups with {count * BATCH} of {options.offsets} offsets: {seconds:.2f} s; a lease has {lease_s} s")


if __name__ == "__main__":
    main()
