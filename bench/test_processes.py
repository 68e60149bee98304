"""Two connections with 64 outstanding requests each, against one and two processes of `kcore serve --processes`.

A figure is for 128 requests. With two processes, each connection belongs to another process. The ratio of the two rows
is the scaling; it needs two cores beside those of other work, and the client takes a part of them. Measure it on a calm
machine: `python -m bench bench/test_processes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.tcp import Pipeline
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
from tests.kit import wait_until
from tests.processes.supervised import Supervised

DEPTH = 64
CONNECTIONS = 2
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Seats:
    """A stable group of one member for each connection, spread over the processes."""

    def __init__(self, cluster: Supervised) -> None:
        self.ports = [cluster.ports[index % cluster.processes] for index in range(CONNECTIONS)]
        with Connection.to(f"127.0.0.1:{cluster.ports[0]}") as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        self.members = [self._join(port, f"group-{port}-{index}-") for index, port in enumerate(self.ports)]

    def _join(self, port: int, prefix: str) -> tuple[str, str, int]:
        """Returns the group, the member's id and the generation of a group of this process."""
        with Connection.to(f"127.0.0.1:{port}") as client:
            group = str(wait_until(lambda: self._group_of(client, port, prefix), "the leaders are spread"))
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

    @staticmethod
    def _group_of(client: Connection, port: int, prefix: str) -> str | None:
        keys = [f"{prefix}{number}" for number in range(50)]
        found = client.send(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
        return next((one.key for one in found if one.port == port), None)

    def heartbeats(self) -> list[tuple[Message, int]]:
        return [
            (HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 4)
            for group, member, generation in self.members
        ]

    def commits(self) -> list[tuple[Message, int]]:
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


@pytest.fixture(scope="module", params=[1, 2], ids=["one-process", "two-processes"])
def seats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seats]:
    folder: Path = tmp_path_factory.mktemp("bench")
    with Supervised(folder, request.param, SETTINGS) as cluster:
        yield Seats(cluster)


@pytest.mark.parametrize("kind", ["heartbeats", "commits"])
def test_requests(benchmark: BenchmarkFixture, seats: Seats, kind: str) -> None:
    requests = getattr(seats, kind)()
    pipelines = [
        Pipeline(port, request, version, DEPTH) for port, (request, version) in zip(seats.ports, requests, strict=True)
    ]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        benchmark(lambda: list(threads.map(Pipeline.round, pipelines)))
    for pipeline in pipelines:
        pipeline.close()
