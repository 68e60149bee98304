"""Over TCP, one connection with 64 requests under way, against a real `kcore serve` with fsync.

The figure is for 64 requests, client included: the client only copies bytes. The baseline is ApiVersions, an answer
that is never thought about. For requests per second of server CPU see bench/peers/load.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.tcp import Pipeline
from kcore.client import Connection
from kcore.protocol.messages.api_versions import ApiVersionsRequest
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("bench") / "data"
    with ServerProcess(data, {"group.initial.rebalance.delay.ms": "0"}) as running:
        with Connection.to(running.bootstrap) as client:
            topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
            client.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        yield running


def joined(server: ServerProcess, group: str) -> tuple[str, int]:
    """A stable group of one member: its id and generation."""
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
    benchmark.extra_info["requests"] = DEPTH
    benchmark(pipeline.round)
    pipeline.close()
    return pipeline


def test_api_versions(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    assert run(benchmark, server, request, 3).answer


def test_heartbeat(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    member_id, generation = joined(server, "beats")
    request = HeartbeatRequest(group_id="beats", generation_id=generation, member_id=member_id)
    assert run(benchmark, server, request, 4).answer[-3:] == b"\0\0\0", "NONE"


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_commit(benchmark: BenchmarkFixture, server: ServerProcess, partitions: int) -> None:
    assert run(benchmark, server, commit_of(partitions), 9).answer


def test_fetch_offsets(benchmark: BenchmarkFixture, server: ServerProcess) -> None:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    assert run(benchmark, server, request, 9).answer
