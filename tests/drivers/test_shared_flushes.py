"""Threads that call one engine share flushes, and exceptions in any of them leave no other thread waiting."""

from __future__ import annotations

import contextlib
import ctypes
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.drivers import threads as driver_module
from kcore.errors import EngineClosedError, EngineInterruptedError, ReentrantCallError
from tests.faults.test_interrupts import interrupt_at
from tests.kit import QUICK, commit, committed, heartbeat, join, make_topic, wait_until

SETTINGS = {**QUICK, "offsets.topic.num.partitions": "3"}
NONE = 0
NOT_COORDINATOR = 16


class HeldStorage:
    """A storage whose next write blocks until `release` is called. `errors` has the errors of this write and of the
    following writes.
    """

    def __init__(self, engine: kcore.EmbeddedNode) -> None:
        self._log: Any = engine.engine.log
        self._storage = self._log._storage
        self._log._storage = self
        self._hold = True
        self.inside, self._go_on = threading.Event(), threading.Event()
        self.errors: list[BaseException | None] = []
        self.before_write: Callable[[], None] | None = None

    def release(self) -> None:
        self._go_on.set()

    def write(self, write_set: Any) -> None:
        if self._hold:
            self._hold = False
            self.inside.set()
            assert self._go_on.wait(60)
        if self.before_write is not None:
            self.before_write()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self._storage.write(write_set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[kcore.EmbeddedNode]:
    monkeypatch.setattr(driver_module, "FOLLOWER_WAIT_S", 60.0)
    with kcore.open(config=SETTINGS) as opened:
        make_topic(opened, "t")
        yield opened


class Calls:
    """Commits on threads, each for one group. `results` has their error codes or exceptions."""

    def __init__(self, node: kcore.EmbeddedNode) -> None:
        self._node = node
        self.results: dict[str, Any] = {}
        self._threads: list[threading.Thread] = []

    def start(self, group: str, call: Callable[[], Any] | None = None) -> None:
        def run() -> None:
            try:
                if call is not None:
                    self.results[group] = call()
                else:
                    response = self._node.send(commit(group, {("t", 0): 7}), 9)
                    self.results[group] = int(response.topics[0].partitions[0].error_code)
            except Exception as error:
                self.results[group] = type(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> dict[str, Any]:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread waits forever"
        return self.results


def queued(node: kcore.EmbeddedNode, number: int) -> None:
    wait_until(lambda: len(node._driver._queue) == number, f"{number} threads wait for the engine")


def test_the_threads_that_wait_for_a_flush_share_the_next_one(node: kcore.EmbeddedNode) -> None:
    calls, storage, rounds = Calls(node), HeldStorage(node), node.engine.pipeline.rounds
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 16):
        calls.start(f"g{i}")
    queued(node, 15)
    storage.release()
    assert calls.end() == {f"g{i}": NONE for i in range(16)}
    assert node.engine.pipeline.rounds == rounds + 2
    assert [committed(node, f"g{i}") for i in range(16)] == [{("t", 0): 7}] * 16


def test_reading_threads_neither_close_the_round_nor_keep_it_open(node: kcore.EmbeddedNode) -> None:
    calls = Calls(node)
    member = node.send(join("m"), 3)
    beat = heartbeat("m", member.member_id, member.generation_id)
    storage, rounds = HeldStorage(node), node.engine.pipeline.rounds
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 5):
        calls.start(f"g{i}")
        calls.start(f"h{i}", lambda: int(node.send(beat, 3).error_code))
    queued(node, 8)
    storage.release()
    results = calls.end()
    assert {results[f"g{i}"] for i in range(5)} == {NONE}
    assert len({results[f"h{i}"] for i in range(1, 5)}) == 1
    assert node.engine.pipeline.rounds == rounds + 2


def test_a_thread_alone_waits_for_no_other(node: kcore.EmbeddedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "GRACE_S", 60.0)
    rounds = node.engine.pipeline.rounds
    for offset in range(5):
        node.send(commit("g", {("t", 0): offset}), 9)
    assert node.engine.pipeline.rounds == rounds + 5
    assert not node._driver._followers


