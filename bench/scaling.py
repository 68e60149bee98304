"""Measures heartbeats and commits per CPU-second, served by one process, several processes, or nodes over PostgreSQL.

python -m bench.scaling [--variants alone,1,2,pg1,pg2,pg1+standby] [--seconds S] [--rounds N] [--kinds
heartbeats,commits]

`alone` is `kcore serve` without a cluster, a number is `kcore serve --processes` with this number, and `pg2` are two
nodes over PostgreSQL. `+standby` adds a synchronous standby on the same machine. The variants are measured in turns.

The load comes from `bench/pipelines.c`, because on a machine with few cores a slow client would take CPU time from the
servers. Two figures describe the scaling: all requests per second, and the requests per CPU-second of each server
process. The second figure estimates the rate if each process had its own core and shared no lock or device.

The table also has the CPU time of the load generator and the durations of single, successive commits. For PostgreSQL,
it has the duration of a bare INSERT of the same bytes in autocommit: no commit through this database can be faster.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.tcp import Pipeline
from bench.test_cluster import Bare
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
from tests.postgresql import servers as postgresql
from tests.postgresql.nodes import NodeProcesses
from tests.processes.supervised import Supervised, free_ports

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "12"}
DEPTH = 256
CONNECTIONS = 2
"""Number of connections to each process."""
KINDS = ("heartbeats", "commits")
WARM_UP_S = 0.5
SETTLE_S = 4.0
"""Pause in seconds after the start of the servers. During it, each server imports its APIs, and the leaders move."""


class Seats:
    """Stable groups of one member each. Every process coordinates the same number of groups.

    Args:
        ports: the ports of the processes.
        connections: the number of groups that each process coordinates.

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
        """Creates a group that this process coordinates. Returns the group, the member's id and the generation."""
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
        """Returns a heartbeat of each member, with the API version."""
        return [
            (HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 4)
            for group, member, generation in self.members
        ]

    def commits(self) -> list[tuple[Message, int]]:
        """Returns a commit of one offset by each member, with the API version."""
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
    """Returns port of a coordinator -> name of a group that this coordinator serves."""
    keys = [f"{prefix}{number}" for number in range(100)]
    coordinators = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
    return {one.port: one.key for one in coordinators}


def _wait_spread(client: Connection, ports: list[int]) -> None:
    """Waits until every process coordinates the same number of partitions, so that no partition moves any more."""

    def shares() -> bool:
        keys = [f"probe-{number}" for number in range(500)]
        coordinators = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
        counts = [sum(one.port == port for one in coordinators) for port in ports]
        return min(counts) > len(keys) / len(ports) / 2

    wait_until(shares, "the leaders are spread")


class Servers(NamedTuple):
    """The running servers of one variant of the benchmark, such as `pg2`.

    Attributes:
        pids: port -> process id.
        database: the URL of the database; "" without a database.
        postmaster: the process id of the database; 0 without a database.
    """

    pids: dict[int, int]
    database: str = ""
    postmaster: int = 0

    def cpu_s(self) -> dict[int, float]:
        """Returns the CPU seconds of each server by port, and the CPU seconds of the database for port 0."""
        used = {port: cpu_s(pid) for port, pid in self.pids.items()}
        if self.postmaster:
            used[0] = sum(map(cpu_s, [self.postmaster, *_children(self.postmaster)]))
        return used


