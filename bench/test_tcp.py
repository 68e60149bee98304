"""One TCP connection with 64 outstanding requests, against a real `kcore serve` with fsync.

A measured time is the time of 64 requests. It includes the client, which only copies bytes. The baseline is
ApiVersions, whose response is constant. bench/peers/load measures requests per second of server CPU.

In the two storms, all members of a group join at the same time, each over its own connection. The time includes the
client's time, and the server's CPU time is listed separately. Members of the new protocol send heartbeats without a
pause. The group has no assignment interval (KIP-1263), because Kafka's default of a second would dominate the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.storms import ClassicStorm, ConsumerStorm, Seat, cpu_ms
from bench.tcp import Pipeline
from kcore.client import Connection
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.protocol.schema import Message
from kcore.testing import ServerProcess

DEPTH = 64
PARTITIONS = 10
STORM_PARTITIONS = 100
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("bench") / "data"
    with ServerProcess(data, SETTINGS) as running:
        with Connection.to(running.bootstrap) as client:
            sizes = {"t": PARTITIONS, "storm": STORM_PARTITIONS}
            topics = [CreatableTopic(name=n, num_partitions=size, replication_factor=1) for n, size in sizes.items()]
            client.send(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        yield running


def joined(server: ServerProcess, group: str) -> tuple[str, int]:
    """Creates a stable group of one member. Returns the member's id and the generation."""
    with Connection.to(server.bootstrap) as client:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="bench",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        member_id = client.send(request, 5).member_id
        request.member_id = member_id
        generation = client.send(request, 5).generation_id
        client.send(SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id), 3)
        return member_id, generation


def commit_of(partitions: int) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata="")
        for i in range(partitions)
    ]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])


def run(benchmark: BenchmarkFixture, server: ServerProcess, request: Message, version: int) -> Pipeline:
    pipeline = Pipeline(server.port, request, version, DEPTH)
    benchmark.extra_info["operations"] = DEPTH
    benchmark(pipeline.round)
    pipeline.close()
    return pipeline


def test_api_versions(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    assert run(benchmark, server, request, 3).response


def test_heartbeat(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    member_id, generation = joined(server, "beats")
    request = HeartbeatRequest(group_id="beats", generation_id=generation, member_id=member_id)
    assert run(benchmark, server, request, 4).response[-3:] == b"\0\0\0", "NONE"


def test_consumer_heartbeat(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    """Measures heartbeats of a member of a stable group."""
    with Connection.to(server.bootstrap) as client:
        request = ConsumerGroupHeartbeatRequest(
            group_id="new-beats",
            member_id="m",
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        epoch = client.send(request, 1).member_epoch
        plain = ConsumerGroupHeartbeatRequest(group_id="new-beats", member_id="m", member_epoch=epoch)
        response = client.send(plain, 1)
        assert (response.error_code, response.assignment) == (0, None)
    assert run(benchmark, server, plain, 1).response


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_commit(benchmark: BenchmarkFixture, server: ServerProcess, partitions: int) -> None:
    assert run(benchmark, server, commit_of(partitions), 9).response


def test_fetch_offsets(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    assert run(benchmark, server, request, 9).response


class Storms:
    """Groups of one size, one after another over the same connections."""

    def __init__(self, server: ServerProcess, members: int) -> None:
        self.server = server
        self.seats = [Seat(server.port) for _ in range(members)]
        self.names = (f"{members}-storm-{number}" for number in itertools.count())
        self.last: Any = None
        self.cpu_ms: list[float] = []

    def run(self, benchmark: BenchmarkFixture, make: Any) -> None:
        """Measures the groups. Members leave outside of the measurement."""

        def setup() -> tuple[tuple[Any], dict[str, Any]]:
            self.tidy()
            self.last = make(self.seats, next(self.names))
            return (self.last,), {}

        def storm(one: Any) -> None:
            before = cpu_ms(self.server.pid)
            one.run()
            self.cpu_ms.append(cpu_ms(self.server.pid) - before)

        benchmark.pedantic(storm, setup=setup, rounds=20, warmup_rounds=1)
        benchmark.extra_info["server_cpu_ms"] = sum(self.cpu_ms) / len(self.cpu_ms)

    def tidy(self) -> None:
        if self.last is not None:
            self.last.leave()

    def close(self) -> None:
        self.tidy()
        for seat in self.seats:
            seat.close()


def test_consumer_storm(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    """Measures 50 members of the new protocol with 100 partitions, from the first join until the group is stable."""
    storms = Storms(server, 50)
    storms.run(benchmark, lambda seats, group: ConsumerStorm(seats, group, "storm", STORM_PARTITIONS))
    assert storms.last.at_rest
    benchmark.extra_info["turns"] = storms.last.turns
    storms.close()


def test_join_storm(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    """Measures 100 members of the classic protocol, from the first join until all have sent SyncGroup in one
    generation.
    """
    storms = Storms(server, 100)
    storms.run(benchmark, ClassicStorm)
    assert storms.last.at_rest
    benchmark.extra_info["requests"] = storms.last.requests
    storms.close()
