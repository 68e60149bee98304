"""Members whose start or end is interrupted or cancelled do not stay in their group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import kcore
from tests.kit import wait_until
from tests.node.conftest import SETTINGS

KINDS: dict[str, Callable[[kcore.Node], AbstractContextManager[Any]]] = {
    "consumer": lambda node: node.group("g").join(["t"]),
    "classic": lambda node: node.group("g").join(["t"], protocol="classic"),
    "consume": lambda node: node.group("g").consume(["t"]),
    "queue": lambda node: node.queue("t", group="g"),
}


def interrupt_next_start(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, started: bool) -> None:
    """Makes the next start of a thread raise an exception, after or before the thread begins."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        if started:
            start(thread)
        raise error

    monkeypatch.setattr(threading.Thread, "start", interrupted)


def members(node: kcore.Node) -> int:
    return sum(len(node.group("g").describe().members) for listed in node.groups.list() if listed.group_id == "g")


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_whose_start_is_interrupted_leaves(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Simulates Ctrl-C while the thread of the member starts, for example in a notebook."""
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        entered = KINDS[kind](node)
        interrupt_next_start(monkeypatch, KeyboardInterrupt(), started=True)
        with pytest.raises(KeyboardInterrupt):
            entered.__enter__()
        assert members(node) == 0
        assert not node._calls.resources


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(20)
def test_a_member_without_a_thread_is_closed_at_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        entered = KINDS[kind](node)
        interrupt_next_start(monkeypatch, RuntimeError("can't start new thread"), started=False)
        with pytest.raises(RuntimeError):
            entered.__enter__()
        assert members(node) == 0


def test_a_worker_without_a_thread_for_its_end_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        worker = node.queue("t", group="g")
        worker.get(0)
        wait_until(lambda: members(node), "the worker has joined", 10)
        interrupt_next_start(monkeypatch, RuntimeError("can't start new thread"), started=False)
        worker.close()
        assert members(node) == 0


@pytest.mark.parametrize("turns", range(4))
async def test_a_worker_whose_close_is_cancelled_leaves(turns: int) -> None:
    async with await kcore.open_async(config=SETTINGS) as node:
        await node.topics.create("t", 1)
        await node.group("g").set_config({"share.auto.offset.reset": "earliest"})
        await node.topics["t"].append("job")
        worker = node.queue("t", group="g")
        assert await worker.get(10.0) is not None
        closing = asyncio.ensure_future(worker.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        if turns:  # else the close has not begun
            async with asyncio.timeout(10):
                while (await node.group("g").describe()).members:
                    await asyncio.sleep(0)
