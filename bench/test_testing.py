"""Measures the testing kit: the time from a broker's start to its first response, its memory, and the real duration of
an hour of virtual time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from kcore.client import Connection
from kcore.node._async.node import AsyncNode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.testing import Broker, VirtualNode
from kcore.testing.virtual import Repetition

MEMBERS = 100
HEARTBEAT_S = 3.0
BROKERS = 50


def _first_response(broker: Broker) -> int:
    with Connection.to(broker.bootstrap) as client:
        return len(client.send(MetadataRequest(topics=[])).brokers)


def test_broker_answers(benchmark: BenchmarkFixture) -> None:
    with Broker() as first:  # imports
        assert _first_response(first) == 1
    brokers: list[Broker] = []

    def start() -> int:
        brokers.append(Broker().start())
        return _first_response(brokers[-1])

    def stop() -> None:
        while brokers:
            brokers.pop().stop()

    assert benchmark.pedantic(start, rounds=30, setup=stop) == 1
    stop()


def _resident_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_brokers_at_a_time(benchmark: BenchmarkFixture) -> None:
    with Broker() as first:
        assert _first_response(first) == 1
    before_bytes = _resident_bytes()
    brokers: list[Broker] = []

    def start() -> None:
        for _ in range(BROKERS):
            brokers.append(Broker().start())
            _first_response(brokers[-1])

    benchmark.pedantic(start, rounds=1)
    benchmark.extra_info["operations"] = BROKERS
    benchmark.extra_info["kib_each"] = round((_resident_bytes() - before_bytes) / BROKERS / 1024)
    for broker in brokers:
        broker.stop()


async def _stable_group(node: AsyncNode) -> list[HeartbeatRequest]:
    """Makes a stable classic group. Returns the heartbeats of its members."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]

    async def join(member_id: str = "") -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="bench",
            protocols=protocols,
        )
        return await node.send(request)

    ids = [(await join()).member_id for _ in range(MEMBERS)]
    joined = await asyncio.gather(*map(join, ids))
    generation = joined[0].generation_id
    syncs = [
        SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type="bench",
            protocol_name="range",
            assignments=[],
        )
        for member_id in ids
    ]
    await asyncio.gather(*map(node.send, syncs))
    return [HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id) for member_id in ids]


def test_virtual_hour_of_100_members(benchmark: BenchmarkFixture) -> None:
    with VirtualNode() as node:
        beats = node.run(_stable_group)
        repeated: list[Repetition] = [node.repeat(beat, HEARTBEAT_S) for beat in beats]

        async def hour(_: AsyncNode) -> None:
            await asyncio.sleep(3600)

        benchmark.pedantic(lambda: node.run(hour), rounds=3)
        assert {one.response.error_code for one in repeated} == {0}
        assert sum(one.count for one in repeated) >= 3 * MEMBERS * 1199
        assert node.groups["g"].state == "Stable"
        assert node.history("g").of("left") == []
