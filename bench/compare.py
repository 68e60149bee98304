"""`make bench-peers`: compares kcore with Apache Kafka and kfake by CPU time, in one run on one machine.

    python -m bench.compare [tcp] [java] [--seconds 4] [--repeat 3] [--case heartbeat] [--steady]

`tcp` drives servers with bench/peers/load (needs Go): kcore with fsync; Apache Kafka if Java is installed and
KAFKA_LIBS names a folder with its jars; kfake if KFAKE_SRC names a checkout of franz-go. The servers take turns for
each case. `java` runs Kafka's own classes without a server (bench/peers/java: needs Java, and Maven or KAFKA_LIBS), and
kcore's benchmarks of the same work. If one of these programs is missing, its part is skipped and reported.
With `--steady`, cores are kept awake (see bench/awake_cores.py), and the server has one core, the load generator
another one. Response times then vary much less between repetitions.
Writes build/bench/peers.json and build/bench/peers.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.awake_cores import awake_cores
from bench.flush import measure_flush
from bench.report import OUT, read_rows

HERE = Path(__file__).parent
LOAD, JAVA = HERE / "peers" / "load", HERE / "peers" / "java"
CLOSED = "-conns 32 -inflight 4"
FLUSH = "flush"
"""Key of the device's flush times in the results of a case. All other keys are names of servers."""
AT_ONCE = "group.consumer.assignment.interval.ms=0"  # otherwise a consumer group waits for a second, as in Kafka


class Figure(NamedTuple):
    """One row of the table over TCP: a value in the output of the load generator.

    Attributes:
        name: the row's title.
        key: the name of the value in the load generator's output.
        more_is_better: True if a larger value is better.
        percentile: the index of the relevant percentile in a list of percentiles (50, 99, 99.9); None if the
            value is a single number.
    """

    name: str
    key: str = "req_per_server_cpu_s"
    more_is_better: bool = True
    percentile: int | None = None


class Case(NamedTuple):
    """One run of the load generator.

    Attributes:
        arguments: the arguments of the load generator.
        figures: the relevant values of the load generator's output.
    """

    arguments: str
    figures: tuple[Figure, ...]


def _per_cpu_second(name: str, arguments: str, key: str = "req_per_server_cpu_s") -> Case:
    return Case(arguments, (Figure(name, key),))


def _storm(name: str, arguments: str) -> Case:
    """Makes the case of a group whose members join at once. The CPU time is that of one storm, including the
    requests with which the members leave.
    """
    figures = Figure(f"{name}, ms", "stable_ms", False), Figure(f"{name}, CPU s", "server_cpu_s_per_storm", False)
    return Case(arguments, figures)


def _percentiles(key: str, name: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(f"{name} {percentile}, µs", key, False, index)
        for index, percentile in enumerate(("p50", "p99", "p99.9"))
    )


CASES = (
    _per_cpu_second("ApiVersions v3", f"-mode api-versions {CLOSED}"),
    _per_cpu_second("Heartbeat v4", f"-mode heartbeat-classic {CLOSED} -groups 100 -members 5"),
    _per_cpu_second("ConsumerGroupHeartbeat v1", f"-mode heartbeat-consumer {CLOSED} -groups 20 -members 5"),
    _per_cpu_second("StreamsGroupHeartbeat v0", f"-mode heartbeat-streams {CLOSED} -groups 20 -members 5"),
    _per_cpu_second("OffsetCommit v9, 1 partition", f"-mode offset-commit {CLOSED} -groups 100 -partitions 1"),
    _per_cpu_second("OffsetCommit v9, 10 partitions", f"-mode offset-commit {CLOSED} -groups 100 -partitions 10"),
    _per_cpu_second("OffsetFetch v9, 10 partitions", f"-mode offset-fetch {CLOSED} -groups 100 -partitions 10"),
    _per_cpu_second("Produce v11, 1 record", f"-mode produce {CLOSED} -records 1"),
    _per_cpu_second("Fetch v16, 1 record", f"-mode fetch {CLOSED} -records 1"),
    _per_cpu_second(
        "transactions", "-mode txn-v2 -conns 32 -inflight 8 -backoff 20ms -partitions 1", "txn_per_server_cpu_s"
    ),
    *(
        Case(
            f"-mode share -conns 32 -records {records}",
            (
                Figure(f"share group, {records} records a batch: requests", "req_per_server_cpu_s"),
                Figure(f"share group, {records} records a batch: records", "records_per_server_cpu_s"),
            ),
        )
        for records in (1, 100)
    ),
    Case(
        "-mode latency -conns 4 -groups 20 -members 5 -partitions 1 -hb-rate 1000 -commit-rate 200",
        _percentiles("heartbeat_us", "heartbeat at 1,000/s") + _percentiles("commit_us", "commit at 200/s beside it"),
    ),
    *(
        Case(
            f"-mode latency -conns 4 -groups 1 -members 1 -partitions {partitions} -hb-rate 1 -commit-rate 200",
            _percentiles("commit_us", f"commit of {partitions} at 200/s alone"),
        )
        for partitions in (1, 10)
    ),
    _storm("100 members join", "-mode join-storm -members 100 -repeat 11"),
    _storm("50 consumers to rest", "-mode consumer-storm -members 50 -partitions 100 -conns 16 -repeat 5"),
)


