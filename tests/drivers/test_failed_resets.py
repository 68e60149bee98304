"""A commit fails, and a component cannot be reset to the contents of the log. The engine then refuses every call: the
driver notifies its owner once, and no request waits forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kcore.drivers.event_loop import AsyncDriver
from kcore.drivers.threads import ThreadDriver
from kcore.errors import EngineInterruptedError
from kcore.log import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from kcore.runtime.commit import CommitPipeline
from kcore.runtime.shard import Shard
from tests.drivers.test_background_commits import LONG_S, Node, offsets
from tests.drivers.test_event_loop_and_threads import Threaded, faulty_engine
from tests.kit import commit, create, join, wait_until


class Unresettable:
    """A participant whose records cannot be staged, and which then cannot be reset."""

    allows_background_commit = True

    def seal(self) -> None:
        raise LogError("the test refuses these records")

    def failed(self, error: LogError) -> None:
        raise MemoryError


class Observed:
    """A node with a parked request, the notifications of its driver, and the errors of callbacks of the loop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.notifications: list[str] = []
        self.errors: list[Any] = []

    async def begin(self) -> None:
        await self.node.begin()
        self.node.driver.when_broken(lambda: self.notifications.append("first"))
        self.node.driver.when_broken(lambda: self.notifications.append("second"))
        self.node.driver.loop.set_exception_handler(lambda _, what: self.errors.append(what))
        self.parked = self.node.send(join("members", "", session_ms=60_000), 3)
        await self.node.serve()
        assert not self.parked.done()

    async def check_broken(self) -> None:
        """Checks that the driver is broken at the latest in the next turn of the loop, and closes the node."""
        await asyncio.sleep(0)
        assert sorted(self.notifications) == ["first", "second"]
        with pytest.raises(EngineInterruptedError):
            await asyncio.wait_for(self.parked, LONG_S)
        for request in (commit("g", {("t", 0): 6}), offsets("g")):
            with pytest.raises(EngineInterruptedError):
                self.node.send(request, 9)
        await asyncio.wait_for(self.node.driver.wait_for_rounds(), LONG_S)
        await asyncio.wait_for(self.node.driver.finish_rounds(), LONG_S)
        self.node.close()
        assert len(self.notifications) == 2
        assert self.errors == []


@pytest.fixture
def no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(shard: Shard[Any], error: LogError) -> None:
        raise MemoryError

    monkeypatch.setattr(Shard, "failed", failed)


async def failed_code(response: asyncio.Future[Any]) -> int:
    topics = (await asyncio.wait_for(response, LONG_S)).topics
    return int(topics[0].partitions[0].error_code)


@pytest.mark.usefixtures("no_reset")
async def test_after_an_inline_commit() -> None:
    observed = Observed(Node())
    await observed.begin()
    observed.node.driver._threads.usable = False
    observed.node.log.fails = True
    assert await failed_code(observed.node.send(commit("g", {("t", 0): 5}), 9)) == ErrorCode.NOT_COORDINATOR
    await observed.check_broken()


@pytest.mark.usefixtures("no_reset")
async def test_after_a_background_commit() -> None:
    observed = Observed(Node())
    await observed.begin()
    first = await observed.node.write_in_background(commit("g", {("t", 0): 5}), 9)
    second = observed.node.send(commit("g", {("t", 0): 6}), 9)
    observed.node.log.fails = True
    observed.node.let_through()
    assert await failed_code(first) == await failed_code(second) == ErrorCode.NOT_COORDINATOR
    await observed.check_broken()


async def test_after_a_background_commit_that_an_inline_commit_finished() -> None:
    """A request commits inline, which finishes the background commit first. Then the inline commit fails."""
    observed = Observed(Node())
    await observed.begin()
    first = await observed.node.write_in_background(commit("g", {("t", 0): 5}), 9)
    observed.node.driver.begin_round()
    observed.node.engine.pipeline.enlist(Unresettable())
    threading.Timer(0.01, observed.node.let_through).start()
    assert not observed.node.engine.commit()
    assert await failed_code(first) == 0
    await asyncio.sleep(0)  # the loop handles the end of the background commit
    await observed.check_broken()


