"""The incarnations of a node: the objects attached to an incarnation, and the end of the last incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kcore.config.node import Config
from kcore.server import cluster_member
from kcore.server.cluster_member import ClusterMember

pytestmark = pytest.mark.timeout(30)


class FakeNode:
    """An incarnation that records its calls. `start` fails in some of the incarnations."""

    made: list[FakeNode]
    calls: list[str]
    fails: dict[int, BaseException]

    def __init__(self, open_store: object, config: object) -> None:
        self.number = len(self.made) + 1
        self.made.append(self)
        self.ended = asyncio.Event()
        self.engine = SimpleNamespace(pipeline=SimpleNamespace(interrupted=False))

    def _call(self, name: str) -> None:
        self.calls.append(f"{name} {self.number}")

    async def start(self) -> None:
        self._call("start")
        if self.number in self.fails:
            raise self.fails[self.number]

    async def stop(self, *, hand_over: bool = True) -> None:
        self._call(f"stop hand_over={hand_over}")

    async def abort(self) -> None:
        self._call("abort")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeNode]:
    class Fresh(FakeNode):
        made: list[FakeNode] = []  # noqa: RUF012  # one list for each test
        calls: list[str] = []  # noqa: RUF012
        fails: dict[int, BaseException] = {}  # noqa: RUF012

    monkeypatch.setattr(cluster_member, "ClusterNode", Fresh)
    monkeypatch.setattr(cluster_member, "RESTART_S", 0)
    return Fresh


def member(fake: type[FakeNode], **more: Any) -> ClusterMember:
    async def attach(node: Any) -> Callable[[], Awaitable[None]]:
        node._call("attach")

        async def detach() -> None:
            node._call("detach")

        return detach

    return ClusterMember(lambda: None, Config(), attach=attach, **more)  # type: ignore[arg-type, return-value]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [OSError("the port is taken"), RuntimeError("no thread can start"), MemoryError()])
def test_an_ended_incarnation_is_followed_by_the_next_one_that_starts(fake: type[FakeNode], error: Exception) -> None:
    async def run() -> None:
        node = member(fake)
        fake.fails[2] = error
        await node.start()
        fake.made[0].ended.set()
        await until(lambda: "attach 3" in fake.calls)
        await node.stop()

    asyncio.run(run())
    assert fake.calls == [
        *("start 1", "attach 1", "detach 1", "abort 1"),
        *("start 2", "stop hand_over=False 2"),
        *("start 3", "attach 3", "detach 3", "stop hand_over=True 3"),
    ]


@pytest.mark.parametrize("part", ["detach 1", "abort 1"])
def test_an_incarnation_that_fails_to_end_is_followed_by_the_next_one(
    fake: type[FakeNode], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An incarnation raises MemoryError while it ends. The next incarnation starts nevertheless.

    Otherwise no node would run, and no log line would say so, because the program does not watch the node's task.
    """
    call = fake._call

    def fail(node: FakeNode, name: str) -> None:
        call(node, name)
        if f"{name} {node.number}" == part:
            raise MemoryError

    async def run() -> None:
        node = member(fake)
        await node.start()
        fake.made[0].ended.set()
        await until(lambda: "attach 2" in fake.calls or node.ended.done())
        assert not node.ended.done()
        await node.stop()

    fake._call = fail  # type: ignore[method-assign, assignment]
    asyncio.run(run())
    assert fake.calls[:6] == ["start 1", "attach 1", "detach 1", "abort 1", "start 2", "attach 2"]
    assert "kcore could not stop" in caplog.text


def test_a_first_start_that_fails_ends_the_node(fake: type[FakeNode]) -> None:
    async def run() -> None:
        fake.fails[1] = OSError("the port is taken")
        with pytest.raises(OSError, match="taken"):
            await member(fake).start()

    asyncio.run(run())
    assert fake.calls == ["start 1", "stop hand_over=False 1"]


@pytest.mark.parametrize("survives", [True, False])
def test_an_interrupted_engine_is_the_last_one_for_a_server(fake: type[FakeNode], survives: bool) -> None:
    async def run() -> None:
        node = member(fake, survives_interrupts=survives)
        await node.start()
        fake.made[0].engine.pipeline.interrupted = True
        fake.made[0].ended.set()
        await until(lambda: "attach 2" in fake.calls or node.ended.done())
        assert node.ended.done() is not survives
        node.ended.cancel()

    asyncio.run(run())
    assert fake.calls == [
        *("start 1", "attach 1", "detach 1", "abort 1"),
        *(("start 2", "attach 2") if survives else ()),
    ]


def test_an_unexpected_exception_ends_the_member(fake: type[FakeNode]) -> None:
    async def run() -> None:
        node = member(fake)
        fake.fails[2] = ZeroDivisionError()
        await node.start()
        fake.made[0].ended.set()
        await until(node.ended.done)
        with pytest.raises(ZeroDivisionError):
            node.ended.result()

    asyncio.run(run())
    assert fake.calls[-1] == "stop hand_over=False 2"