class Figures(NamedTuple):
    """The result of one run.

    Attributes:
        rate: responses per second of all processes.
        per_cpu_s: responses per CPU-second, for each process.
        per_database_s: responses per CPU-second of the database; 0 without a database.
        client_share: CPU-seconds of the client per second.
    """

    rate: float
    per_cpu_s: list[float]
    per_database_s: float
    client_share: float


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of all living threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _children(parent: int) -> list[int]:
    """Returns the child processes of a process."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == parent:
            children.append(int(path.parent.name))
    return children


def latencies_ms(seats: Seats, kind: str, count: int = 1_000) -> list[float]:
    """Returns the durations of single requests to the first group, in ms."""
    request, version = getattr(seats, kind)()[0]
    pipeline = Pipeline(seats.ports[0], request, version, 1)
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        pipeline.round()
        times.append((time.perf_counter() - began_s) * 1e3)
    pipeline.close()
    return times


def bare_ms(database: str, count: int = 1_000) -> list[float]:
    """Returns the durations of single INSERTs in autocommit, in ms."""
    bare = Bare(database, 1, 0)
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        bare.autocommit()
        times.append((time.perf_counter() - began_s) * 1e3)
    bare.connection.close()
    return times


def quantiles(times: list[float]) -> str:
    """Formats the median and the 99th percentile."""
    return f"{statistics.median(times):.2f} / {statistics.quantiles(times, n=100)[98]:.2f}"


def measure(generator: Path, seats: Seats, kind: str, servers: Servers, seconds: float) -> Figures:
    """Sends requests to the servers without a pause for some time, and returns the measured rates.

    Args:
        generator: the compiled `pipelines.c`.
        seats: the groups whose members send the requests.
        kind: `heartbeats` or `commits`.
        servers: the running servers of a variant.
        seconds: the duration of the run.
    """
    requests = [encode_request(request, version, 7, "bench").hex() for request, version in getattr(seats, kind)()]
    lines = "".join(f"{port} {request}\n" for port, request in zip(seats.ports, requests, strict=True))
    before = servers.cpu_s()
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [generator, str(seconds), str(DEPTH)], input=lines, capture_output=True, text=True, check=True, timeout=120
    )
    used = {port: after_s - before[port] for port, after_s in servers.cpu_s().items()}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (total, elapsed_s), *counts = (line.split() for line in done.stdout.splitlines())
    served = dict.fromkeys(servers.pids, 0)
    for port, (count,) in zip(seats.ports, counts, strict=True):
        served[port] += int(count)
    client_s = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
    return Figures(
        int(total) / float(elapsed_s),
        [served[port] / used[port] for port in servers.pids],
        int(total) / used[0] if 0 in used else 0.0,
        client_s / float(elapsed_s),
    )


@contextmanager
def alone(folder: Path) -> Iterator[Servers]:
    """Runs `kcore serve` without a cluster."""
    [port] = next(free_ports(1))
    command = [sys.executable, "-m", "kcore", "serve", "--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}"]
    for name, value in SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    log = folder / "output.log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        try:
            wait_until(lambda: "listening" in log.read_text(errors="replace"), f"the server serves: {log}", 60)
            yield Servers({port: process.pid})
        finally:
            process.terminate()


@contextmanager
def over_postgresql(folder: Path, count: int, standby: bool) -> Iterator[Servers]:
    """Runs nodes over a separate database, which may have a synchronous standby."""
    databases = postgresql.Servers()
    try:
        server = databases.server("bench").create(shared_buffers="128MB")
        if standby:
            databases.server("standby").copy_of(server)
        url = server.url()
        with NodeProcesses(url, folder, count, SETTINGS) as nodes:
            server.query("CREATE TABLE bare (LIKE kcore.batches INCLUDING ALL)")
            pids = {port: nodes.processes[node_id].pid for node_id, port in nodes.ports.items()}
            postmaster = int((server.folder / "postmaster.pid").read_text().split()[0])
            yield Servers(pids, url, postmaster)
    finally:
        databases.close()


@contextmanager
def running(folder: Path, variant: str) -> Iterator[Servers]:
    """Runs the servers of a variant."""
    if variant == "alone":
        with alone(folder) as servers:
            yield servers
    elif variant.startswith("pg"):
        count, _, standby = variant.removeprefix("pg").partition("+")
        with over_postgresql(folder, int(count), bool(standby)) as servers:
            yield servers
    else:
        with Supervised(folder, int(variant), SETTINGS) as cluster:
            yield Servers({port: cluster.pid(number) for number, port in enumerate(cluster.ports, 1)})


class Results:
    """The measured results of all runs."""

    def __init__(self) -> None:
        self.figures: dict[tuple[str, str], list[Figures]] = {}
        self.latencies: dict[tuple[str, str], list[float]] = {}
        self.bare: dict[str, list[float]] = {}

    def run(self, generator: Path, variant: str, kinds: list[str], servers: Servers, seconds: float) -> None:
        """Measures one variant once."""
        time.sleep(SETTLE_S)
        seats = Seats(list(servers.pids), CONNECTIONS)
        for kind in kinds:
            measure(generator, seats, kind, servers, WARM_UP_S)
            figures = measure(generator, seats, kind, servers, seconds)
            self.figures.setdefault((kind, variant), []).append(figures)
            self.latencies.setdefault((kind, variant), []).extend(latencies_ms(seats, kind))
        if servers.database:
            self.bare.setdefault(variant, []).extend(bare_ms(servers.database))

    def show(self) -> None:
        """Prints the medians."""
        print(
            "| | requests/s | of 1 process | per CPU-second of each server | of the database | client's CPU "
            "| one at a time, ms p50 / p99 | bare INSERT |\n|---|---|---|---|---|---|---|---|"
        )
        for (kind, variant), figures in self.figures.items():
            rate = statistics.median(one.rate for one in figures)
            base = self.figures.get((kind, "1"))
            ratio = f"{rate / statistics.median(one.rate for one in base):.2f}" if base else "-"
            each = zip(*(one.per_cpu_s for one in figures), strict=True)
            per_server = ", ".join(f"{statistics.median(values):,.0f}" for values in each)
            database = statistics.median(one.per_database_s for one in figures)
            share = statistics.median(one.client_share for one in figures)
            bare = quantiles(self.bare[variant]) if variant in self.bare else "-"
            print(
                f"| {kind}, {variant} | {rate:,.0f} | {ratio} | {per_server} | {database:,.0f} | {share:.2f} "
                f"| {quantiles(self.latencies[kind, variant])} | {bare} |"
            )


def main() -> None:
    """Prints the median of some runs for each variant."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--variants", default="alone,1,2,pg1,pg2", help="what to compare")
    parser.add_argument("--seconds", type=float, default=2.0, help="the time of each run")
    parser.add_argument("--rounds", type=int, default=5, help="the number of runs of each variant")
    parser.add_argument("--kinds", default=",".join(KINDS), help="the kinds of requests")
    options = parser.parse_args()
    results = Results()
    with tempfile.TemporaryDirectory() as folder:
        generator = Path(folder) / "pipelines"
        source = Path(__file__).with_name("pipelines.c")
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-O2", "-o", generator, source], check=True)
        for number in range(options.rounds):
            for variant in options.variants.split(","):
                data = Path(folder) / f"{number}-{variant}"
                data.mkdir()
                with running(data, variant) as servers:
                    results.run(generator, variant, options.kinds.split(","), servers, options.seconds)
    results.show()


if __name__ == "__main__":
    main()