@pytest.mark.parametrize("request_in_pause", [False, True])
async def test_after_a_commit_on_a_shared_loop(monkeypatch: pytest.MonkeyPatch, request_in_pause: bool) -> None:
    """While a new topic is being written, the driver pauses. Requests that wait for the end of the pause fail."""
    monkeypatch.setattr(CommitPipeline, "_restore", lambda *_: False)
    observed = Observed(Node(shared=True))
    await observed.begin()
    node = observed.node
    response = await node.write_in_background(create("u"), 7)
    assert node.driver.paused
    waiting = [node.send(offsets("g"), 9)] if request_in_pause else []
    node.log.fails = True
    node.let_through()
    assert (await asyncio.wait_for(response, LONG_S)).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    await asyncio.sleep(0)
    for future in waiting:
        with pytest.raises(EngineInterruptedError):
            await asyncio.wait_for(future, LONG_S)
    assert not node.driver.paused
    await observed.check_broken()


def in_a_timer(node: Node) -> None:
    def payload() -> None:
        node.engine.pipeline.enlist(Unresettable())
        node.engine.commit()

    node.engine.wheel.add(0, payload)
    node.driver._fire_timers()


def in_a_slice(node: Node) -> None:
    def work() -> Iterator[None]:
        node.engine.pipeline.enlist(Unresettable())
        node.engine.commit()
        yield

    node.engine.slices.add(work())
    node.driver._slice()


def in_a_request_of_a_connection(node: Node) -> None:
    node.driver.begin_round()
    node.engine.pipeline.enlist(Unresettable())
    node.engine.commit()


def with_an_exception_in_the_reset(node: Node) -> None:
    """The reset raises a `BaseException`, which a later handler discards."""
    participant = Unresettable()
    participant.failed = _interrupted  # type: ignore[method-assign]
    node.driver.begin_round()
    node.engine.pipeline.enlist(participant)
    with pytest.raises(KeyboardInterrupt):
        node.engine.commit()


def _interrupted(error: LogError) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", [in_a_timer, in_a_slice, in_a_request_of_a_connection, with_an_exception_in_the_reset])
async def test_after_a_commit_of_another_component(how: Callable[[Node], None]) -> None:
    observed = Observed(Node())
    await observed.begin()
    how(observed.node)
    await observed.check_broken()


async def test_while_a_server_waits_for_the_last_round() -> None:
    observed = Observed(Node())
    await observed.begin()
    observed.node.engine.pipeline.enlist(Unresettable())
    await observed.node.driver.wait_for_rounds()
    assert sorted(observed.notifications) == ["first", "second"]
    await observed.check_broken()


async def test_while_the_driver_is_closed() -> None:
    observed = Observed(Node())
    await observed.begin()
    observed.node.engine.pipeline.enlist(Unresettable())
    observed.node.close()
    assert sorted(observed.notifications) == ["first", "second"]
    with pytest.raises(EngineInterruptedError):
        await observed.parked


@pytest.mark.usefixtures("no_reset")
def test_with_threads() -> None:
    """The call whose commit failed gets Kafka's error. The parked call and all later calls fail."""
    engine, log = faulty_engine()
    driver = ThreadDriver(engine)
    target = Threaded(driver)
    target.send(create("t"))
    target.send(join("members", "", session_ms=60_000), 3)
    raised: list[BaseException] = []

    def parked() -> None:
        try:
            target.send(join("members", "", session_ms=60_000), 3)
        except EngineInterruptedError as error:
            raised.append(error)

    thread = threading.Thread(target=parked)
    thread.start()
    wait_until(lambda: bool(driver._sleepers), "the second join to be parked")
    log.fail_commit(1)
    refused = target.send(commit("g", {("t", 0): 5}), 9)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    thread.join(LONG_S)
    assert len(raised) == 1
    for request, version in ((ApiVersionsRequest(), 2), (offsets("g"), 9), (commit("g", {("t", 0): 5}), 9)):
        with pytest.raises(EngineInterruptedError):
            target.send(request, version)
    driver.close()


def test_a_driver_has_no_owner_to_notify() -> None:
    """Without callbacks of `when_broken`, the driver still refuses calls."""
    engine, _ = faulty_engine()
    loop = asyncio.new_event_loop()
    driver = AsyncDriver(engine, loop)
    engine.pipeline.enlist(Unresettable())
    loop.run_until_complete(driver.wait_for_rounds())
    with pytest.raises(EngineInterruptedError):
        driver.advance(1)
    driver.close()
    engine.close()
    loop.close()