class Pair(NamedTuple):
    """One row of the table of `java`: a Java benchmark of Kafka's classes and the equivalent benchmark of kcore.

    Attributes:
        name: the row's title.
        bench: the name of the Java benchmark.
        params: the parameters that select one line of the Java benchmark's output.
        test: the pytest id of kcore's benchmark.
    """

    name: str
    bench: str
    params: dict[str, Any]
    test: str


def _codec(name: str, bench: str, test: str, **params: Any) -> tuple[Pair, ...]:
    return tuple(
        Pair(f"codec, {name}, {part}", bench, {"part": part, **params}, f"test_codec.py::test_{part}[{test}-kcore]")
        for part in ("encode", "decode")
    )


PAIRS = (
    *_codec("Heartbeat v4", "codec.heartbeat_request", "heartbeat-v4-request"),
    *_codec("OffsetCommit v9 × 10", "codec.offset_commit_request", "offset-commit-v9-10-partitions"),
    *_codec("JoinGroupResponse v9 × 50", "codec.join_group_response", "join-group-v9-response-50-members"),
    *_codec(
        "ConsumerGroupHeartbeat v1",
        "codec.consumer_group_heartbeat_request",
        "consumer-group-heartbeat-v1-steady",
        message="steady",
    ),
    Pair("timer, add", "timer.add", {}, "test_timer_wheel.py::test_add[wheel]"),
    Pair("timer, add and cancel", "timer.add_cancel", {}, "test_timer_wheel.py::test_add_and_cancel[wheel]"),
    Pair(
        "timer, heartbeat pattern over 100,000",
        "timer.heartbeat",
        {},
        "test_timer_wheel.py::test_heartbeats_of_100_000_sessions[wheel]",
    ),
    Pair("purgatory, 1 key", "purgatory.churn_1key", {}, "test_purgatory.py::test_watch_and_complete[purgatory-1-0]"),
    Pair("purgatory, 3 keys", "purgatory.churn_3keys", {}, "test_purgatory.py::test_watch_and_complete[purgatory-3-0]"),
    Pair("classic heartbeat", "shard.heartbeat_classic", {}, "test_groups.py::test_heartbeat[fast path]"),
    Pair("consumer heartbeat", "shard.heartbeat_consumer", {}, "test_consumer_groups.py::test_heartbeat_at_rest[10]"),
    Pair(
        "offset commit, 1 partition",
        "shard.commit",
        {"partitions": 1, "encode_records": False},
        "test_offsets.py::test_handle_commit[1]",
    ),
    Pair(
        "offset commit, 10 partitions",
        "shard.commit",
        {"partitions": 10, "encode_records": False},
        "test_offsets.py::test_handle_commit[10]",
    ),
    Pair("offset fetch, 10 partitions, unchanged", "shard.fetch", {}, "test_offsets.py::test_fetch[10]"),
    Pair("offset fetch, 10 partitions, another each time", "shard.fetch", {}, "test_offsets.py::test_fetch_anew"),
)


