"""The interface between the client API and its two transports: an embedded engine, and a cluster over TCP.

The transport over TCP is `AsyncCluster` for event loops, and `kcore.client.aio.threads.Cluster` for threads, which runs
an `AsyncCluster` on a separate loop. So both API styles share the code of connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kcore.client.aio.broker import Broker
from kcore.client.aio.results import OnDone
from kcore.client.aio.routes import GROUP
from kcore.node._async.backend import EmbeddedEngine, call_and_report
from kcore.node.embedded_base import LOCAL, EmbeddedBase, check_coordinator, coordinator_request, metadata_request
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.schema import Request
from kcore.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kcore.protocol.messages.fetch import FetchRequest, FetchResponse

R = TypeVar("R")


class AsyncSend(Protocol):
    """The type of `AsyncNode.send`."""

    async def __call__(self, request: Request[R], version: int | None = None) -> R:
        """Sends a request and returns its response."""
        ...


class AsyncTransport(Protocol):
    """The interface of a transport, which sends requests to the brokers that they concern; see `AsyncCluster`."""

    @property
    def clock_ms(self) -> Callable[[], int] | None:
        """Returns the source of timestamps of records; None: the system's clock."""
        ...

    async def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Sends a request and returns its response."""
        ...

    async def fetch(self, request: FetchRequest, *, at_most: int, broker: Broker, channel: str) -> FetchResponse:
        """Sends a Fetch. The records in the result may be views, which keep the whole response in memory."""
        ...

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
        """Sends a request after all requests that were started earlier. Any thread may call `on_done`."""
        ...

    async def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that the client and the server support."""
        ...

    async def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        ...

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Requests topics and brokers."""
        ...

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders."""
        ...

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of a partition's leader; -1: unknown."""
        ...

    async def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the coordinator of a group or a transactional id."""
        ...

    async def brokers(self) -> list[Broker]:
        """Returns all brokers."""
        ...

    def known_broker(self, request: Any) -> Broker | None:
        """Returns the broker of a request, for error texts, without a lookup; None: unknown."""
        ...

    def forget(self, request: Any) -> None:
        """Removes the cached broker of a request, so that the next request looks it up again."""
        ...

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes the cached leaders of partitions, so that the next request looks them up again."""
        ...

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel."""
        ...

    async def close(self) -> None:
        """Closes the transport."""
        ...


class AsyncEmbeddedTransport(EmbeddedBase):
    """The transport of an engine in this process."""

    _engine: EmbeddedEngine

    async def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Passes a request to the engine, and returns its response. A parked request has no time limit."""
        return await self._engine.send(request, at_most if version is None else version, client_id=self._client_id)

    async def fetch(self, request: FetchRequest, *, at_most: int, broker: Broker, channel: str) -> FetchResponse:
        """Passes a Fetch to the engine, and returns its response."""
        return await self.send(request, at_most=at_most, broker=broker, channel=channel)

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
        """Passes a request to the engine. In the synchronous API, calls `on_done` before returning."""
        call_and_report(partial(self.send, request, at_most=at_most), on_done)

    async def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version that the engine serves."""
        return self._newest(request_type, at_most)

    async def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        return self._engine.engine.topics.feature_level(name)

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Requests topics."""
        return await self._engine.send(metadata_request(topics, create))

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Returns all partitions in one group, because the engine leads all of them."""
        return [(LOCAL, list(partitions))]

    async def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the engine. The first lookup of a transactional id creates the coordinator's internal topic."""
        if key_type != GROUP:
            check_coordinator(await self._engine.send(coordinator_request(key_type, key)))
        return LOCAL

    async def brokers(self) -> list[Broker]:
        """Returns the engine as the only broker."""
        return [LOCAL]

    async def close(self) -> None:
        """Closes the engine."""
        await self._engine.close_async()
