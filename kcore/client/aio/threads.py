"""A cluster for threads: its connections are on an event loop, which runs in a separate thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kcore.client.aio.broker import Broker
from kcore.client.aio.cluster import TIMEOUT_S, AsyncCluster
from kcore.client.aio.results import OnDone
from kcore.client.security import ClientSecurity
from kcore.drivers.forks import connection_refusal, refuse_in_child
from kcore.drivers.loop_calls import release_after_interrupt, start_on_loop
from kcore.errors import ConnectionClosedError
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.schema import Request
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore.protocol.messages.fetch import FetchRequest, FetchResponse

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")


class Cluster:
    """`AsyncCluster` for callers on threads. Any thread may call it; requests of several threads are pipelined.

    Args:
        bootstrap: HOST:PORT of one or more brokers, in a list or separated by commas.
        client_id: the client id in every request.
        timeout_s: the time limit of one response.
        security: TLS and SASL for every broker; None: neither.
    """

    clock_ms: Callable[[], int] | None = None
    """Function that returns the timestamps of records in ms; None: the system's clock."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        client_id: str = "kcore",
        timeout_s: float = TIMEOUT_S,
        security: ClientSecurity | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        try:
            self._cluster = AsyncCluster(bootstrap, client_id, timeout_s, security, loop=self._loop)
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever, name="kcore-connections", daemon=True)
        self._thread.start()
        self._closed = False
        self._forked = False
        self._refusal = "the node is closed"
        self._passing = Lock()  # held while work is passed to the loop, so that no work follows `_end`
        self._closing = Lock()
        refuse_in_child(self)

    def __str__(self) -> str:
        return str(self._cluster)

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`: the thread of the loop does not exist in the child."""
        self._passing = Lock()
        self._refusal = connection_refusal()
        self._closed = self._forked = True

    def _run(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **options: P.kwargs) -> T:
        call = partial(function, *args, **options)
        if sys.is_finalizing():  # the loop does not run any more, so the call would never return
            raise ConnectionClosedError("the Python interpreter is shutting down")
        with self._passing:
            if self._closed:
                raise ConnectionClosedError(self._refusal)
            future = start_on_loop(self._loop, call)
        try:
            return future.result()
        except BaseException as error:
            release_after_interrupt(future)
            future.cancel()  # the caller was interrupted, and does not need the result
            if isinstance(error, CancelledError) and self._closed:
                raise ConnectionClosedError("the node is closed") from None
            raise

    def close(self) -> None:
        """Closes every connection and ends the thread. Calls of other threads fail; a second `close` has no effect.

        The method also has no effect in a forked child or while the interpreter ends: the thread does not run then.
        """
        if self._forked or sys.is_finalizing():
            return
        with self._closing:
            if self._loop.is_closed():
                return
            with self._passing:
                self._closed = True
            if self._thread.is_alive():
                start_on_loop(self._loop, self._end).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        """Closes the connections, and waits until every task has ended, because threads wait for the results of the
        tasks.
        """
        await self._cluster.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Sends a request to the broker that serves it, and waits for the response; see `AsyncCluster.send`."""
        return self._run(
            self._cluster.send,
            request,
            version,
            at_most=at_most,
            broker=broker,
            channel=channel,
            timeout_s=timeout_s,
        )

    def fetch(self, request: FetchRequest, *, at_most: int, broker: Broker, channel: str) -> FetchResponse:
        """Sends a Fetch; see `AsyncCluster.fetch`."""
        return self._run(self._cluster.fetch, request, at_most=at_most, broker=broker, channel=channel)

    def start(
        self,
        request: Any,
        on_done: OnDone,
        *,
        at_most: int | None = None,
        broker: Broker | None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Sends a request after all requests that were started before; the loop's thread calls `on_done`."""
        options: dict[str, Any] = {"at_most": at_most, "broker": broker, "channel": channel, "timeout_s": timeout_s}
        start = partial(self._cluster.start, request, on_done, **options)
        with self._passing:
            closed = self._closed
            if not closed:
                self._loop.call_soon_threadsafe(start)
        if closed:
            on_done(None, ConnectionClosedError(self._refusal))

    def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that this client and a broker of the cluster support."""
        return self._run(self._cluster.newest, request_type, at_most)

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 if the cluster does not have it."""
        return self._run(self._cluster.feature, name)

    def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Requests topics and brokers; see `AsyncCluster.metadata`."""
        return self._run(self._cluster.metadata, topics, create)

    def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders; see `AsyncCluster.by_leader`."""
        return self._run(self._cluster.by_leader, partitions)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of a partition's leader; -1: unknown."""
        return self._cluster.leader_epoch(partition)

    def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the coordinator of a group or a transactional id; see `AsyncCluster.coordinator`."""
        return self._run(self._cluster.coordinator, key_type, key)

    def brokers(self) -> list[Broker]:
        """Returns all brokers."""
        return self._run(self._cluster.brokers)

    def known_broker(self, request: Any) -> Broker | None:
        """Returns the broker of a request, for error texts, without a lookup; None: unknown."""
        return self._cluster.known_broker(request)

    def forget(self, request: Any) -> None:
        """Forgets which broker serves a request, because an error shows that another broker serves it now."""
        self._call_soon(self._cluster.forget, request)

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the leaders of partitions, because an error shows that other brokers lead them now."""
        self._call_soon(self._cluster.forget_leaders, tuple(partitions))

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel that is no longer used."""
        self._call_soon(self._cluster.close_channel, channel)

    def _call_soon(self, function: Callable[[T], object], argument: T) -> None:
        with self._passing:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, argument)
