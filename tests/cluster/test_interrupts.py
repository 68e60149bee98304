"""Nodes of a cluster whose start or end is interrupted: they give up their leases, so that the next start need not
wait.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import kcore
from kcore.clock import SystemClock
from kcore.cluster import memory_store
from kcore.cluster.memory_store import MemoryCluster, MemoryClusterStore
from kcore.config.node import Config
from kcore.drivers.loop_calls import start_on_loop
from kcore.server import cluster_member, cluster_node
from kcore.server.cluster_node import ClusterNode
from tests.cluster.test_open import URL, settings
from tests.cluster.world import CLUSTER_ID


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    store = MemoryCluster(CLUSTER_ID, SystemClock().monotonic_ms)
    monkeypatch.setitem(memory_store._CLUSTERS, "open", store)
    return store


def leases_ms(store: MemoryCluster) -> list[int]:
    """Returns the remaining time of each node's lease."""
    return [node.lease.remaining_ms for node in MemoryClusterStore(store).nodes()]


@pytest.fixture
def interrupt() -> Iterator[Callable[..., Coroutine[Any, Any, None]]]:
    """A coroutine function that interrupts the main thread once, then waits until its task is cancelled.

    A signal that arrives just before the main thread begins to wait for a lock does not end that wait: Python looks
    for signals before it calls the system and after the call. The signal is therefore repeated until Python has
    called the handler.
    """
    interrupted = threading.Event()

    def handle(*_: Any) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    async def repeat(*_: Any) -> None:
        ident = threading.main_thread().ident
        assert ident is not None
        while not interrupted.is_set():
            signal.pthread_kill(ident, signal.SIGINT)
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    before = signal.signal(signal.SIGINT, handle)
    yield repeat
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_open_gives_up_the_lease(
    store: MemoryCluster, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    """An interrupt during the start closes the node completely, although this takes several turns of its event loop."""
    close_server = ClusterNode._close_server

    async def slow(self: ClusterNode) -> None:
        await asyncio.to_thread(int)
        await close_server(self)

    monkeypatch.setattr(ClusterNode, "_close_server", slow)
    with monkeypatch.context() as patched:
        patched.setattr(cluster_node.Server, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            kcore.open(cluster=URL, config=settings(1))
    assert leases_ms(store) == [0]
    with kcore.open(cluster=URL, config=settings(1)) as node:
        assert node.cluster_id() == CLUSTER_ID


@pytest.mark.parametrize("started", [False, True], ids=["while it starts", "after it has started"])
def test_an_interrupt_before_the_wait_for_the_start_gives_up_the_lease(
    store: MemoryCluster, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """The calling thread is interrupted before it waits for the node's start on the event loop.

    On a busy machine, the event loop may have begun or even finished the start by then.
    """
    starting = threading.Event()

    async def wait(*_: Any) -> None:
        starting.set()
        await asyncio.Event().wait()

    def interrupted(loop: asyncio.AbstractEventLoop, function: Any) -> Any:
        monkeypatch.setattr(cluster_member, "start_on_loop", start_on_loop)
        future = start_on_loop(loop, function)
        if started:
            future.result(60)
        else:
            assert starting.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_member, "start_on_loop", interrupted)
    with monkeypatch.context() as patched:
        if not started:
            patched.setattr(cluster_node.Server, "start", wait)
        with pytest.raises(KeyboardInterrupt):
            kcore.open(cluster=URL, config=settings(1))
    assert leases_ms(store) == [0]
    with kcore.open(cluster=URL, config=settings(1)) as node:
        assert node.cluster_id() == CLUSTER_ID


def test_an_interrupted_close_gives_up_the_lease(
    store: MemoryCluster, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[..., Coroutine[Any, Any, None]]
) -> None:
    node = kcore.open(cluster=URL, config=settings(1))
    monkeypatch.setattr(ClusterNode, "_hand_over", interrupt)
    with pytest.raises(KeyboardInterrupt):
        node.close()
    assert leases_ms(store) == [0]


@pytest.mark.parametrize("registered", [False, True], ids=["while it registers", "while it waits for the metadata"])
async def test_a_start_that_is_cancelled_gives_up_the_lease(
    store: MemoryCluster, monkeypatch: pytest.MonkeyPatch, registered: bool
) -> None:
    """The thread that registers the node cannot be cancelled, and may acquire the lease after the cancellation."""
    began, released = threading.Event(), threading.Event()
    register = MemoryClusterStore.register

    def slow(self: MemoryClusterStore, *args: Any) -> Any:
        began.set()
        assert released.wait(60)
        return register(self, *args)

    async def wait_for_metadata(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryClusterStore, "register", slow)
    monkeypatch.setattr(ClusterNode, "_opened", wait_for_metadata)
    if registered:
        released.set()
    node = ClusterNode(lambda: MemoryClusterStore(store), Config.of(settings(1)))
    starting = asyncio.ensure_future(node.start())
    await asyncio.to_thread(began.wait, 60)
    while registered and not leases_ms(store):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.sleep(0)
    released.set()
    await asyncio.wait([starting])
    assert starting.cancelled()
    await node.stop()
    assert leases_ms(store) == [0]
