"""Members whose start or end is interrupted or cancelled do not stay in their group."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

import kcore
from kcore.node._sync.backend import Event
from tests.kit import wait_until
from tests.node.conftest import SETTINGS

KINDS: dict[str, Callable[[kcore.Node], AbstractContextManager[Any]]] = {
    "consumer": lambda node: node.group("g").join(["t"]),
    "classic": lambda node: node.group("g").join(["t"], protocol="classic"),
    "consume": lambda node: node.group("g").consume(["t"]),
    "queue": lambda node: node.queue("t", group="g"),
}


def interrupt_next_start(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, started: bool) -> None:
    """Makes the next `Thread.start` raise an exception, either instead of starting the thread or after it."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        if started:
            start(thread)
        raise error

    monkeypatch.setattr(threading.Thread, "start", interrupted)


def members(node: kcore.Node) -> int:
    return sum(len(node.group("g").describe().members) for listed in node.groups.list() if listed.group_id == "g")


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(9)  # less than a close may wait for a thread that never runs
def test_a_member_whose_start_is_interrupted_leaves(monkeypatch: pytest.MonkeyPatch, kind: str, started: bool) -> None:
    """Simulates Ctrl-C before or after the thread of the member starts, for example in a notebook."""
    with kcore.open(config=SETTINGS) as node:
        node.topics.create("t", 1)
        entered = KINDS[kind](node)
        interrupt_next_start(monkeypatch, KeyboardInterrupt(), started=started)
        with pytest.raises(KeyboardInterrupt):
            entered.__enter__()
        assert members(node) == 0
        assert not node._calls.resources


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.timeout(20)
def test_a_producer_whose_start_is_interrupted_has_one_send_loop(
    monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """Two loops would send batches of one partition at the same time, which the broker may then store in any order."""

    def send_loops() -> int:
        return sum(thread.name == "kcore-send_loop" for thread in threading.enumerate())

    with kcore.open(config=SETTINGS) as node:
        topic = node.topics.create("t", 1)
        with node.producer() as producer:
            interrupt_next_start(monkeypatch, KeyboardInterrupt(), started=started)
            with pytest.raises(KeyboardInterrupt):
                producer.append("t", "interrupted")
            producer.append("t", "second")
            producer.flush()
            wait_until(lambda: send_loops() == 1, "one loop is left", 10)
        assert topic.read(0, 0)[-1].value == b"second"


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


class Interrupt:
    """A trace function that raises a KeyboardInterrupt at bytecode instruction number `at` of the traced function."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in ("opcode", "return"):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("call", [Event.set, lambda event: event.wait(0)], ids=["set", "wait"])
def test_an_interrupt_at_any_step_leaves_an_event_usable(call: Callable[[Event], Any]) -> None:
    """An interrupt at any bytecode instruction of a call leaves the `Event` usable for other threads. If the call kept
    a lock, the close of members and producers would wait forever.
    """
    at = 1
    while True:
        event, interrupt, previous = Event(), Interrupt(at), sys.gettrace()
        sys.settrace(interrupt)
        try:
            call(event)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(previous)
        thread = threading.Thread(target=lambda event=event: (event.wait(0), event.set(), event.clear()), daemon=True)
        thread.start()
        thread.join(30)
        assert not thread.is_alive(), f"interrupted at step {at}"
        if interrupt.left > 0:
            break
        at += 1


def test_a_set_wakes_threads_that_wait_without_a_time_limit() -> None:
    event = Event()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(event.wait()), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(event._waiting) == 4, "all threads wait")
    event.set()
    event.clear()
    for thread in threads:
        thread.join(30)
    assert woken == [True] * 4
    assert event._waiting == []
    assert event.wait(0) is False


@pytest.mark.parametrize("connected", [True, False])
def test_an_interrupt_that_keeps_the_lock_of_a_future_does_not_block_the_event_loop(connected: bool) -> None:
    """Simulates Ctrl-C between the acquisition of the lock and its `with` block."""

    def interrupt(frame: Any, event: str, argument: Any) -> Any:
        caller = frame.f_back.f_code.co_name if frame.f_back is not None else ""
        if event == "return" and frame.f_code.co_name == "__enter__" and caller == "result":
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    with kcore.open(config=SETTINGS) as node:
        listening = node.listen()
        called = kcore.connect(listening.bootstrap) if connected else node
        previous = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                called.topics.list()
        finally:
            sys.settrace(previous)
        names: list[list[str]] = []
        thread = threading.Thread(target=lambda: names.append([t.name for t in called.topics.list()]), daemon=True)
        thread.start()
        thread.join(30)
        assert names == [[]]
        if connected:
            called.close()
