"""A node of a cluster that registers again after the controller has fenced it.

The node runs in a server process, or is embedded in another program.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kcore.drivers.forks import refuse_in_child
from kcore.drivers.loop_calls import start_on_loop
from kcore.errors import EngineClosedError, KcoreError
from kcore.process_logging import log_failure
from kcore.server.cluster_node import ClusterNode

if TYPE_CHECKING:
    from kcore.cluster.store import ClusterStore
    from kcore.config.node import Config

logger = logging.getLogger(__name__)

T = TypeVar("T")
Detach = Callable[[], Awaitable[None]]
Attach = Callable[[ClusterNode], Awaitable[Detach]]

_TEMPORARY = (KcoreError, OSError, MemoryError, RuntimeError)
"""Errors after which the node starts again as its next incarnation. Python raises RuntimeError if it cannot start a
thread.
"""

RESTART_S = 1.0
"""Time between two attempts to start the next incarnation."""


class ClusterMember:
    """Successive incarnations of a node on the running event loop.

    Args:
        open_store: returns the cluster's store; called for each incarnation.
        config: the node's settings; `node_id` and fixed ports are required.
        attach: called with each incarnation that has begun to serve. Returns a function that is called before the
            incarnation ends.
        survives_interrupts: True to start another incarnation after an exception has interrupted the engine. If False,
            such an exception ends the task `ended`, and the caller ends the process.

    Attributes:
        node: the present incarnation.

    Raises:
        ConfigError: a listener has port 0, or the listener for other nodes or its credentials are missing.
    """

    def __init__(
        self,
        open_store: Callable[[], ClusterStore],
        config: Config,
        *,
        attach: Attach | None = None,
        survives_interrupts: bool = True,
    ) -> None:
        self._open_store = open_store
        self._config = config
        self._attach = attach
        self._survives_interrupts = survives_interrupts
        self.node = ClusterNode(open_store, config)
        self._detach: Detach | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Registers the node and starts to serve. Waits until the store and the cluster are ready.

        Raises:
            LogError: the store refuses the node permanently.
            OSError: the node cannot listen.
        """
        await self._start(self.node)
        self._task = asyncio.create_task(self._restart_incarnations())

    async def _start(self, node: ClusterNode) -> None:
        """Starts an incarnation; if the start fails, ends the incarnation."""
        try:
            await node.start()
            if self._attach is not None:
                self._detach = await self._attach(node)
        except BaseException:
            await node.stop(hand_over=False)  # unregisters, or the next start would wait for the end of the lease
            raise

    @property
    def started(self) -> bool:
        """True from the end of `start` until `stop`."""
        return self._task is not None

    @property
    def ended(self) -> asyncio.Task[None]:
        """The task that starts the next incarnations.

        It exists after `start`, and is done when no further incarnation will follow.
        """
        assert self._task is not None, "start the member first"
        return self._task

    async def _end_attached(self) -> None:
        detach, self._detach = self._detach, None
        if detach is not None:
            await detach()

    async def _restart_incarnations(self) -> None:
        """Starts the next incarnation whenever an incarnation has ended."""
        node_id = self._config.node_id
        while True:
            await self.node.ended.wait()
            interrupted = self.node.engine.pipeline.interrupted
            try:
                await self._end_attached()
            except _TEMPORARY as error:
                log_failure(
                    logger,
                    error,
                    "cluster: node %d was fenced, and kcore could not stop the node's other services, such as the HTTP "
                    "server; the node starts again; if one of its ports is still in use, restart the process",
                    node_id,
                )
            try:
                await self.node.abort()
            except _TEMPORARY as error:
                log_failure(
                    logger,
                    error,
                    "cluster: node %d was fenced, and kcore could not stop the node's server; the node starts again; "
                    "if one of its ports is still in use, restart the process",
                    node_id,
                )
            if interrupted and not self._survives_interrupts:
                return
            logger.warning(
                "cluster: node %d was fenced, or its engine was interrupted; the node starts again with a new broker "
                "epoch; the earlier log lines of the node have the cause",
                node_id,
            )
            self.node = await self._next()

    async def _next(self) -> ClusterNode:
        while True:
            node = ClusterNode(self._open_store, self._config)
            try:
                await self._start(node)
            except _TEMPORARY as error:
                log_failure(
                    logger,
                    error,
                    "cluster: node %d cannot start again yet, and tries again after %g s; if this repeats, check the "
                    "cluster's store and the ports of the listeners",
                    self._config.node_id,
                    RESTART_S,
                )
            else:
                return node
            await asyncio.sleep(RESTART_S)

    @property
    def bootstrap(self) -> str:
        """The address at which clients in this process connect to the node: its listener for other nodes."""
        listener = self.node.inter_listener
        return f"{listener.advertised_host}:{listener.advertised_port or listener.port}"

    async def stop(self, *, hand_over: bool = True) -> None:
        """Ends the node.

        Args:
            hand_over: True to move the partitions to other nodes first; False if all nodes end, so that no node can
                take partitions over.
        """
        task, self._task = self._task, None
        try:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self._end_attached()
        finally:
            await self.node.stop(hand_over=hand_over)


class ThreadMember:
    """A `ClusterMember` on an event loop in a separate thread.

    `ClusterMember` documents the arguments.
    """

    def __init__(self, open_store: Callable[[], ClusterStore], config: Config) -> None:
        self.member = ClusterMember(open_store, config)
        self._loop = asyncio.new_event_loop()
        self._refusal = ""  # in a forked child, which lacks the thread: the text of its errors
        refuse_in_child(self)
        self._thread = threading.Thread(target=self._loop.run_forever, name="kcore-cluster-node", daemon=True)
        self._thread.start()
        try:
            self._run(self.member.start)
        except BaseException:
            try:
                if self.member.started:  # an interrupt arrived after the start
                    self._run(partial(self.member.stop, hand_over=False))
            finally:
                self._end()
            raise

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`."""
        self._refusal = reason

    def _run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._refusal:
            raise EngineClosedError(self._refusal)
        tasks: list[asyncio.Future[Any]] = []
        try:
            return start_on_loop(self._loop, partial(_noted, function, tasks)).result()
        except BaseException:
            # After an interrupt, the node ends in order before the loop stops. The interrupt may arrive before
            # `start_on_loop` has returned, although the loop already runs the coroutine.
            start_on_loop(self._loop, partial(_cancel, tasks)).result()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def stop(self) -> None:
        """Hands all partitions over, then ends the node and the thread.

        A repeated call, or a call in a forked child, has no effect.
        """
        if self._refusal or self._loop.is_closed():
            return
        try:
            self._run(self.member.stop)
        finally:
            self._end()


async def _noted(function: Callable[[], Coroutine[Any, Any, T]], tasks: list[asyncio.Future[Any]]) -> T:
    """Adds the current task to a list, then runs a coroutine function."""
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    return await function()


async def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    """Cancels tasks, and waits until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
