"""Nodes in virtual time."""

from __future__ import annotations

import asyncio
import copy
import threading

import pytest

from kcore.errors import UnknownMemberIdError
from kcore.node._async.node import AsyncNode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.testing import VirtualNode
from kcore.testing.virtual import WALL_START_MS, Repetition


def replace_id(request: JoinGroupRequest, member_id: str) -> JoinGroupRequest:
    changed = copy.copy(request)
    changed.member_id = member_id
    return changed


def test_the_time_jumps_while_all_tasks_wait(kcore_node: VirtualNode) -> None:
    async def nap(node: AsyncNode) -> list[float]:
        async def sleeper(seconds: float) -> float:
            await asyncio.sleep(seconds)
            return kcore_node.now

        return list(await asyncio.gather(sleeper(7200), sleeper(1), sleeper(3600)))

    assert kcore_node.run(nap) == [7200, 1, 3600]


def test_the_time_stands_still_while_a_thread_computes(kcore_node: VirtualNode) -> None:
    go = threading.Event()

    async def scenario(node: AsyncNode) -> float:
        computed = asyncio.get_running_loop().run_in_executor(None, go.wait)
        asyncio.get_running_loop().call_soon(go.set)
        await computed
        return kcore_node.now

    assert kcore_node.run(scenario) == 0


@pytest.mark.kcore(topics={"jobs": 4})
def test_members_live_for_an_hour_and_share_the_partitions(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> tuple[int, ...]:
        group = node.group("g")
        async with group.join(["jobs"]) as one, group.join(["jobs"]) as two:
            await asyncio.sleep(3600)
            return len(one.assignment), len(two.assignment)

    assert kcore_node.run(scenario) == (2, 2)
    history = kcore_node.history("g")
    assert [event.cause for event in history.of("left")] == ["ConsumerGroupHeartbeat of kcore (leave)"] * 2
    assert history.of("fenced") == []


def test_a_session_expires_at_its_time(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> int:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="test",
            protocols=protocols,
        )
        first = await node.send(request)
        joined = await node.send(replace_id(request, first.member_id))
        await node.send(
            SyncGroupRequest(
                group_id="g",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="test",
                protocol_name="range",
            )
        )
        await asyncio.sleep(44.9)
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        alive = (await node.send(beat)).error_code
        await asyncio.sleep(45.1)
        gone = (await node.send(beat)).error_code
        assert gone == UnknownMemberIdError.CODE
        return alive

    assert kcore_node.run(scenario) == 0
    (left,) = kcore_node.history("g").of("left")
    assert "expired after 45000 ms" in left.cause
    # The join waits for the initial rebalance delay of 3 s; the heartbeat at 47.9 s begins the last session.
    assert left.at == pytest.approx(3 + 44.9 + 45, abs=0.01)


def test_runs_repeat_with_equal_times() -> None:
    def run() -> list[tuple[float, str]]:
        with VirtualNode(topics={"t": 3}) as node:

            async def scenario(api: AsyncNode) -> None:
                async with api.group("g").join(["t"]):
                    await asyncio.sleep(60)

            node.run(scenario)
            return [(event.at, event.kind) for event in node.history("g")]

    first = run()
    assert first == run()
    assert len(first) > 3


def test_the_wall_clock_begins_at_a_fixed_time(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> int:
        await asyncio.sleep(1.5)
        return kcore_node.call(lambda engine: engine.now.wall_ms)

    assert kcore_node.run(scenario) == WALL_START_MS + 1500


def test_a_scenario_that_waits_for_ever_ends(kcore_node: VirtualNode) -> None:
    async def stuck(node: AsyncNode) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        kcore_node.run(stuck, max_seconds=3600)
    assert kcore_node.now == pytest.approx(3600)


def test_a_scenario_may_be_a_coroutine(kcore_node: VirtualNode) -> None:
    async def scenario() -> float:
        await kcore_node.node.topics.create("t", partitions=1)
        await asyncio.sleep(60)
        return kcore_node.now

    assert kcore_node.run(scenario()) == 60.0


@pytest.mark.kcore(topics={"t": 1})
def test_assertions_in_virtual_time(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> None:
        await node.topics["t"].append_many(["a", "b"], partition=0)
        await node.group("g").commit({("t", 0): 2})

    kcore_node.run(scenario)
    kcore_node.assert_at_rest()
    kcore_node.assert_committed("g", {("t", 0): 2})
    kcore_node.assert_nothing_skipped([("t", 0, 0), ("t", 0, 1)], "g")
    with pytest.raises(AssertionError, match=r"t-0: expected 3, committed 2[\s\S]*history of group g"):
        kcore_node.assert_committed("g", {("t", 0): 3})
    with pytest.raises(AssertionError, match="1 record was processed more than once: t-0@0"):
        kcore_node.assert_no_double_processing([("t", 0, 0), ("t", 0, 0)])
    with pytest.raises(AssertionError, match="1 record was committed in group g but not processed: t-0@1"):
        kcore_node.assert_nothing_skipped([("t", 0, 0)], "g")


@pytest.mark.kcore(topics={"t": 1})
def test_the_coordinator_can_be_controlled(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> list[str]:
        kinds: list[str] = []
        async with node.group("g").join(["t"], on_lost=lambda event: kinds.append("lost")) as member:
            while not member.assignment:
                await asyncio.sleep(1)
            kcore_node.groups["g"].expire(member.member_id)
            await asyncio.sleep(30)
            kinds.append(str(len(member.assignment)))
        return kinds

    assert kcore_node.run(scenario) == ["lost", "1"]
    assert [event.detail for event in kcore_node.history("g").of("fenced")] == ["UNKNOWN_MEMBER_ID"]


@pytest.mark.kcore(topics={"t": 1})
def test_a_producer_and_a_consumer_in_virtual_time(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> list[bytes | None]:
        async with node.producer(linger=60) as producer:
            await producer.append("t", "a")
            await producer.append("t", "b")
        async with node.group("g").consume(["t"], auto_commit=5.0) as consumer:
            records = []
            while len(records) < 2:
                records += await consumer.poll(60)
            await asyncio.sleep(10)
        return [record.value for record in records]

    assert kcore_node.run(scenario) == [b"a", b"b"]
    assert kcore_node.committed("g") == {("t", 0): 2}


@pytest.mark.kcore(topics={"t": 1})
def test_a_repeated_request(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> Repetition:
        repeated = kcore_node.repeat(MetadataRequest(topics=[]), every=10)
        await asyncio.sleep(60)
        repeated.stop()
        await asyncio.sleep(60)
        return repeated

    repeated = kcore_node.run(scenario)
    assert (repeated.count, len(repeated.response.brokers)) == (6, 1)
