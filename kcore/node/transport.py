"""The interface between the client API and its two transports: an embedded engine, and a cluster over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from kcore.client.aio.broker import Broker
from kcore.client.aio.results import OnDone, report_result
from kcore.client.aio.routes import GROUP
from kcore.embed import AsyncEngine, SyncEngine
from kcore.errors import KafkaError
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kcore.protocol.schema import Request
from kcore.protocol.topic_partition import TopicPartition

R = TypeVar("R")


class AsyncSend(Protocol):
    """The type of `AsyncNode.send`."""

    async def __call__(self, request: Request[R], version: int | None = None) -> R:
        """Sends a request and returns its response."""
        ...


class Send(Protocol):
    """The type of `Node.send`."""

    def __call__(self, request: Request[R], version: int | None = None) -> R:
        """Sends a request and returns its response."""
        ...


LOCAL = Broker(0, "localhost", 0)
"""The engine itself."""


class AsyncTransport(Protocol):
    """Sends requests to the brokers that they concern; see `kcore.client.aio.cluster.AsyncCluster`."""

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

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Sends a request after those that were started before, without waiting; `on_done` gets the result."""
        ...

    async def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that both sides know."""
        ...

    async def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        ...

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Asks for topics and brokers."""
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

    def forget(self, request: Any) -> None:
        """Forgets the broker of a request."""
        ...

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel."""
        ...

    async def close(self) -> None:
        """Closes the transport."""
        ...


class Transport(Protocol):
    """Sends requests to the brokers that they concern, for threads; see `kcore.client.aio.threads.Cluster`."""

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
        """Sends a request and returns its response."""
        ...

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Sends a request after those that were started before; any thread may give `on_done` the result."""
        ...

    def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that both sides know."""
        ...

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        ...

    def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Asks for topics and brokers."""
        ...

    def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders."""
        ...

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of a partition's leader; -1: unknown."""
        ...

    def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the coordinator of a group or a transactional id."""
        ...

    def brokers(self) -> list[Broker]:
        """Returns all brokers."""
        ...

    def forget(self, request: Any) -> None:
        """Forgets the broker of a request."""
        ...

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel."""
        ...

    def close(self) -> None:
        """Closes the transport."""
        ...


def _metadata_request(topics: Iterable[str] | None, create: bool) -> MetadataRequest:
    listed = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=listed, allow_auto_topic_creation=create)


def _lookup(key_type: int, key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])


def _check_lookup(response: FindCoordinatorResponse) -> None:
    (row,) = response.coordinators
    if row.error_code:
        raise KafkaError.of(row.error_code, row.error_message)


class _Embedded:
    """The base of both embedded transports: one broker, which leads and coordinates everything."""

    def __init__(self, engine: Any, client_id: str) -> None:
        self._engine = engine
        self._client_id = client_id

    def forget(self, request: Any) -> None:
        """Does nothing: an engine is its own broker."""

    def close_channel(self, channel: str) -> None:
        """Does nothing: an engine has no connections."""

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns -1: an engine truncates no log, so positions need no validation."""
        return -1

    def _newest(self, request_type: Any, at_most: int | None) -> int:
        newest: int = self._engine.engine.newest_version(request_type())
        return newest if at_most is None else min(newest, at_most)


class AsyncEmbeddedTransport(_Embedded):
    """The transport of an engine on this event loop."""

    _engine: AsyncEngine

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
        """Has the engine decide a request; a parked request has no time limit."""
        return await self._engine.send(request, at_most if version is None else version, client_id=self._client_id)

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Has the engine decide a request in a task of its own."""
        report_result(asyncio.ensure_future(self.send(request, at_most=at_most)), on_done)

    async def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version that the engine serves."""
        return self._newest(request_type, at_most)

    async def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        return self._engine.engine.topics.feature_level(name)

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Asks for topics."""
        return await self._engine.send(_metadata_request(topics, create))

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Returns all partitions in one group."""
        return [(LOCAL, list(partitions))]

    async def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the engine. The first lookup of a transactional id creates the coordinator's internal topic."""
        if key_type != GROUP:
            _check_lookup(await self._engine.send(_lookup(key_type, key)))
        return LOCAL

    async def brokers(self) -> list[Broker]:
        """Returns the engine."""
        return [LOCAL]

    async def close(self) -> None:
        """Closes the engine."""
        self._engine.close()


class EmbeddedTransport(_Embedded):
    """The transport of an engine for threads."""

    _engine: SyncEngine

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
        """Has the engine decide a request; a parked request has no time limit."""
        return self._engine.send(request, at_most if version is None else version, client_id=self._client_id)

    def start(
        self, request: Any, on_done: OnDone, *, at_most: int | None = None, broker: Broker, channel: str = ""
    ) -> None:
        """Has the engine decide a request, and reports the result before it returns."""
        try:
            response = self.send(request, at_most=at_most)
        except Exception as error:
            on_done(None, error)
        else:
            on_done(response, None)

    def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version that the engine serves."""
        return self._newest(request_type, at_most)

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature."""
        return self._engine.engine.topics.feature_level(name)

    def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Asks for topics."""
        return self._engine.send(_metadata_request(topics, create))

    def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Returns all partitions in one group."""
        return [(LOCAL, list(partitions))]

    def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the engine. The first lookup of a transactional id creates the coordinator's internal topic."""
        if key_type != GROUP:
            _check_lookup(self._engine.send(_lookup(key_type, key)))
        return LOCAL

    def brokers(self) -> list[Broker]:
        """Returns the engine."""
        return [LOCAL]

    def close(self) -> None:
        """Closes the engine."""
        self._engine.close()
