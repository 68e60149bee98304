"""Heartbeats and commits of one process, and of the processes of `kcore serve --processes`, per CPU-second of a server.

python -m bench.scaling [--processes 0,1,2] [--seconds S] [--rounds N] [--kinds heartbeats,commits]

0 processes are `kcore serve` without a cluster. The load comes from `bench/pipelines.c`, because every CPU cycle of a
client is one less for the servers on a machine with few cores. Its cost is in the last column. So two figures describe
the scaling: all requests per second, and the requests per CPU-second of each server process. The second one is what
the processes would serve on cores of their own, as long as no lock or device is shared. The variants take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kcore.client import Connection
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.protocol.schema import Message
from kcore_ext.codec.frames import encode_request
from tests.kit import wait_until
from tests.processes.supervised import Supervised, free_ports

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "12"}
DEPTH = 256
CONNECTIONS = 2
"""Connections to each process."""
KINDS = ("heartbeats", "commits")


class Seats:
    """Stable groups of one member each, of which every process coordinates the same number.

    Args:
        ports: the ports of the processes.
        connections: the number of groups of each process.

    Attributes:
        ports: the port of each group's coordinator.
    """

    def __init__(self, ports: list[int], connections: int = 1) -> None:
        self.ports = [port for port in ports for _ in range(connections)]
        with Connection.to(f"127.0.0.1:{ports[0]}") as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            _wait_spread(client, ports)
        self.members = [self._join(port, f"group-{index}-") for index, port in enumerate(self.ports)]

    def _join(self, port: int, prefix: str) -> tuple[str, str, int]:
        """Returns the group, the member's id and the generation of a group of this process."""
        with Connection.to(f"127.0.0.1:{port}") as client:
            group = _groups_by_port(client, prefix)[port]
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=300_000,
                protocol_type="bench",
                protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
            )
            request.member_id = wait_until(lambda: client.send(request, 5).member_id, "the coordinator is loaded")
            generation = client.send(request, 5).generation_id
            synced = SyncGroupRequest(group_id=group, generation_id=generation, member_id=request.member_id)
            assert client.send(synced, 3).error_code == 0
            return group, request.member_id, generation

    def heartbeats(self) -> list[tuple[Message, int]]:
        """Returns a heartbeat of each member, with its version."""
        return [
            (HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 4)
            for group, member, generation in self.members
        ]

    def commits(self) -> list[tuple[Message, int]]:
        """Returns a commit of one offset by each member, with its version."""
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
        return [
            (
                OffsetCommitRequest(
                    group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
                ),
                8,
            )
            for group, member, generation in self.members
        ]


def _groups_by_port(client: Connection, prefix: str) -> dict[int, str]:
    """Returns a group of each coordinator."""
    keys = [f"{prefix}{number}" for number in range(100)]
    found = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
    return {one.port: one.key for one in found}


def _wait_spread(client: Connection, ports: list[int]) -> None:
    """Waits until every process coordinates the same number of partitions, so that none moves any more."""

    def shares() -> bool:
        keys = [f"probe-{number}" for number in range(500)]
        found = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
        counts = [sum(one.port == port for one in found) for port in ports]
        return min(counts) > len(keys) / len(ports) / 2

    wait_until(shares, "the leaders are spread")


class Figures(NamedTuple):
    """The result of one run.

    Attributes:
        rate: responses per second of all processes.
        per_cpu_s: responses per CPU-second, for each process.
        client_share: CPU-seconds of the client per second.
    """

    rate: float
    per_cpu_s: list[float]
    client_share: float


def cpu_s(pid: int) -> float:
    """Returns the CPU time of all living threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def measure(generator: Path, seats: Seats, kind: str, pids: dict[int, int], seconds: float) -> Figures:
    """Runs the load for some seconds.

    Args:
        generator: the compiled `pipelines.c`.
        seats: the groups.
        kind: `heartbeats` or `commits`.
        pids: port -> process.
        seconds: the time of the run.
    """
    requests = [encode_request(request, version, 7, "bench").hex() for request, version in getattr(seats, kind)()]
    lines = "".join(f"{port} {request}\n" for port, request in zip(seats.ports, requests, strict=True))
    before = {port: cpu_s(pid) for port, pid in pids.items()}
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [generator, str(seconds), str(DEPTH)], input=lines, capture_output=True, text=True, check=True, timeout=120
    )
    used = {port: cpu_s(pid) - before[port] for port, pid in pids.items()}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (total, elapsed_s), *counts = (line.split() for line in done.stdout.splitlines())
    served = dict.fromkeys(pids, 0)
    for port, (count,) in zip(seats.ports, counts, strict=True):
        served[port] += int(count)
    client_s = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
    return Figures(
        int(total) / float(elapsed_s),
        [served[port] / used[port] for port in pids],
        client_s / float(elapsed_s),
    )


@contextmanager
def alone(folder: Path) -> Iterator[dict[int, int]]:
    """Runs `kcore serve` without a cluster; yields its port and process."""
    [port] = next(free_ports(1))
    command = [sys.executable, "-m", "kcore", "serve", "--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}"]
    for name, value in SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    log = folder / "output.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        try:
            wait_until(lambda: "listening" in log.read_text(errors="replace"), f"the server serves: {log}", 60)
            yield {port: process.pid}
        finally:
            process.terminate()


@contextmanager
def processes(folder: Path, count: int) -> Iterator[dict[int, int]]:
    """Runs `kcore serve --processes`; yields the ports and processes of the nodes."""
    if not count:
        with alone(folder) as pids:
            yield pids
        return
    with Supervised(folder, count, SETTINGS) as cluster:
        yield {port: cluster.pid(number) for number, port in enumerate(cluster.ports, 1)}


def main() -> None:
    """Prints the median of some runs for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--processes", default="0,1,2", help="the numbers of processes to compare")
    parser.add_argument("--seconds", type=float, default=2.0, help="the time of each run")
    parser.add_argument("--rounds", type=int, default=5, help="the number of runs of each variant")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the kinds of requests")
    options = parser.parse_args()
    counts = [int(count) for count in options.processes.split(",")]
    kinds = options.kinds.split(",")
    results: dict[tuple[str, int], list[Figures]] = {(kind, count): [] for kind in kinds for count in counts}
    with tempfile.TemporaryDirectory() as folder:
        generator = Path(folder) / "pipelines"
        source = Path(__file__).with_name("pipelines.c")
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-O2", "-o", generator, source], check=True)
        for number in range(options.rounds):
            for count in counts:
                data = Path(folder) / f"{number}-{count}"
                data.mkdir()
                with processes(data, count) as pids:
                    seats = Seats(list(pids), CONNECTIONS)
                    for kind in kinds:
                        measure(generator, seats, kind, pids, 0.3)  # warms up
                        results[kind, count].append(measure(generator, seats, kind, pids, options.seconds))
    print(f"{'':24} {'requests/s':>12} {'of 1 process':>12}  requests per CPU-second of each server, client's CPU/s")
    for (kind, count), figures in results.items():
        rate = statistics.median(one.rate for one in figures)
        base = results.get((kind, 1))
        ratio = f"{rate / statistics.median(one.rate for one in base):.2f}" if base else "-"
        each = [f"{statistics.median(values):,.0f}" for values in zip(*(one.per_cpu_s for one in figures), strict=True)]
        share = statistics.median(one.client_share for one in figures)
        name = f"{kind}, {f'{count} processes' if count else 'no cluster'}"
        print(f"{name:24} {rate:12,.0f} {ratio:>12}  {', '.join(each)}; {share:.2f}")


if __name__ == "__main__":
    main()