def test_a_round_does_not_wait_for_threads_that_do_not_return(node: kcore.EmbeddedNode) -> None:
    calls, storage = Calls(node), HeldStorage(node)
    for i in range(4):
        calls.start(f"g{i}")
    assert storage.inside.wait(60)
    queued(node, 3)
    storage.release()
    calls.end()
    assert node._driver._likely > 1
    rounds = node.engine.pipeline.rounds
    node.send(commit("g", {("t", 0): 1}), 9)
    assert node._driver._likely == 1, "the next call commits at once"
    node.send(commit("g", {("t", 0): 2}), 9)
    assert node.engine.pipeline.rounds == rounds + 2
    assert committed(node, "g") == {("t", 0): 2}


def test_a_failed_flush_fails_its_round_and_not_the_next_one(node: kcore.EmbeddedNode) -> None:
    calls, storage = Calls(node), HeldStorage(node)
    storage.errors = [OSError("no device")]
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 4):
        calls.start(f"g{i}")
    queued(node, 3)
    storage.release()
    results = calls.end()
    assert results.pop("g0") != NONE
    assert results == {f"g{i}": NONE for i in range(1, 4)}
    assert [committed(node, f"g{i}") for i in range(4)] == [{}, *[{("t", 0): 7}] * 3]


@pytest.mark.parametrize("error", [MemoryError(), OSError("no device")])
def test_a_failed_shared_flush_gives_each_thread_an_error(node: kcore.EmbeddedNode, error: Exception) -> None:
    calls, storage = Calls(node), HeldStorage(node)
    storage.errors = [None, error]
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 6):
        calls.start(f"g{i}")
    queued(node, 5)
    storage.release()
    results = calls.end()
    assert results.pop("g0") == NONE
    assert [isinstance(result, int) and result != NONE for result in results.values()] == [True] * 5
    assert [committed(node, f"g{i}") for i in range(6)] == [{("t", 0): 7}, *[{}] * 5]
    node.send(commit("g", {("t", 0): 1}), 9)
    assert committed(node, "g") == {("t", 0): 1}


def test_close_commits_the_calls_that_wait_or_refuses_them(node: kcore.EmbeddedNode) -> None:
    calls, storage = Calls(node), HeldStorage(node)
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 9):
        calls.start(f"g{i}")
    queued(node, 8)
    closer = threading.Thread(target=node.close, daemon=True)
    closer.start()
    storage.release()
    closer.join(60)
    assert not closer.is_alive()
    results = calls.end()
    assert results["g0"] == NONE
    assert set(results.values()) <= {NONE, EngineClosedError}
    with pytest.raises(EngineClosedError):
        node.send(commit("g", {("t", 0): 1}), 9)


def test_a_call_from_inside_a_shared_round_is_refused(node: kcore.EmbeddedNode) -> None:
    refused: list[type] = []

    def call() -> None:
        try:
            node.send(commit("g9", {("t", 0): 1}), 9)
        except ReentrantCallError as error:
            refused.append(type(error))

    calls, storage = Calls(node), HeldStorage(node)
    storage.before_write = call
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 4):
        calls.start(f"g{i}")
    queued(node, 3)
    storage.release()
    assert calls.end() == {f"g{i}": NONE for i in range(4)}
    assert refused == [ReentrantCallError] * 2


