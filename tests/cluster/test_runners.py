"""Runners of calls to the store: the caller gets the result, or a LogError for every failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kcore.broker.cluster.membership import run_inline
from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.log import LogError, MemoryLogEngine
from kcore.metrics import Histogram
from kcore.server.cluster_node import ThreadRunner

Call = Callable[[], Any]


def inline(call: Call) -> Any:
    results: list[Any] = []
    run_inline(call, results.append)
    (result,) = results
    return result


def on_thread(call: Call, executor: ThreadPoolExecutor | None = None) -> Any:
    async def run() -> Any:
        loop = asyncio.get_running_loop()
        if executor is not None:
            loop.set_default_executor(executor)
        engine = Engine(MemoryLogEngine(), Config.of({}), SystemClock())
        driver = AsyncDriver(engine, loop)
        times, done = Histogram(), loop.create_future()
        ThreadRunner(driver, times)(call, done.set_result)
        try:
            result = await asyncio.wait_for(done, 30)
            assert times.count == (0 if executor is not None else 1)
            return result
        finally:
            driver.close()
            engine.close()

    return asyncio.run(run())


@pytest.mark.parametrize("run", [inline, on_thread])
def test_the_caller_gets_the_result_or_a_log_error(run: Callable[[Call], Any]) -> None:
    def refuse() -> None:
        raise LogError("the store is down")

    def fail() -> None:
        raise ValueError("a bug")

    assert run(lambda: 5) == 5
    assert str(run(refuse)) == "the store is down"
    error = run(fail)
    assert isinstance(error, LogError)
    assert str(error) == "unexpected: a bug"


def test_a_call_for_which_no_thread_can_be_started_fails() -> None:
    """The call returns a LogError. Without a result, the membership would consider the call unfinished forever."""
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    error = on_thread(lambda: 5, executor)
    assert isinstance(error, LogError)
    assert "cannot schedule new futures" in str(error)
