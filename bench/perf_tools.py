"""Runs Kafka's producer and consumer performance tools against kcore and Kafka, in turns.

    KAFKA_LIBS=FOLDER python -m bench.perf_tools [--records 1000000] [--repeat 3] [--case 100x4] [--server NAME]

    mvn -f tests/clients/tools_java/pom.xml dependency:copy-dependencies -DoutputDirectory=FOLDER    # fills the folder

The tools are `ProducerPerformance` (acks=all, default batch settings) with one and four processes, and
`ConsumerPerformance`, with records of 100 and of 1,024 bytes. Servers are kcore with durability `os` and `fsync`, Kafka
with its defaults, and Kafka with `flush.messages=1`. Each measurement has its own server, folder and topic. First, a
quarter of the records warms up the server. The table shows the rate in thousands of records per second, and the
server's CPU time for a million records. Each round also shows the duration of a flush on the device.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import kcore
from bench.compare import LOAD, end, free_port
from bench.flush import measure_flush
from kcore.errors import KcoreError

START_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


class Variant(NamedTuple):
    """A server under test.

    Attributes:
        name: the column's title.
        kafka: True for Apache Kafka.
        topic_config: configuration of the topic.
        options: further options of `kcore serve`.
    """

    name: str
    kafka: bool
    topic_config: dict[str, str]
    options: str = ""


VARIANTS = (
    Variant("kcore-os", False, {}, "-c kcore.durability=os"),
    Variant("kafka", True, {}),
    Variant("kcore-fsync", False, {}, "-c kcore.durability=fsync"),
    Variant("kafka-flush", True, {"flush.messages": "1"}),
)


class Case(NamedTuple):
    """The size of a record in bytes, and the number of producers."""

    size: int
    producers: int

    @property
    def name(self) -> str:
        return f"{self.size}x{self.producers}"


CASES = tuple(Case(size, producers) for size in (100, 1024) for producers in (1, 4))


class Measured(NamedTuple):
    """The results of one measurement, for producing and for consuming.

    They are records per second, and the server's CPU seconds for a million records.
    """

    produced: float
    produce_cpu_s: float
    consumed: float
    consume_cpu_s: float


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start(variant: Variant, libs: str, folder: str, port: int) -> subprocess.Popen[bytes]:
    """Starts a server on a new folder."""
    with open(f"{folder}/log", "wb") as log:
        if not variant.kafka:
            command = f"{shlex.quote(sys.executable)} -m kcore serve --listen 127.0.0.1:{port} --data {folder}/data"
            return subprocess.Popen(shlex.split(f"{command} {variant.options}"), stdout=log, stderr=log)
        text = (LOAD / "kafka.properties.in").read_text()
        for name, value in (("@PORT@", port), ("@CPORT@", free_port()), ("@DATA@", f"{folder}/data")):
            text = text.replace(name, str(value))
        properties = f"{folder}/kafka.properties"
        Path(properties).write_text(text)
        java = ["java", "-cp", f"{libs}/*", "-Xms1g", "-Xmx2g"]
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "3zJTv0AvRyS5K8ORLz1ebA", "-c", properties]
        subprocess.run([*format_, "--standalone"], check=True, stdout=log, stderr=log)
        return subprocess.Popen([*java, "-XX:+UseG1GC", "kafka.Kafka", properties], stdout=log, stderr=log)


def create(address: str, topics: Sequence[str], config: dict[str, str]) -> None:
    """Creates topics as soon as the server accepts the request. Raises KcoreError or OSError if the server does not
    accept it within `START_S` seconds.
    """
    until_s = time.monotonic() + START_S
    while True:
        try:
            with kcore.connect(address) as node:
                for topic in topics:
                    node.topics.create(topic, partitions=1, config=config)
            return
        except (KcoreError, OSError):
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def produce(libs: str, address: str, topic: str, case: Case, records: int) -> float:
    """Runs the producers at the same time. Returns the sum of their rates."""
    command = [
        *("java", "-cp", f"{libs}/*", "-Xmx512m", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic),
        *("--num-records", str(records // case.producers), "--record-size", str(case.size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={address}", "acks=all"),
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(case.producers)
    ]
    rate = 0.0
    for process in running:
        output = process.communicate()[0]
        reports = SENT.findall(output)
        if process.returncode or not reports:
            raise RuntimeError(f"ProducerPerformance failed: {output[-400:]}")
        rate += float(reports[-1][1])
    return rate


def consume(libs: str, address: str, topic: str, records: int) -> float:
    """Reads the topic from its start. Returns the rate without the time of joining."""
    command = [
        *("java", "-cp", f"{libs}/*", "-Xmx512m", "org.apache.kafka.tools.ConsumerPerformance"),
        *("--bootstrap-server", address, "--topic", topic, "--messages", str(records), "--timeout", "60000"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line.split(",") for line in done.stdout.splitlines() if line.count(",") >= 9]
    if done.returncode or len(lines) < 2:
        raise RuntimeError(f"ConsumerPerformance failed: {done.stdout[-300:]} {done.stderr[-300:]}")
    columns = {name.strip(): value.strip() for name, value in zip(lines[0], lines[-1], strict=False)}
    return float(columns["fetch.nMsg.sec"])


def measure(variant: Variant, case: Case, libs: str, records: int, work: str) -> Measured:
    """Starts a server, warms it up, and measures both tools."""
    folder = tempfile.mkdtemp(dir=work)
    port = free_port()
    address = f"127.0.0.1:{port}"
    server = start(variant, libs, folder, port)
    try:
        create(address, ("warm", "measured"), variant.topic_config)
        produce(libs, address, "warm", case, records // 4)
        consume(libs, address, "warm", records // 4 // case.producers * case.producers)
        records = records // case.producers * case.producers
        before_s = cpu_s(server.pid)
        produced = produce(libs, address, "measured", case, records)
        between_s = cpu_s(server.pid)
        consumed = consume(libs, address, "measured", records)
        after_s = cpu_s(server.pid)
    finally:
        end(server.pid)
        server.wait()
        subprocess.run(["rm", "-rf", folder], check=False)
    million = records / 1e6
    return Measured(produced, (between_s - before_s) / million, consumed, (after_s - between_s) / million)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.perf_tools", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="records of 100 bytes; a quarter of 1,024 bytes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--case", action="append", default=[], help="SIZExPRODUCERS, such as 100x4")
    parser.add_argument("--server", action="append", default=[], choices=[variant.name for variant in VARIANTS])
    options = parser.parse_args()
    libs = os.environ.get("KAFKA_LIBS", "")
    if not list(Path(libs).glob("kafka-tools-[0-9]*.jar")):
        parser.error("KAFKA_LIBS names no folder with Kafka's jars; see the description of this module")
    cases = [case for case in CASES if not options.case or case.name in options.case]
    variants = [variant for variant in VARIANTS if not options.server or variant.name in options.server]
    results: dict[tuple[str, str], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as work:
        for _ in range(options.repeat):
            for case in cases:
                records = options.records if case.size == 100 else options.records // 4
                for variant in variants:
                    result = measure(variant, case, libs, records, work)
                    results.setdefault((case.name, variant.name), []).append(result)
                    print(f"{case.name} {variant.name}: {result}", file=sys.stderr, flush=True)
            flush = measure_flush(work, 1.0)
            print(f"flush: p50 {flush.p50:.0f} us, p99 {flush.p99:.0f} us", file=sys.stderr, flush=True)
    print("| bytes x producers | server | produced, k/s | CPU s per million | consumed, k/s | CPU s per million |")
    print("|---|---|---|---|---|---|")
    for (name, server), rows in results.items():
        produced, produce_cpu, consumed, consume_cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        cells = f"{produced / 1e3:.0f} | {produce_cpu:.2f} | {consumed / 1e3:.0f} | {consume_cpu:.2f}"
        print(f"| {name} | {server} | {cells} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
