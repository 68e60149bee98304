"""A forked child refuses calls of the parent's engine at once, even if the parent was executing a call at the fork."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

import kcore
from kcore.clock import SystemClock
from kcore.config.node import Config
from kcore.drivers.event_loop import AsyncDriver
from kcore.engine import Engine
from kcore.errors import EngineClosedError
from kcore.log import LogClosedError, MemoryLogEngine
from kcore.runtime import RequestContext
from kcore.runtime.commit import BackgroundCommit
from tests.kit import QUICK, commit, committed, make_topic

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "1", "kcore.durability": "memory"}
HANG_S = 30


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except EngineClosedError as error:
        return f"{type(error).__name__}: {error}"
    return "served"


def reason(process_id: int) -> str:
    return f"EngineClosedError: the engine was opened by the parent of process {process_id}: open it after the fork"


def in_child(report: Callable[[], list[str]]) -> tuple[int, list[str]]:
    """Returns the process id of the child and its report. A child that hangs is killed and reports nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, "|".join(report()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    if not select.select([reading], [], [], HANG_S)[0]:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        reported = pipe.read()
    os.waitpid(child, 0)
    return child, reported.split("|")


def test_a_child_forked_while_another_thread_is_inside_refuses_every_call() -> None:
    with kcore.open(config=SETTINGS) as engine:
        make_topic(engine, "t")
        inside, go_on = threading.Event(), threading.Event()
        log = engine.engine.log
        assert isinstance(log, MemoryLogEngine)
        write = log.storage.write

        class SlowStorage:
            def write(self, write_set: Any) -> None:
                inside.set()
                go_on.wait(HANG_S)
                write(write_set)

            def __getattr__(self, name: str) -> Any:
                return getattr(log.storage, name)

        log._storage = SlowStorage()  # type: ignore[assignment]
        writer = threading.Thread(target=lambda: engine.send(commit("g", {("t", 0): 7}), 9))
        writer.start()
        assert inside.wait(HANG_S)

        def report() -> list[str]:
            request = commit("h", {("t", 0): 1})
            found = [refusal(lambda: engine.send(request, 9)), refusal(lambda: engine.start(request, 9))]
            engine.close()
            return [*found, refusal(lambda: engine.send(request, 9))]

        child, reported = in_child(report)
        go_on.set()
        writer.join(HANG_S)
        assert reported == [reason(child)] * 3
        assert committed(engine, "g") == {("t", 0): 7}
        assert committed(engine, "h") == {}


def test_a_child_forked_from_inside_leaves_the_engine_and_refuses_later_calls() -> None:
    with kcore.open(config=SETTINGS) as engine:
        make_topic(engine, "t")
        submit = engine.engine.submit
        reading, writing = os.pipe()
        processes: list[int] = []

        def fork_first(*arguments: Any) -> Any:
            processes.append(os.fork())
            return submit(*arguments)

        engine.engine.submit = fork_first  # type: ignore[method-assign]
        response, failure = None, ""
        try:
            response = engine.send(commit("g", {("t", 0): 3}), 9)
        except LogClosedError as error:
            failure = str(error)
        engine.engine.submit = submit  # type: ignore[method-assign]
        if processes == [0]:
            try:
                later = [refusal(lambda: engine.send(commit("g", {("t", 0): 4}), 9)) for _ in range(2)]
                os.write(writing, "|".join([failure, *later]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        (child,) = processes
        with os.fdopen(reading) as pipe:
            reported = pipe.read().split("|")
        os.waitpid(child, 0)
        log_error = f"the log engine was opened by the parent of process {child}: open it after the fork"
        assert reported == [log_error, reason(child), reason(child)]
        assert response is not None
        assert response.topics[0].partitions[0].error_code == 0
        assert committed(engine, "g") == {("t", 0): 3}


def test_a_child_of_an_event_loop_refuses_calls_and_closes_without_waiting() -> None:
    log = MemoryLogEngine()
    engine = Engine(log, Config.of(SETTINGS), SystemClock())
    loop = asyncio.new_event_loop()
    driver = AsyncDriver(engine, loop)
    # Another thread is writing a round, which no thread of the child can finish.
    gate = threading.Lock()
    engine.pipeline._background_commit = BackgroundCommit(gate, log)

    def report() -> list[str]:
        found = refusal(lambda: driver.submit(RequestContext(9, "client"), commit("g", {("t", 0): 1})))
        driver.close()
        engine.close()
        engine.abandon()
        return [found]

    child, reported = in_child(report)
    engine.pipeline._background_commit = None
    gate.release()
    driver.close()
    engine.close()
    loop.close()
    assert reported == [reason(child)]


def test_a_child_refuses_a_node_that_listens() -> None:
    """A node listens in the parent. In the child, requests to this node fail at once.

    The child lacks the thread of the node's event loop, so a call that waited for this thread would hang.
    """
    with kcore.open(config=SETTINGS) as engine:
        make_topic(engine, "t")
        listening = engine.listen("127.0.0.1:0")

        def report() -> list[str]:
            found = [refusal(lambda: engine.send(commit("g", {("t", 0): 1}), 9)), refusal(listening.close)]
            engine.close()
            return [*found, refusal(lambda: engine.send(commit("g", {("t", 0): 1}), 9))]

        child, reported = in_child(report)
        assert reported == [reason(child), "served", reason(child)]
        engine.send(commit("g", {("t", 0): 7}), 9)
        assert committed(engine, "g") == {("t", 0): 7}
