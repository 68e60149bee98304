"""An embedded engine with its public API, `with kcore.open(...) as engine: engine.send(...)`, in each durability."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kcore
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kcore.protocol.messages.sync_group import SyncGroupRequest

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}


@pytest.fixture(params=["memory", "os", "fsync"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[kcore.EmbeddedNode]:
    path = None if request.param == "memory" else tmp_path / "data"
    settings = SETTINGS | ({} if path is None else {"kcore.durability": request.param})
    with kcore.open(path, config=settings) as opened:
        topic = CreatableTopic(name="t", num_partitions=10, replication_factor=1)
        opened.send(CreateTopicsRequest(topics=[topic], timeout_ms=1_000))
        yield opened


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_heartbeat(benchmark: BenchmarkFixture, engine: kcore.EmbeddedNode) -> None:
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="bench",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )
    join.member_id = engine.send(join).member_id
    generation = engine.send(join).generation_id
    sync = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=join.member_id, protocol_type="bench", protocol_name="p"
    )
    assert engine.send(sync).error_code == 0
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=join.member_id)
    assert benchmark(engine.send, beat).error_code == 0


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_fetch(benchmark: BenchmarkFixture, engine: kcore.EmbeddedNode) -> None:
    """Measures requests for ten committed offsets."""
    parts = [OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(10)]
    engine.send(OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)]), 9)
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=tuple(range(10)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    response = benchmark(engine.send, request, 9)
    assert [part.committed_offset for part in response.groups[0].topics[0].partitions] == list(range(10))


@pytest.mark.parametrize("partitions", [1, 10])
def test_commit(benchmark: BenchmarkFixture, engine: kcore.EmbeddedNode, partitions: int) -> None:
    parts = [OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in range(partitions)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])
    response = benchmark(engine.send, request, 9)
    assert {part.error_code for part in response.topics[0].partitions} == {0}


CALLERS = 16


@pytest.mark.parametrize("callers", [1, CALLERS])
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_concurrent_commits(benchmark: BenchmarkFixture, tmp_path: Path, kind: str, callers: int) -> None:
    """Measures 20 commits by each caller, with durability `fsync`.

    On a slow device, concurrent commits share flushes. `LD_PRELOAD=./slowflush.so FLUSH_US=2000` simulates a slow
    device; see `bench/slowflush.c`.
    """
    requests = [
        OffsetCommitRequest(
            group_id=f"g{i}",
            topics=[
                OffsetCommitRequestTopic(
                    name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=i)]
                )
            ],
        )
        for i in range(callers)
    ]
    topic = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=10, replication_factor=1)], timeout_ms=1_000
    )
    if kind == "threads":
        with kcore.open(tmp_path / "data", config=SETTINGS) as node, ThreadPoolExecutor(callers) as pool:
            node.send(topic)
            benchmark(lambda: list(pool.map(lambda request: [node.send(request, 9) for _ in range(20)], requests)))
        return

    async def tasks() -> None:
        async with kcore.open_async(tmp_path / "data", config=SETTINGS) as node:
            await node.send(topic)

            async def one(request: OffsetCommitRequest) -> None:
                for _ in range(20):
                    await node.send(request, 9)

            async def all_tasks() -> None:
                await asyncio.gather(*(one(request) for request in requests))

            loop = asyncio.get_running_loop()
            # The benchmark calls a function: a thread of its own waits there for the loop.
            await asyncio.to_thread(benchmark, lambda: asyncio.run_coroutine_threadsafe(all_tasks(), loop).result())

    asyncio.run(tasks())
