"""`python -m bench.clients`: compares Python clients by their own CPU time, with one `kcore serve` as the server.

    python -m bench.clients [--clients kcore aiokafka ...] [--work produce consume ...] [--sizes 100 1024] [--rounds 3]

The clients are kcore (its asynchronous API), aiokafka, kafka-python and confluent-kafka (librdkafka); packages that are
not installed are skipped. Each measurement is a process of its own. It warms up, and then reports the CPU time of all
its threads per record (produce, consume), per commit or per heartbeat. The clients take turns within a round. All have
the same settings: acks=all, idempotence, no compression, batches of 128 KiB, a linger time of 5 ms, fetches of 1 MiB
for a partition, four partitions. Prints a table, and writes it to build/bench/clients.md.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import kcore
from bench import client_work
from bench.client_work import BATCH_BYTES, PARTITIONS, WARM_RECORDS
from bench.compare import free_port
from bench.report import OUT

PACKAGES = {
    "kcore": "kcore",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka",
    "librdkafka": "confluent_kafka",
}
WORK = ("produce", "consume", "loop", "commit", "heartbeat")
UNITS = {
    "produce": "produce, a record",
    "consume": "consume by polls, a record",
    "loop": "consume by a loop over records, a record",
    "commit": "commit of one offset",
    "heartbeat": "idle member that sends heartbeats, a request",
}


def measure_here(client: str, work: str, address: str, topic: str, size: int, records: int) -> float:
    """Performs one measurement in this process.

    Args:
        client: the name of the client, such as `kcore`.
        work: the measured operation: `produce`, `consume`, `commit` or `heartbeat`.
        address: the server, as HOST:PORT.
        topic: the topic to use.
        size: the size of a record in bytes.
        records: the number of operations.

    Returns:
        The CPU time of one operation in microseconds.
    """
    function: Callable[..., float | Coroutine[Any, Any, float]] = getattr(
        client_work, f"{client.replace('-', '_')}_{work}"
    )
    result = function(address, topic, size, records)
    return result if isinstance(result, float) else asyncio.run(result)


@contextmanager
def server() -> Iterator[str]:
    """Starts `kcore serve` on a free port, and yields its address."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "kcore", "serve", "--listen", address, "--data", f"{folder}/data"]
        command += ["-c", "group.initial.rebalance.delay.ms=0", "-c", "group.consumer.assignment.interval.ms=0"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(address)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(address: str) -> None:
    host, port = address.split(":")
    until_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.05)


def fill(address: str, topic: str, size: int, records: int) -> None:
    """Creates a topic with records of equal size, spread over its partitions."""
    with kcore.connect(address) as node:
        node.topics.create(topic, partitions=PARTITIONS)
        with node.producer(batch_bytes=BATCH_BYTES) as producer:
            for number in range(records):
                producer.append(topic, bytes(size), partition=number // 1000 % PARTITIONS)


def measure(client: str, work: str, address: str, topic: str, size: int, records: int) -> float:
    """Performs the measurement of `measure_here` in a new process, and returns the CPU time in microseconds."""
    arguments = [client, work, address, topic, str(size), str(records)]
    command = [sys.executable, "-m", "bench.clients", "--here", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1]))


def table(results: dict[tuple[str, int], dict[str, list[float]]], clients: list[str]) -> str:
    """Renders the medians, and their ratios to kcore's medians."""
    heads = ["client CPU, µs", "bytes", *clients]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (work, size), by_client in results.items():
        medians = {client: statistics.median(values) for client, values in by_client.items()}
        ours = medians.get("kcore")
        cells = [UNITS[work], str(size) if size else ""]
        for client in clients:
            ratio = f" ({medians[client] / ours:.1f} ×)" if ours and client != "kcore" else ""
            cells.append(f"{medians[client]:.2f}{ratio}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def compare(clients: list[str], work: list[str], sizes: list[int], records: int, rounds: int) -> str:
    """Measures all clients in turn. Returns the table."""
    results: dict[tuple[str, int], dict[str, list[float]]] = {}
    with server() as address:
        for size in sizes:
            fill(address, f"filled-{size}", size, records + 2 * WARM_RECORDS)
        for number in range(rounds):
            for size in sizes:
                fill(address, f"produced-{size}-{number}", size, 0)
            for job in work:
                for size in sizes if job in ("produce", "consume", "loop") else [0]:
                    for client in clients:
                        topic = f"produced-{size}-{number}" if job == "produce" else f"filled-{size or sizes[0]}"
                        value = measure(client, job, address, topic, size, records)
                        results.setdefault((job, size), {}).setdefault(client, []).append(value)
                        print(f"{number + 1}: {job} {size or ''} {client}: {value:.2f} µs", file=sys.stderr)
    return table(results, clients)


def main() -> int:
    """Runs the comparison or, with `--here`, one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1024])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--here", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        client, work, address, topic, size, records = options.here
        print(measure_here(client, work, address, topic, int(size), int(records)))
        return 0
    missing = [client for client in options.clients if importlib.util.find_spec(PACKAGES[client]) is None]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    clients = [client for client in options.clients if client not in missing]
    text = compare(clients, options.work, options.sizes, options.records, options.rounds)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "clients.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
