"""The driver, which runs the engine on an event loop, runs out of memory at one of its steps. No round stays open, and
no request waits forever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kcore.drivers import event_loop, log_threads
from kcore.errors import EngineInterruptedError, ReentrantCallError
from kcore.log import LogError
from tests.drivers.test_background_commits import LONG_S, Node
from tests.kit import commit, create


class FailsOnce:
    """A function whose first calls raise an exception and whose later calls succeed."""

    def __init__(self, function: Any, error: BaseException, times: int = 1) -> None:
        self.function = function
        self.error = error
        self.times = times

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.times:
            self.times -= 1
            raise self.error
        return self.function(*arguments, **named)


async def codes(node: Node, *groups: str) -> list[int]:
    """Commits an offset in each group. Returns the error codes."""
    responses = await asyncio.wait_for(
        asyncio.gather(*(node.send(commit(group, {("t", 0): 5}), 9) for group in groups)), LONG_S
    )
    return [response.topics[0].partitions[0].error_code for response in responses]


async def test_a_round_whose_end_cannot_be_scheduled_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    await node.begin()
    await asyncio.sleep(0)
    schedule = FailsOnce(node.driver.loop.call_soon, MemoryError())
    monkeypatch.setattr(node.driver.loop, "call_soon", schedule)
    with pytest.raises(MemoryError):
        node.driver.begin_round()
    assert schedule.times == 0
    assert await codes(node, "g", "h") == [0, 0]
    node.close()


async def test_a_commit_that_finds_no_memory_before_it_takes_the_round_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    pipeline = node.engine.pipeline
    monkeypatch.setattr(type(pipeline), "commit", FailsOnce(pipeline.commit, MemoryError()))
    raised: list[dict[str, Any]] = []
    node.driver.loop.set_exception_handler(lambda _, context: raised.append(context))
    node.driver._threads.usable = False
    assert await codes(node, "g") == [0]
    assert [type(context["exception"]) for context in raised] == [MemoryError]
    node.close()


async def test_a_round_that_cannot_be_passed_to_the_thread_is_committed_inline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    await node.serve()
    assert await codes(node, "f") == [0]
    writer = node.driver._threads._writer
    assert writer is not None, "the round before was written on the thread"
    put = FailsOnce(writer.do, MemoryError())
    monkeypatch.setattr(writer, "do", put)
    await node.serve()
    assert await codes(node, "g") == [0]
    assert put.times == 0
    await node.serve()
    assert await codes(node, "h") == [0]
    node.close()


def no_memory_for_ends(node: Node, monkeypatch: pytest.MonkeyPatch, times: int) -> list[dict[str, Any]]:
    """Makes the loop refuse to schedule ends of rounds for some attempts. Returns the later errors of its callbacks."""
    raised: list[dict[str, Any]] = []
    node.driver.loop.set_exception_handler(lambda _, context: raised.append(context))
    schedule = node.driver.loop.call_soon
    refuse = FailsOnce(schedule, MemoryError(), times)

    def call_soon(callback: Any, *arguments: Any, **named: Any) -> Any:
        function = refuse if callback == node.driver._end_round else schedule
        return function(callback, *arguments, **named)

    monkeypatch.setattr(node.driver.loop, "call_soon", call_soon)
    return raised


async def test_a_round_whose_end_finds_no_memory_ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver cannot decide whether the round stays open, and cannot schedule another attempt. Before, the requests
    waited for ever unless another request or a timer followed.
    """
    node = Node(shared=True)
    await node.begin()
    await asyncio.sleep(0)
    decide = FailsOnce(node.driver._reason_to_stay_open, MemoryError(), 3)
    monkeypatch.setattr(node.driver, "_reason_to_stay_open", decide)
    futures = [node.send(commit(group, {("t", 0): 5}), 9) for group in ("g", "h")]
    raised = no_memory_for_ends(node, monkeypatch, 3)
    responses = await asyncio.wait_for(asyncio.gather(*futures), LONG_S)
    assert [response.topics[0].partitions[0].error_code for response in responses] == [0, 0]
    assert [type(context["exception"]) for context in raised] == [MemoryError] * 3
    assert await codes(node, "i") == [0]
    node.close()


