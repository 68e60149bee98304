"""Nodes in virtual time."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator

import pytest

from kcore.errors import ConfigError, KcoreError, UnknownMemberIdError
from kcore.node._async.node import AsyncNode
from kcore.protocol.messages.heartbeat import HeartbeatRequest
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.testing import VirtualNode, VirtualTimeLoop, virtual
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
def test_assertions_work_in_virtual_time(kcore_node: VirtualNode) -> None:
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
def test_a_producer_and_a_consumer_work_in_virtual_time(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> list[bytes | None]:
        async with node.producer(linger=1) as producer:
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
def test_a_request_is_repeated_at_its_interval_until_stop(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> Repetition:
        repeated = kcore_node.repeat(MetadataRequest(topics=[]), every=10)
        await asyncio.sleep(60)
        repeated.stop()
        await asyncio.sleep(60)
        return repeated

    repeated = kcore_node.run(scenario)
    assert (repeated.count, len(repeated.response.brokers)) == (6, 1)


# ---- the event loop


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()


def test_timers_run_at_their_times_and_equal_ones_in_the_order_of_arming(loop: VirtualTimeLoop) -> None:
    calls: list[tuple[float, str]] = []

    def note(name: str) -> None:
        calls.append((loop.time(), name))

    loop.call_at(0.1 + 0.2, note, "c")
    loop.call_later(0.3, note, "d")
    loop.call_at(0.1, note, "b")
    loop.call_at(-5, note, "a")
    loop.call_at(float("inf"), note, "never")
    loop.call_later(0.2, loop.call_later, 0.1, note, "e")
    loop.run_until_complete(asyncio.sleep(10))
    assert calls == [(0, "a"), (0.1, "b"), (0.3, "c"), (0.3, "d"), (0.3, "e")]
    with pytest.raises(ValueError, match="NaN"):
        loop.call_at(float("nan"), note, "no time")


def test_most_cancelled_timers_are_removed_and_the_rest_runs(loop: VirtualTimeLoop) -> None:
    calls: list[int] = []
    handles = [loop.call_at(1 + number % 7, calls.append, number) for number in range(1_000)]
    for number, handle in enumerate(handles):
        if number % 10:
            handle.cancel()
    assert len(loop) < 300
    loop.run_until_complete(asyncio.sleep(10))
    assert sorted(calls) == list(range(0, 1_000, 10))
    assert len(loop) == 0


def test_a_repeating_timer_keeps_its_times_until_it_is_cancelled(loop: VirtualTimeLoop) -> None:
    times: list[float] = []

    def note() -> None:
        times.append(loop.time())
        if len(times) == 4:
            handle.cancel()
            raise ValueError("logged, as of any callback")

    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    handle = loop.call_every(0.1, note)
    loop.run_until_complete(asyncio.sleep(10))
    assert times == [0.1, 0.2, 0.3, 0.4]
    assert [str(error) for error in errors] == ["logged, as of any callback"]
    assert len(loop) == 0


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e-12])
def test_an_interval_that_would_stop_the_time_is_refused(loop: VirtualTimeLoop, seconds: float) -> None:
    with pytest.raises(ValueError, match="valid are 1 ns"):
        loop.call_every(seconds, lambda: None)


def test_a_task_that_never_waits_fails(monkeypatch: pytest.MonkeyPatch, kcore_node: VirtualNode) -> None:
    monkeypatch.setattr(virtual, "MAX_TURNS", 1_000)

    async def busy(node: AsyncNode) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="did not change in 1000 iterations of the event loop"):
        kcore_node.run(busy)


# ---- wrong use


def test_wrong_arguments_are_refused_at_once(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> int:
        raise AssertionError("this must not run")

    with pytest.raises(TypeError, match=r"for one topic: topics=\['jobs'\]"):
        VirtualNode(topics="jobs")
    with pytest.raises(TypeError, match="must be a function"):
        kcore_node.run(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_seconds=nan"):
        kcore_node.run(scenario, max_seconds=float("nan"))
    for every in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="every="):
            kcore_node.repeat(MetadataRequest(topics=[]), every)
    with pytest.raises(TypeError, match="every="):
        kcore_node.repeat(MetadataRequest(topics=[]), "3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a request message"):
        kcore_node.repeat("Metadata", 3)


def test_a_timeout_of_the_scenario_itself_stays_as_it_is(kcore_node: VirtualNode) -> None:
    async def scenario(node: AsyncNode) -> None:
        raise TimeoutError("of the scenario")

    with pytest.raises(TimeoutError, match=r"^of the scenario$"):
        kcore_node.run(scenario)


def test_a_node_is_used_once_and_outside_of_coroutines() -> None:
    node = VirtualNode({"no.such.setting": 1})
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        node.__enter__()
    assert node.loop.is_closed()
    with VirtualNode() as used:
        pass
    with pytest.raises(KcoreError, match="can be entered only once"):
        used.__enter__()

    async def scenario(_: object) -> None:
        with VirtualNode() as inner:
            inner.run(scenario)

    unused = VirtualNode()
    with pytest.raises(KcoreError, match="not in a coroutine"):
        asyncio.run(scenario(None))
    with unused, pytest.raises(KcoreError, match="not in a coroutine"):
        unused.run(scenario)
