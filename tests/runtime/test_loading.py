"""A node that serves requests while coordinators load, and a node that repeats a failed load."""

from __future__ import annotations

import asyncio
import http.client
from typing import Any

import pytest

from kcore.clock import ManualClock, SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.group.shard import GroupShard
from kcore.log import MemoryLogEngine
from kcore.log.memory_engine import MemoryStorage
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.runtime import Pending, RequestContext, ShardState
from kcore.runtime.load_retry import FIRST_PAUSE_MS
from kcore.runtime.loader import SLICE_RECORDS
from kcore.server.http import HttpServer
from kcore.server.listeners import parse_listeners
from kcore.server.observe import Observer
from kcore.server.server import Server

PARTITIONS = 100
GROUPS = SLICE_RECORDS // PARTITIONS + 5  # their offsets are more than one slice of a load
CONFIG = Config.of(
    {"offsets.topic.num.partitions": 2, "kcore.durability": "memory", "listeners": "PLAINTEXT://127.0.0.1:0"}
)


def call(engine: Engine, request: Any, version: int) -> Any:
    response = engine.submit(RequestContext(version), request)
    engine.commit()
    return response.response if isinstance(response, Pending) else response


def fetch(engine: Engine, group: str) -> tuple[int, int]:
    """Fetches the committed offsets of a group. Returns the error code and the number of offsets."""
    requested = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = call(engine, requested, 9).groups
    return found.error_code, sum(len(topic.partitions) for topic in found.topics)


def written() -> MemoryStorage:
    storage = MemoryStorage()
    engine = Engine(MemoryLogEngine(storage), CONFIG, ManualClock(wall_ms=1))
    topics = [CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)]
    assert call(engine, CreateTopicsRequest(topics=topics), 7).topics[0].error_code == 0
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in range(PARTITIONS)
    ]
    for number in range(GROUPS):
        requested = OffsetCommitRequestTopic(name="t", partitions=partitions)
        call(engine, OffsetCommitRequest(group_id=f"g{number}", topics=[requested]), 8)
    engine.close()
    return storage


def test_requests_are_served_while_coordinators_load() -> None:
    """Metadata responds at once. Requests about groups get COORDINATOR_LOAD_IN_PROGRESS until their shard is loaded."""
    engine = Engine(MemoryLogEngine(written()), CONFIG, ManualClock(wall_ms=1), wait=False)
    loaded_records: list[int] = []
    engine.when_loaded(lambda: loaded_records.append(engine.recovery.records))
    assert engine.loading
    assert engine.recovery.groups == 0
    refused = 0
    while engine.loading:
        assert loaded_records == []
        assert "t" in [topic.name for topic in call(engine, MetadataRequest(topics=None), 12).topics]
        responses = {fetch(engine, f"g{number}") for number in range(GROUPS)}
        assert responses <= {(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0), (0, PARTITIONS)}
        if (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0) in responses:
            refused += 1
        heartbeat = HeartbeatRequest(group_id="g0", member_id="m", generation_id=1)
        # Kafka responds to heartbeats of a loading group without an error, so that its members stay.
        assert call(engine, heartbeat, 4).error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        engine.slices.step()
    assert refused > 1
    while engine.slices.step():
        pass
    assert {fetch(engine, f"g{number}") for number in range(GROUPS)} == {(0, PARTITIONS)}
    assert loaded_records == [GROUPS * PARTITIONS]
    assert (engine.recovery.groups, engine.recovery.shards) == (GROUPS, 2)
    engine.when_loaded(lambda: loaded_records.append(0))
    assert loaded_records[1:] == [0], "the callback runs at once if the node is loaded"
    engine.close()


def test_a_loading_node_is_not_ready() -> None:
    """The node's listeners are open, but /readyz returns 503 with the cause until all shards are loaded."""
    storage = written()

    def get(address: tuple[str, int]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*address, timeout=20)
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    async def run() -> None:
        loop = asyncio.get_running_loop()
        engine = Engine(MemoryLogEngine(storage), CONFIG, SystemClock(), wait=False)
        driver = AsyncDriver(engine, loop)
        server = Server(driver, parse_listeners(CONFIG))
        await server.start()
        observed = HttpServer(Observer(engine, driver, server), "127.0.0.1:0")
        await observed.start()
        assert server.addresses["PLAINTEXT"][1] > 0
        in_thread = loop.run_in_executor
        assert await in_thread(None, get, observed.address) == (503, "__consumer_offsets: 2 loading\n")
        loaded = asyncio.Event()
        engine.when_loaded(loaded.set)
        driver.start()
        await loaded.wait()
        assert await in_thread(None, get, observed.address) == (200, "ready\n")
        await observed.stop()
        await server.stop()
        driver.close()
        engine.close()

    asyncio.run(run())


def test_a_failed_load_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = written()
    replay_run = GroupShard.replay_run

    def fails(*_: Any) -> int:
        raise MemoryError

    monkeypatch.setattr(GroupShard, "replay_run", fails)
    engine = Engine(MemoryLogEngine(storage), CONFIG, ManualClock(wall_ms=1))
    assert {shard.state for shard in engine.groups} == {ShardState.FAILED}
    assert fetch(engine, "g0") == (ErrorCode.NOT_COORDINATOR, 0)
    engine.advance(FIRST_PAUSE_MS)
    assert {shard.state for shard in engine.groups} == {ShardState.FAILED}
    monkeypatch.setattr(GroupShard, "replay_run", replay_run)
    engine.advance(FIRST_PAUSE_MS)  # the pause has doubled
    assert {shard.state for shard in engine.groups} == {ShardState.FAILED}
    engine.advance(FIRST_PAUSE_MS)
    assert {shard.state for shard in engine.groups} == {ShardState.ACTIVE}
    assert {fetch(engine, f"g{number}") for number in range(GROUPS)} == {(0, PARTITIONS)}
    engine.close()
