"""Drivers: every waiting request gets a response or an error, failed commits and defects stop no other work, and
closing ends all work.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from functools import partial
from typing import Any

import pytest

import kcore
from kcore.clock import ManualClock, SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.drivers.threads import ThreadDriver
from kcore.engine import Engine
from kcore.errors import CloseConnectionError, EngineClosedError, LogError
from kcore.log import FailureReason, MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataRequest
from kcore.runtime import Pending, RequestContext
from tests.kit import QUICK, batch, commit, create, fetch, join, new_member, produce, wait_until

SMALL = {**QUICK, "offsets.topic.num.partitions": "3"}


def faulty_engine(clock: Any = None, **settings: str) -> tuple[Engine, FaultInjectingEngine]:
    log = FaultInjectingEngine(MemoryLogEngine())
    return Engine(log, Config.of({**SMALL, **settings}), clock or SystemClock()), log


def context(version: int) -> RequestContext:
    return RequestContext(version, "client")


def test_a_computation_that_fails_after_the_end_is_not_reported() -> None:
    """A node that ends unregisters, so that a call of the store that still runs on a thread is fenced."""
    reported: list[dict[str, Any]] = []
    begun, ended = threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        ended.wait()
        raise LogError("node 1 is fenced")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, described: reported.append(described))
        engine, _ = faulty_engine()
        driver = AsyncDriver(engine, loop)
        driver.compute_beside(compute, pytest.fail)
        begun.wait()
        driver.close()
        engine.close()
        ended.set()
        await loop.shutdown_default_executor()
        await asyncio.sleep(0)  # the callbacks of the future

    asyncio.run(run())
    gc.collect()
    assert reported == []


class Threaded:
    """A thread driver as `tests.kit.Target`."""

    def __init__(self, driver: ThreadDriver) -> None:
        self.driver = driver

    def send(self, request: Any, version: int | None = None) -> Any:
        version = self.driver.engine.newest_version(request) if version is None else version
        return self.driver.submit(context(version), request)


class Looped:
    """An async driver that serves one request at a time."""

    def __init__(self, driver: AsyncDriver) -> None:
        self.driver = driver

    async def send(self, request: Any, version: int | None = None) -> Any:
        version = self.driver.engine.newest_version(request) if version is None else version
        return await self.driver.submit(context(version), request)


# ---- failed commits, in each driver


def test_with_threads_a_failed_commit_gets_kafkas_error_and_the_next_one_works() -> None:
    engine, log = faulty_engine()
    target = Threaded(ThreadDriver(engine))
    target.send(create("t"))
    log.fail_commit(1, FailureReason.DISK_FULL)
    refused = target.send(commit("g", {("t", 0): 5}), 9)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    log.fail_commit(1, FailureReason.DISK_FULL)
    assert target.send(produce("t", batch([b"v"])), 9).responses[0].partition_responses[0].error_code == 56
    log.fail_commit(1, FailureReason.DISK_FULL)
    target.send(create("u"))
    names = {topic.name for topic in target.send(MetadataRequest(topics=None)).topics}
    assert names == {"t", "__consumer_offsets"}, "a topic whose creation failed exists"
    assert target.send(create("u")).topics[0].error_code == 0
    assert target.send(commit("g", {("t", 0): 5}), 9).topics[0].partitions[0].error_code == 0
    response = target.send(produce("t", batch([b"v"])), 9).responses[0].partition_responses[0]
    assert (response.error_code, response.base_offset) == (0, 0)


async def test_on_a_loop_a_failed_commit_gets_kafkas_error_and_the_next_one_works() -> None:
    engine, log = faulty_engine()
    driver = AsyncDriver(engine, asyncio.get_running_loop())
    target = Looped(driver)
    await target.send(create("t"))
    log.fail_commit(1, FailureReason.DISK_FULL)
    refused, other = await asyncio.gather(
        target.send(commit("g", {("t", 0): 5}), 9), target.send(produce("t", batch([b"v"])), 9)
    )
    assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert other.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(100):  # the shard loads, one slice per turn of the loop
        response = await target.send(commit("g", {("t", 0): 5}), 9)
        if response.topics[0].partitions[0].error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
    assert response.topics[0].partitions[0].error_code == 0
    driver.close()
    engine.close()


def test_a_failed_commit_in_virtual_time() -> None:
    """The commit of a timer's change fails. The shard reloads from its log, and the time advances nevertheless."""
    clock = ManualClock()
    engine, log = faulty_engine(clock)
    driver = ThreadDriver(engine)
    target = Threaded(driver)
    member = new_member(target, "g", session_ms=10_000)
    target.send(join("g", member, session_ms=10_000))
    log.fail_commit(1)
    driver.advance(10_000)
    driver.advance(60_000)
    assert target.send(join("h", "", session_ms=10_000)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    engine.close()


# ---- bugs


class Broken:
    """An API with a defect."""

    fast = None
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    name = "Broken"

    def __init__(self, real: Any, error: BaseException) -> None:
        self.real, self.raised = real, error

    def handle(self, context: Any, request: Any) -> Any:
        raise self.raised

    def error(self, *arguments: Any) -> Any:
        return self.real.error(*arguments)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (LogError("the disk is gone"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_an_api_that_raises_gets_an_error_and_staged_records_are_committed(error: Exception, code: ErrorCode) -> None:
    engine, _ = faulty_engine()
    target = Threaded(ThreadDriver(engine))
    target.send(create("t"))
    real = engine.apis[1]
    engine.apis.made[1] = Broken(real, error)  # type: ignore[assignment]
    response = target.send(fetch("t"), 12)
    assert response.error_code or response.responses[0].partitions[0].error_code
    assert code in (response.error_code, *(part.error_code for row in response.responses for part in row.partitions))
    engine.apis.made[1] = real
    assert target.send(fetch("t"), 12).responses[0].partitions[0].error_code == 0


def test_a_failing_produce_without_acks_raises_to_its_caller() -> None:
    engine, _ = faulty_engine()
    target = Threaded(ThreadDriver(engine))
    target.send(create("t"))
    assert target.send(produce("t", batch([b"v"]), acks=0), 9) is None
    with pytest.raises(CloseConnectionError):
        target.send(produce("nowhere", batch([b"v"]), acks=0), 9)
    assert not engine.pipeline.dirty


def test_a_timer_that_raises_does_not_stop_the_others() -> None:
    clock = ManualClock()
    engine, _ = faulty_engine(clock)
    driver = ThreadDriver(engine)
    fired: list[str] = []
    engine.wheel.add(clock.monotonic_ms() + 10, lambda: 1 / 0)
    engine.wheel.add(clock.monotonic_ms() + 10, lambda: fired.append("second"))
    driver.advance(10)
    assert fired == ["second"]


async def test_an_end_of_round_that_raises_does_not_stop_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = faulty_engine()
    driver = AsyncDriver(engine, asyncio.get_running_loop())
    ends: list[int] = []
    driver.at_end_of_round(lambda: ends.append(1 // 0))
    driver.at_end_of_round(lambda: ends.append(1))
    target = Looped(driver)
    with caplog.at_level(logging.CRITICAL):
        assert (await target.send(create("t"))).topics[0].error_code == 0
        assert (await target.send(create("u"))).topics[0].error_code == 0
    assert ends
    driver.close()


@pytest.mark.parametrize("begins_round", [False, True])
async def test_a_response_that_a_write_completes_needs_no_further_turn(begins_round: bool) -> None:
    """The driver sends a response at the end of the round that completes it. Only a new request begins a round."""
    engine, _ = faulty_engine(ManualClock())
    driver = AsyncDriver(engine, asyncio.get_running_loop())
    await Looped(driver).send(create("t"))
    await turns_of_loop()
    completed: list[Any] = []
    at_ends: list[int] = []
    driver.at_end_of_round(lambda: at_ends.append(len(completed)))

    def arrived(response: Any) -> None:
        completed.append(response)
        driver.schedule_round_end()
        if begins_round:
            driver.begin_round()

    request = commit("g", {("t", 0): 5})
    driver.begin_round()
    engine.submit(context(9), request).on_complete(arrived)
    await turns_of_loop()
    assert [response.topics[0].partitions[0].error_code for response in completed] == [0]
    assert at_ends == ([1, 1] if begins_round else [1])
    assert not driver.round_clock.read
    driver.close()


async def turns_of_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ---- closing


def test_waiting_threads_get_the_error_of_a_closed_engine() -> None:
    with kcore.open(config=SMALL) as engine:
        make = threading.Barrier(2)
        got: list[BaseException] = []

        def parked() -> None:
            engine.send(create("t"))
            make.wait()
            try:
                engine.send(fetch("t", wait_ms=600_000), 12)
            except BaseException as error:
                got.append(error)

        thread = threading.Thread(target=parked)
        thread.start()
        make.wait()
        wait_until(lambda: len(engine.engine.purgatory), "the fetch is parked")
        engine.close()
        thread.join(30)
        assert [type(error) for error in got] == [EngineClosedError]
        with pytest.raises(EngineClosedError):
            engine.send(create("u"))
        with pytest.raises(EngineClosedError):
            engine.start(create("u"))
        engine.close()


async def test_waiting_tasks_get_the_error_of_a_closed_engine() -> None:
    async with kcore.open_async(config=SMALL) as engine:
        await engine.send(create("t"))
        parked = asyncio.ensure_future(engine.send(fetch("t", wait_ms=600_000), 12))
        cancelled = asyncio.ensure_future(engine.send(fetch("t", wait_ms=600_000), 12))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        await engine.close()
        with pytest.raises(EngineClosedError):
            await parked
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(EngineClosedError):
            await engine.send(create("u"))


async def test_alarms_and_slices_after_a_close_do_nothing() -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, what: errors.append(what))
    engine, _ = faulty_engine()
    driver = AsyncDriver(engine, loop)
    engine.wheel.add(engine.now.now_ms + 1, lambda: errors.append({"fired": True}))
    engine.slices.add(iter([None, None, None]))
    driver.start()
    await asyncio.sleep(0)
    driver.close()
    engine.close()
    await asyncio.sleep(0.02)
    assert errors == []


# ---- waking up


def test_an_earlier_deadline_wakes_a_sleeping_driver() -> None:
    """The driver sleeps until its next deadline. Meanwhile another thread may arm an earlier deadline."""
    with kcore.open(config=SMALL) as engine:
        engine.send(create("t", "u"))
        responses: list[Any] = []

        def parked(topic: str, wait_ms: int) -> None:
            responses.append(
                (topic, engine.send(fetch(topic, wait_ms=wait_ms), 12).responses[0].partitions[0].error_code)
            )

        late = threading.Thread(target=parked, args=("t", 600_000), daemon=True)
        late.start()
        wait_until(lambda: len(engine.engine.purgatory) == 1, "the long fetch is parked")
        pending = engine.start(fetch("u", wait_ms=50), 12)
        assert isinstance(pending, Pending)
        wait_until(lambda: pending.done, "the thread that sleeps fires the timer of one that does not")
        engine.send(produce("t", batch([b"v"])), 9)
        late.join(30)
        assert responses == [("t", 0)]


def test_timeouts_use_real_time_even_if_the_clock_stands_still() -> None:
    with kcore.open(config=SMALL, clock=kcore.ManualClock()) as engine:
        engine.send(create("t"))
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            engine.send(fetch("t", wait_ms=1_000), 12, timeout_s=0.01)
        assert len(engine.engine.purgatory) == 0, "an operation without a waiting caller is removed"


def test_advancing_the_clock_wakes_waiting_requests() -> None:
    with kcore.open(config=SMALL, clock=kcore.ManualClock()) as engine:
        engine.send(create("t"))
        responses: list[Any] = []
        thread = threading.Thread(target=lambda: responses.append(engine.send(fetch("t", wait_ms=3_600_000), 12)))
        thread.start()
        wait_until(lambda: len(engine.engine.purgatory), "the fetch is parked")
        engine.advance(3_600_000)
        thread.join(30)
        assert len(responses) == 1


async def test_due_timers_are_fired_in_several_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time limit, the driver fires the remaining due timers in a later turn of the loop.

    Otherwise, for example, the timeouts of 200 transactions with 10,000 partitions would block the loop for 1.2 s.
    """
    monkeypatch.setattr("kcore.drivers.event_loop.MAX_TIMERS_S", 0.0)  # each timer exceeds this limit
    engine, _ = faulty_engine(ManualClock())
    loop = asyncio.get_running_loop()
    driver = AsyncDriver(engine, loop)
    driver.start()
    events: list[Any] = []

    def fire(number: int) -> None:
        events.append(number)
        loop.call_soon(events.append, "turn")

    for number in range(3):
        engine.wheel.add(engine.now.now_ms, partial(fire, number))
    driver._fire_timers()
    while engine.next_deadline_ms() == engine.now.now_ms or len(events) < 6:
        await asyncio.sleep(0)
    assert events == [0, "turn", 1, "turn", 2, "turn"]
    driver.close()
    engine.close()
