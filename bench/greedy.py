"""Measures heartbeats while a greedy client sends requests, without and with the quota `request_percentage`.

    python -m bench.greedy [--seconds 4] [--percentage 10]

Four connections of one client id describe 500 topics without a pause, with eight requests outstanding each. Another
client sends a heartbeat every 5 ms. The table has the percentiles of the heartbeats' response times, and the rates of
both clients.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kcore.client import Connection
from kcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.testing import ServerProcess
from kcore_ext.codec.frames import encode_request

CONNECTIONS, OUTSTANDING, TOPICS = 4, 8, 500
INTERVAL_S = 0.005
GREEDY = "greedy"


def flood(port: int, stop: threading.Event, counts: list[int], index: int) -> None:
    """Sends requests without a pause, and counts the responses, until the event `stop` is set."""
    frame = encode_request(MetadataRequest(topics=None), 12, 1, GREEDY)
    with socket.create_connection(("127.0.0.1", port), timeout=0.2) as client:
        client.sendall(frame * OUTSTANDING)
        buffer = b""
        while not stop.is_set():
            try:
                buffer += client.recv(1 << 20)
            except TimeoutError:
                continue
            while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
                buffer = buffer[4 + size :]
                counts[index] += 1
                client.sendall(frame)


def heartbeats(client: Connection, seconds: float) -> list[float]:
    """Sends heartbeats for some time; returns the sorted response times in ms."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    times = []
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        began_s = time.perf_counter()
        client.send(request, 4)
        times.append((time.perf_counter() - began_s) * 1_000)
        time.sleep(INTERVAL_S)
    return sorted(times)


def run(name: str, server: ServerProcess, client: Connection, seconds: float, connections: int) -> None:
    """Prints one row."""
    stop, counts = threading.Event(), [0] * connections
    threads = [threading.Thread(target=flood, args=(server.port, stop, counts, i)) for i in range(connections)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    before = sum(counts)
    times = heartbeats(client, seconds)
    served = sum(counts) - before
    stop.set()
    for thread in threads:
        thread.join()
    at: Callable[[float], float] = lambda share: times[int(len(times) * share)]  # noqa: E731
    median_ms, late_ms = statistics.median(times), at(0.99)
    print(f"{name:28} {median_ms:8.2f} {late_ms:8.2f} {len(times) / seconds:8.0f} {served / seconds:8.0f}")


def main() -> None:
    """Measures three cases: no greedy client, a greedy client without a quota, and one with a quota."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--percentage", type=float, default=10.0)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder) / "data") as server,
        Connection.to(server.bootstrap) as client,
    ):
        for first in range(0, TOPICS, 100):
            names = [f"topic-{index}" for index in range(first, first + 100)]
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
            client.send(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
        print(f"{'':28} {'p50 ms':>8} {'p99 ms':>8} {'beats/s':>8} {'greedy/s':>8}")
        run("heartbeats alone", server, client, arguments.seconds, 0)
        run("greedy client", server, client, arguments.seconds, CONNECTIONS)
        op = OpData(key="request_percentage", value=arguments.percentage, remove=False)
        entity = [EntityData(entity_type="client-id", entity_name=GREEDY)]
        client.send(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)
        # The burst of the first windows ends before the measurement.
        run("(burst)", server, client, 1.0, CONNECTIONS)
        run(f"with request_percentage={arguments.percentage:g}", server, client, arguments.seconds, CONNECTIONS)


if __name__ == "__main__":
    main()