def median_of(lines: Iterable[Mapping[str, Any]], figure: Figure) -> float | None:
    """Returns the median of a value over repetitions, or None if no repetition has the value."""
    values: list[float] = []
    for line in lines:
        value = line.get(figure.key)
        if isinstance(value, list) and figure.percentile is not None:
            value = value[figure.percentile] if value else None
        if isinstance(value, list):
            values += value
        elif value is not None:
            values.append(value)
    return statistics.median(values) if values else None


def tcp_table(measured: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], servers: Sequence[str]) -> str:
    """Renders each server's median of each figure, and its ratio to kcore's median.

    Args:
        measured: a case's arguments -> server -> the load generator's results.
        servers: the columns; the first is kcore.
    """
    peers = servers[1:]
    heads = ["per server CPU-second", servers[0]]
    for peer in peers:
        heads += [peer, f"{servers[0]} is better by"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for case in CASES:
        results = measured.get(case.arguments)
        if results is None:
            continue
        for figure in case.figures:
            medians = {server: median_of(results.get(server, ()), figure) for server in servers}
            ours = medians[servers[0]]
            cells = [figure.name, _figure(ours)]
            for peer in peers:
                cells += [_figure(medians[peer]), _better(figure, ours, medians[peer])]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def flush_table(measured: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """Renders a table of the times that the device takes for a small write and its flush.

    Before each turn of a case, the program measures these times at 200 flushes per second.
    """
    lines = ["", "| flush of the device before it, µs | p50 | p99 | p99.9 |", "|---|---|---|---|"]
    for case in CASES:
        probes = measured.get(case.arguments, {}).get(FLUSH, ())
        if probes:
            cells = [_figure(statistics.median(probe[key] for probe in probes)) for key in ("p50", "p99", "p99_9")]
            lines.append(f"| {case.figures[0].name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _better(figure: Figure, ours: float | None, theirs: float | None) -> str:
    if not ours or not theirs:
        return ""
    return f"{ours / theirs if figure.more_is_better else theirs / ours:.2f} ×"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def java_line(lines: Iterable[Mapping[str, Any]], pair: Pair) -> Mapping[str, Any] | None:
    """Returns the line of Java's output that belongs to a pair."""
    for line in lines:
        params = line.get("params", {})
        if line.get("bench") == pair.bench and all(params.get(key) == value for key, value in pair.params.items()):
            return line
    return None


def java_table(lines: Sequence[Mapping[str, Any]], rows: Mapping[str, float]) -> str:
    """Renders, for each pair, the CPU time of one operation in Kafka's classes and in kcore.

    Args:
        lines: Java's output.
        rows: kcore's row -> CPU seconds per operation.
    """
    table = ["| CPU µs an operation | kcore | Kafka's classes | kcore takes |", "|---|---|---|---|"]
    for pair in PAIRS:
        line, ours = java_line(lines, pair), rows.get(pair.test)
        theirs = line.get("cpu_us_per_op") if line else None
        if ours is None and theirs is None:
            continue
        ratio = f"{ours * 1e6 / theirs:.2f} ×" if ours is not None and theirs else ""
        cells = (
            pair.name,
            "–" if ours is None else f"{ours * 1e6:.3g}",
            "–" if theirs is None else f"{theirs:.3g}",
            ratio,
        )
        table.append("| " + " | ".join(cells) + " |")
    return "\n".join(table) + "\n"


# ---- servers


class Server(NamedTuple):
    """A server under load. Its commands prepare and start it; each start gets a free port and an empty folder.

    Attributes:
        name: the column's title.
        command: a shell command; each start fills in `{port}`, `{controller}` (another free port) and `{data}`.
        prepare: commands to run first, with the same placeholders.
        warm_s: seconds for which each case runs before its first measurement, to warm up a just-in-time compiler. A
            server with a value above 0 runs through all cases. Other servers are restarted for each case, because
            kfake becomes slower over time.
    """

    name: str
    command: str
    prepare: Sequence[str] = ()
    warm_s: float = 0


def servers(work: Path) -> list[Server]:
    """Returns the servers that can be started on this machine, kcore first."""
    kcore = f"{shlex.quote(sys.executable)} -m kcore serve --listen 127.0.0.1:{{port}} --data {{data}}"
    variants = [Server("kcore, fsync", f"{kcore} -c group.initial.rebalance.delay.ms=0 -c {AT_ONCE}")]
    libs = os.environ.get("KAFKA_LIBS", "")
    if shutil.which("java") and libs and list(Path(libs).glob("kafka_2*.jar")):
        properties = f"{work}/kafka.properties"
        java = f"java -cp {shlex.quote(libs + '/*')}"
        prepare = (
            f"sed 's|@PORT@|{{port}}|g;s|@CPORT@|{{controller}}|g;s|@DATA@|{{data}}|g' "
            f"{LOAD}/kafka.properties.in > {properties}",
            f"echo {AT_ONCE} >> {properties}",
            f"{java} kafka.tools.StorageTool format -t 3zJTv0AvRyS5K8ORLz1ebA -c {properties} --standalone > /dev/null",
        )
        variants.append(Server("Kafka", f"{java} -Xms1g -Xmx2g -XX:+UseG1GC kafka.Kafka {properties}", prepare, 8))
    else:
        print("Apache Kafka is left out: no java, or KAFKA_LIBS names no folder with its jars", file=sys.stderr)
    if (work / "kfaked").exists():
        variants.append(Server("kfake, memory", f"{work}/kfaked -port {{port}}"))
        variants.append(Server("kfake, fsync", f"{work}/kfaked -port {{port}} -data-dir {{data}} -sync"))
    else:
        print("kfake is left out: KFAKE_SRC names no checkout of franz-go", file=sys.stderr)
    return variants


def free_port() -> int:
    """Returns a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Started(NamedTuple):
    """A running server, with its process and its port."""

    address: str
    pid: int


def start(load: Path, server: Server, work: Path, steady: bool) -> Started:
    """Starts a server on a free port with its own folder. If `steady` is True, the server uses only the first core."""
    port = free_port()
    values = {"port": port, "controller": free_port(), "data": f"{tempfile.mkdtemp(dir=work)}/data"}
    for step in server.prepare:
        subprocess.run(["sh", "-c", step.format(**values)], check=True)
    address = f"127.0.0.1:{port}"
    begin = [
        str(load),
        "-mode",
        "startup",
        "-addr",
        address,
        "-seconds",
        "0.5",
        "-exec",
        ("taskset -c 0 " if steady else "") + server.command.format(**values),
    ]
    response = json.loads(subprocess.run(begin, check=True, capture_output=True, text=True).stdout)
    return Started(address, response["pid"])


def measure(load: Path, name: str, started: Started, case: Case, seconds: float) -> dict[str, Any]:
    """Measures one case on a running server. Returns the values that the load generator prints, or {"failed": reason}.

    If the system allows it, the load generator stays on one core, so that the server always has the rest.
    """
    command = [
        *_pinned(),
        str(load),
        "-addr",
        started.address,
        "-pid",
        str(started.pid),
        "-label",
        name,
        "-seconds",
        str(seconds),
    ]
    command += case.arguments.split()
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    return {"failed": done.stderr.strip()[-200:]} if done.returncode else dict(json.loads(done.stdout))


def _pinned() -> list[str]:
    cores = os.cpu_count() or 1
    return ["taskset", "-c", str(cores - 1)] if cores > 1 and shutil.which("taskset") else []


class Field:
    """The running servers of a comparison, which are measured in turn.

    Args:
        load: the load generator.
        work: the folder in which each server gets its own folder.
        steady: True to run each server on one core.
    """

    def __init__(self, load: Path, work: Path, steady: bool) -> None:
        self.load = load
        self.work = work
        self.steady = steady
        self.kept: dict[str, Started] = {}

    def turn(self, server: Server, case: Case, seconds: float, first: bool) -> dict[str, Any]:
        """Measures one case on one server."""
        started = self.kept.get(server.name) or start(self.load, server, self.work, self.steady)
        if server.warm_s:
            self.kept[server.name] = started
            if first:
                measure(self.load, server.name, started, case, server.warm_s)
        try:
            return measure(self.load, server.name, started, case, seconds)
        finally:
            if not server.warm_s:
                end(started.pid)

    def close(self) -> None:
        """Ends the servers that are still running."""
        for started in self.kept.values():
            end(started.pid)


def end(pid: int) -> None:
    """Ends a server that the load generator started. Polls until the server has exited, because it is not a child
    process.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not alive(pid):
            return
        os.kill(pid, number)
        for _ in range(100):
            if not alive(pid):
                return
            time.sleep(0.1)


def alive(pid: int) -> bool:
    """Returns True if a process runs. A zombie process does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_tcp(cases: Sequence[Case], seconds: float, repeat: int, steady: bool) -> tuple[dict[str, Any], str] | None:
    """Measures every case on every server, in turn. Returns None without Go."""
    if shutil.which("go") is None:
        print("tcp is left out: no go to build the load generator with", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder, awake_cores() if steady else contextlib.nullcontext():
        work = Path(folder)
        subprocess.run([str(LOAD / "build.sh")], check=True, env={**os.environ, "TMPDIR": folder})
        all_servers = servers(work)
        field = Field(work / "load", work, steady)
        measured: dict[str, dict[str, list[dict[str, Any]]]] = {}
        try:
            for round_ in range(repeat):
                for case in cases:
                    flush = measure_flush(folder, 1.0, 200.0)
                    measured.setdefault(case.arguments, {}).setdefault(FLUSH, []).append(flush._asdict())
                    for server in all_servers:
                        line = field.turn(server, case, seconds, first=round_ == 0)
                        measured.setdefault(case.arguments, {}).setdefault(server.name, []).append(line)
                        value = line.get(case.figures[0].key, line.get("failed"))
                        print(f"{case.figures[0].name}, {server.name}: {value}", file=sys.stderr)
        finally:
            field.close()
        return measured, tcp_table(measured, [server.name for server in all_servers]) + flush_table(measured)


def run_java() -> tuple[dict[str, Any], str] | None:
    """Measures Kafka's classes and kcore's rows. Returns None without Java."""
    if shutil.which("java") is None or not (shutil.which("mvn") or os.environ.get("KAFKA_LIBS")):
        print("java is left out: no java, or neither mvn nor KAFKA_LIBS", file=sys.stderr)
        return None
    suites = sorted({pair.bench.split(".")[0] for pair in PAIRS})
    output = subprocess.run([str(JAVA / "run.sh"), *suites], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        tests = [f"bench/{pair.test}" for pair in PAIRS]
        clock = ["--benchmark-timer=time.process_time", f"--benchmark-json={results}"]
        pytest = [sys.executable, "-m", "pytest", "-q", "--benchmark-only", "--benchmark-quiet"]
        subprocess.run([*pytest, *clock, *tests], check=True, stdout=sys.stderr)
        rows = {row.name: row.median_s for row in read_rows(json.loads(results.read_text()))}
    return {"java": lines, "kcore": rows}, java_table(lines, rows)


def main() -> int:
    """Runs the requested comparisons, prints the tables and writes them."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("what", nargs="*", choices=["tcp", "java", []], default=[], help="nothing: both")
    parser.add_argument("--seconds", type=float, default=4, help="how long each case is measured")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", action="append", default=[], help="only cases over TCP whose names contain this")
    parser.add_argument("--steady", action="store_true", help="less varying response times; needs Linux and taskset")
    options = parser.parse_args()
    cases = [
        case
        for case in CASES
        if not options.case or any(part in figure.name for part in options.case for figure in case.figures)
    ]
    results = {}
    if not options.what or "tcp" in options.what:
        results["tcp"] = run_tcp(cases, options.seconds, options.repeat, options.steady)
    if not options.what or "java" in options.what:
        results["java"] = run_java()
    text = "\n".join(table for part in results.values() if part is not None for table in part[1:])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "peers.json").write_text(
        json.dumps({name: part[0] for name, part in results.items() if part}, indent=1) + "\n"
    )
    (OUT / "peers.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