@pytest.mark.parametrize("point", range(60))
def test_an_interrupt_of_a_waiting_thread_leaves_no_other_waiting(point: int) -> None:
    node = kcore.open(config=SETTINGS)
    make_topic(node, "t")
    calls, storage = Calls(node), HeldStorage(node)
    calls.start("g0")
    assert storage.inside.wait(60)
    for i in range(1, 4):
        calls.start(f"g{i}")
    queued(node, 3)
    returned = threading.Event()

    def release() -> None:
        """Releases the flush once the main thread is the fourth in the queue, or was interrupted before that."""
        wait_until(lambda: len(node._driver._queue) >= 4 or returned.is_set(), "the main thread waits or has returned")
        storage.release()

    releaser = threading.Thread(target=release)
    releaser.start()
    interrupt_at(point, lambda: node.send(commit("main", {("t", 0): 7}), 9))
    returned.set()
    releaser.join()
    results = calls.end()
    # If the interrupt hit the main thread while it wrote the round, the calls of all threads fail.
    assert set(results.values()) <= {NONE, NOT_COORDINATOR, EngineInterruptedError}
    try:
        node.send(commit("g", {("t", 0): 1}), 9)
    except EngineInterruptedError:
        pass  # interrupted inside the engine, which refuses every call from then on
    else:
        assert EngineInterruptedError not in results.values()
        assert {group: committed(node, group) for group in results} == {
            group: {("t", 0): 7} if result == NONE else {} for group, result in results.items()
        }
    node.close()


class Crowd:
    """Threads that commit ascending offsets, each for its own group, while exceptions strike at random moments."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.node = kcore.open(path, config={**SETTINGS, "kcore.durability": "os"})
        make_topic(self.node, "t")
        self.node.send(commit("g", {("t", 0): 1}), 9)  # CPython's locks of imports do not survive such exceptions
        self.sent = [0] * size
        self.acknowledged = [0] * size
        self.reopened = 0
        self._ended = False
        self._threads = [self._thread(i) for i in range(size)]

    def _thread(self, index: int) -> threading.Thread:
        def run() -> None:
            # an exception within an exception handler of `_run` ends it
            with contextlib.suppress(KeyboardInterrupt):
                self._run(index)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _run(self, index: int) -> None:
        while not self._ended:
            try:
                offset = self.sent[index] = self.sent[index] + 1
                response = self.node.send(commit(f"g{index}", {("t", 0): offset}), 9)
                if response.topics[0].partitions[0].error_code == NONE:
                    self.acknowledged[index] = offset
            except (EngineInterruptedError, EngineClosedError):
                time.sleep(0.0005)
            except KeyboardInterrupt:
                continue

    def interrupt(self, randomness: random.Random) -> None:
        index = randomness.randrange(len(self._threads))
        if not self._threads[index].is_alive():  # the exception came in an exception handler of `_run`
            self._threads[index] = self._thread(index)
        ident = ctypes.c_ulong(self._threads[index].ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))
        time.sleep(randomness.random() / 2_000)
        if self.node._driver._inside == driver_module.BROKEN or self.node.engine.pipeline.interrupted:
            self.reopen()

    def reopen(self) -> None:
        self.node.close()
        self.reopened += 1
        node = kcore.open(self._path, config={**SETTINGS, "kcore.durability": "os"})
        self.check(node)
        self.node = node

    def check(self, node: kcore.EmbeddedNode) -> None:
        for i, acknowledged in enumerate(self.acknowledged):
            stored = committed(node, f"g{i}").get(("t", 0), 0)
            assert acknowledged <= stored <= self.sent[i], f"thread {i}"

    def end(self) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread waits forever"
        self.node.close()
        with kcore.open(self._path, config=SETTINGS) as node:
            self.check(node)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("interrupts", "most_s"), [(2_000, 6), (100_000, 240)])
def test_interrupts_of_random_threads_lose_no_acknowledged_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupts: int, most_s: float
) -> None:
    """The moments of the interrupts depend on the machine, so `make test` does not run this test."""
    # An interrupt may also end a thread outside of its calls, or come while the report of another one is written.
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        crowd = Crowd(tmp_path / "data", 6)
        randomness = random.Random(interrupts)
        until_s = time.monotonic() + most_s
        while interrupts and time.monotonic() < until_s:
            crowd.interrupt(randomness)
            interrupts -= 1
        crowd.end()
    finally:
        sys.setswitchinterval(interval_s)
    assert sum(crowd.acknowledged) > 0
