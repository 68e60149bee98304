"""A node of a cluster that registers again after the others have fenced it, for programs that embed a node."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kcore.errors import KcoreError
from kcore.process_logging import log_failure
from kcore.server.cluster_node import ClusterNode

if TYPE_CHECKING:
    from kcore.cluster.store import ClusterStore
    from kcore.config.node import Config

logger = logging.getLogger(__name__)

T = TypeVar("T")

RESTART_S = 1.0
"""Time between two attempts to start again."""


class ClusterMember:
    """Successive incarnations of a node on the running event loop.

    Args:
        open_store: opens the store.
        config: the node's settings; `node_id` and fixed ports are required.

    Attributes:
        node: the present incarnation.

    Raises:
        ConfigError: a listener has port 0, or the listener for other nodes or its credentials are missing.
    """

    def __init__(self, open_store: Callable[[], ClusterStore], config: Config) -> None:
        self._open_store = open_store
        self._config = config
        self.node = ClusterNode(open_store, config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Registers and serves. Waits as long as the store or the cluster is not ready.

        Raises:
            LogError: the store refuses the node for good.
            OSError: the node cannot listen.
        """
        try:
            await self.node.start()
        except BaseException:
            await self.node.abort()
            raise
        self._task = asyncio.create_task(self._registered_again())

    async def _registered_again(self) -> None:
        """Starts the next incarnation whenever one has ended."""
        while True:
            await self.node.ended.wait()
            await self.node.abort()
            logger.warning("cluster: node %d has ended and registers again", self._config.node_id)
            self.node = await self._next()

    async def _next(self) -> ClusterNode:
        while True:
            node = ClusterNode(self._open_store, self._config)
            try:
                await node.start()
            except (KcoreError, OSError) as error:
                await node.abort()
                log_failure(logger, error, "cluster: node %d cannot start again now", self._config.node_id)
            except BaseException:
                await node.abort()
                raise
            else:
                return node
            await asyncio.sleep(RESTART_S)

    @property
    def bootstrap(self) -> str:
        """The address of the node for this process: that of the listener between nodes."""
        listener = self.node.inter_listener
        return f"{listener.advertised_host}:{listener.advertised_port or listener.port}"

    async def stop(self) -> None:
        """Hands all partitions over and ends the node."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.node.stop()


class ThreadMember:
    """A `ClusterMember` on an event loop in a thread of its own.

    Args: as for `ClusterMember`.
    """

    def __init__(self, open_store: Callable[[], ClusterStore], config: Config) -> None:
        self.member = ClusterMember(open_store, config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kcore-cluster-node", daemon=True)
        self._thread.start()
        try:
            self._run(self.member.start())
        except BaseException:
            self._end()
            raise

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def stop(self) -> None:
        """Hands all partitions over, ends the node and the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        try:
            self._run(self.member.stop())
        finally:
            self._end()