async def test_a_background_commit_whose_end_finds_no_memory_is_finished_later(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    await node.begin()
    future = await node.write_in_background(commit("g", {("t", 0): 5}), 9)
    raised = no_memory_for_ends(node, monkeypatch, 2)
    pipeline = node.engine.pipeline
    monkeypatch.setattr(type(pipeline), "finish_background", FailsOnce(pipeline.finish_background, MemoryError(), 2))
    node.let_through()
    response = await asyncio.wait_for(future, LONG_S)
    assert response.topics[0].partitions[0].error_code == 0
    assert [type(context["exception"]) for context in raised] == [MemoryError] * 2
    node.close()


@pytest.mark.parametrize("has_thread", [True, False])
async def test_an_exclusive_commit_whose_end_finds_no_memory_is_finished_later(
    monkeypatch: pytest.MonkeyPatch, has_thread: bool
) -> None:
    """All other requests wait for the commit of a new topic. Before, they waited for ever."""
    node = Node(shared=True)
    await node.begin()
    raised: list[dict[str, Any]] = []
    node.driver.loop.set_exception_handler(lambda _, context: raised.append(context))
    writer = node.driver._threads._writer
    assert writer is not None, "the topic of `begin` was written on the thread"
    if not has_thread:
        monkeypatch.setattr(writer, "do", FailsOnce(writer.do, MemoryError()))
    pipeline = node.engine.pipeline
    monkeypatch.setattr(type(pipeline), "finish_background", FailsOnce(pipeline.finish_background, MemoryError()))
    created = node.send(create("u"))
    assert await codes(node, "g") == [0]
    assert [topic.error_code for topic in (await created).topics] == [0]
    assert [type(context["exception"]) for context in raised] == [MemoryError]
    node.close()


async def test_a_commit_that_no_thread_can_write_is_written_before_its_log_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the log line finds no memory, too, the commit is complete. Before, all later rounds waited for it."""
    node = Node()
    await node.begin()
    await node.serve()
    assert await codes(node, "f") == [0]
    writer = node.driver._threads._writer
    assert writer is not None, "the round before was written on the thread"
    put = FailsOnce(writer.do, MemoryError())
    monkeypatch.setattr(writer, "do", put)
    line = FailsOnce(None, MemoryError())
    monkeypatch.setattr(event_loop, "log_failure", line)
    monkeypatch.setattr(log_threads, "log_failure", line)
    node.driver.loop.set_exception_handler(lambda *_: None)
    await node.serve()
    assert await codes(node, "g") == [0]
    assert (put.times, line.times) == (0, 0)
    assert await codes(node, "h", "i") == [0, 0]
    node.close()


async def test_waiting_requests_of_a_broken_engine_fail_when_memory_is_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    node.driver._threads.usable = False
    futures = [node.send(commit("g", {("t", 0): 5}), 9)]
    node.engine.pipeline.abort_round(LogError("the test fails this round"))
    log, waiting = node.engine.log, node.driver._waiting
    monkeypatch.setattr(log, "rollback", FailsOnce(log.rollback, MemoryError()), raising=False)
    monkeypatch.setattr(type(waiting), "fail", FailsOnce(waiting.fail, MemoryError(), 2))
    no_memory_for_ends(node, monkeypatch, 2)
    with pytest.raises(EngineInterruptedError, match="open it again"):
        await asyncio.wait_for(asyncio.gather(*futures), LONG_S)
    node.close()


async def test_a_slice_and_timers_that_raise_are_followed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    await node.begin()
    raised: list[dict[str, Any]] = []
    node.driver.loop.set_exception_handler(lambda _, context: raised.append(context))
    steps: list[int] = []

    def work() -> Any:
        for number in range(3):
            steps.append(number)
            yield

    node.engine.slices.add(work())
    monkeypatch.setattr(node.engine, "now", _ClockFailsOnce(node.engine.now))
    with pytest.raises(MemoryError):
        node.driver._slice()
    for _ in range(50):
        await asyncio.sleep(0)
    assert steps == [0, 1, 2]
    monkeypatch.setattr(node.engine, "fire_timers", FailsOnce(node.engine.fire_timers, MemoryError()))
    with pytest.raises(MemoryError):
        node.driver._timers.ring()
    await asyncio.sleep(0)
    assert node.driver._alarm._timer is not None, "the driver still waits for the next deadline"
    assert await codes(node, "g") == [0]
    node.close()


class _ClockFailsOnce:
    """A clock whose next update raises an exception."""

    def __init__(self, now: Any) -> None:
        self._now = now
        self._left = 1

    def update(self) -> int:
        if self._left:
            self._left -= 1
            raise MemoryError
        return int(self._now.update())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)


async def test_a_round_that_cannot_be_resolved_breaks_the_engine_and_notifies_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.begin()
    node.driver._threads.usable = False
    node.driver.loop.set_exception_handler(lambda *_: None)
    notifications: list[str] = []
    node.driver.when_broken(lambda: notifications.append("broken"))
    log = node.engine.log
    node.engine.pipeline.abort_round(LogError("the test fails this round"))
    monkeypatch.setattr(log, "rollback", FailsOnce(log.rollback, MemoryError()), raising=False)
    with pytest.raises(EngineInterruptedError, match="open it again"):
        await codes(node, "g")
    assert notifications == ["broken"]
    with pytest.raises(EngineInterruptedError):
        node.send(commit("g", {("t", 0): 6}), 9)
    node.close()


async def test_a_call_from_inside_the_engines_loop_is_refused() -> None:
    node = Node()
    await node.begin()
    raised: list[BaseException] = []

    def at_the_end() -> None:
        for call in (node.driver.close, lambda: node.driver.advance(1), lambda: node.send(commit("h", {("t", 0): 1}))):
            try:
                call()
            except ReentrantCallError as error:
                raised.append(error)

    node.driver.at_end_of_round(at_the_end)
    assert await codes(node, "g") == [0]
    assert len(raised) >= 3
    node.driver._ends.clear()
    node.close()
