"""Sends requests to the brokers of a cluster that serve them, and looks these brokers up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.aio.connection import AsyncConnection
from kcore.client.aio.connections import Connections
from kcore.client.aio.known_brokers import KnownBrokers
from kcore.client.aio.results import OnDone, report_result
from kcore.client.aio.routes import Route, route_of
from kcore.client.malformed import malformed
from kcore.client.security import ClientSecurity
from kcore.drivers.forks import connection_refusal, refuse_in_child
from kcore.drivers.loop_calls import foreign_call, loop_has_ended
from kcore.errors import ConfigError, ConnectionClosedError, KafkaError, KcoreError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kcore.protocol.schema import Request, check_request
from kcore.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kcore.protocol.messages.fetch import FetchRequest, FetchResponse

R = TypeVar("R")

TIMEOUT_S = 30.0
MAX_PORT = 65_535
LONG_POLLED = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
"""APIs whose requests may wait at the broker. They use separate connections, so that other requests need not wait."""


class AsyncCluster:
    """Connections to the brokers of a cluster, opened when needed and reopened after they were closed.

    Args:
        bootstrap: HOST:PORT of one or more brokers, in a list or separated by commas.
        client_id: the client id in every request.
        timeout_s: the time limit of one response.
        security: TLS and SASL for every broker; None: neither.
        loop: the event loop of the connections; None: the running loop.

    Raises:
        ConfigError: an address is not HOST:PORT, or none is passed.
        TypeError: an argument has another type.
    """

    clock_ms: Callable[[], int] | None = None
    """Function that returns the timestamps of records in ms; None: the system's clock."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        client_id: str = "kcore",
        timeout_s: float = TIMEOUT_S,
        security: ClientSecurity | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not isinstance(bootstrap, str | Sequence) or isinstance(bootstrap, bytes):
            raise TypeError(f"bootstrap: {bootstrap!r}; valid: HOST:PORT, or a list of these")
        if not isinstance(client_id, str):
            raise TypeError(f"client_id: {client_id!r} is not a string")
        listed = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
        if not listed:
            raise ConfigError("bootstrap has no address; valid: HOST:PORT, or a list of these")
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._bootstrap = [_parse(address) for address in listed]
        self._timeout_s = timeout_s
        self._connections = Connections(client_id, timeout_s, security)
        self._unsent: dict[tuple[Broker | None, str], set[object]] = {}  # started requests that are not sent yet
        self._known = KnownBrokers()
        self._refusal = ""  # in a forked child: the text of its errors
        refuse_in_child(self)

    def __str__(self) -> str:
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._bootstrap)

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`: the child shares the sockets and their poller with the parent."""
        self._refusal = connection_refusal()
        self._connections.closed = True

    def _require_loop(self) -> None:
        """Refuses a call from another event loop, before anything is sent.

        Raises:
            ConcurrentCallError: the caller does not run on the event loop of the connections.
            ConnectionClosedError: this process is a forked child.
        """
        if self._refusal:
            raise ConnectionClosedError(self._refusal)
        if asyncio._get_running_loop() is not self._loop:
            raise foreign_call(self._loop)

    async def close(self) -> None:
        """Closes every connection. After the end of the connections' event loop, another loop may call this method.

        Raises:
            ConcurrentCallError: the event loop of the connections is running in another thread.
        """
        if self._refusal:
            return
        if loop_has_ended(self._loop):
            self._connections.abandon()
            return
        self._connections.close()
        await asyncio.sleep(0)  # lets asyncio finish the closed sockets

    # ---- sending

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
        """Sends a request to the broker that serves it, and returns the response.

        Args:
            request: a request message.
            version: the version of the request; None: the newest that the client and the broker support.
            at_most: the highest version to choose if `version` is None; None: no limit.
            broker: the broker to send to; None: the broker of the route that `route_of` returns.
            channel: requests of different channels use different connections.
            timeout_s: the time limit for a new connection, and then for the response; None: the cluster's `timeout_s`.

        Raises:
            KafkaError: the lookup of the broker failed, for example because a partition does not exist. Or the client
                and the broker have no version in common.
            ConnectionClosedError: the broker is unreachable, or closed the connection.
            TimeoutError: no response arrived in time.
            KcoreError: `request` does not have this version.
            ConcurrentCallError: the caller does not run on the event loop of the connections.
            TypeError: `request` is not a request message.
        """
        check_request(request)
        if version is not None and not request.MIN_VERSION <= version <= request.MAX_VERSION:
            low, high = request.MIN_VERSION, request.MAX_VERSION
            raise KcoreError(
                f"{type(request).__name__} is supported in versions {low} to {high}, not in version {version}"
            )
        broker, future = await self._begin(request, version, at_most, broker, channel, timeout_s)
        return await self._response(broker, future)

    async def fetch(self, request: FetchRequest, *, at_most: int, broker: Broker, channel: str) -> FetchResponse:
        """Sends a Fetch as `send` does. The records of the response may be views of the received bytes.

        A view keeps the memory of the whole response. So the caller must drop the views of old responses.
        """
        broker, future = await self._begin(request, None, at_most, broker, channel, None, views=True)
        response: FetchResponse = await self._response(broker, future)
        return response

    async def _begin(
        self,
        request: Any,
        version: int | None,
        at_most: int | None,
        broker: Broker | None,
        channel: str,
        timeout_s: float | None,
        views: bool = False,
    ) -> tuple[Broker, asyncio.Future[Any]]:
        """Sends a request, and returns its broker and the future of its response; see `send` and `fetch`."""
        self._require_loop()
        if request.API_KEY in LONG_POLLED and not channel:
            channel = "fetch"
        connection = None if broker is None else self._connections.get(broker, channel)
        if connection is None or broker is None:
            if timeout_s is None:
                broker, connection = await self._find(request, broker, channel)
            else:
                broker, connection = await self._find_within(timeout_s, request, broker, channel)
        if version is None:
            version = connection.newest(type(request), at_most)
        try:
            if not connection.writable:
                await connection.wait_writable()
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            return broker, connection.start(request, version, limit_s, views=views)
        except ConnectionClosedError:
            self._known.forget_broker(broker)
            raise

    async def _find(self, request: Any, broker: Broker | None, channel: str) -> tuple[Broker, AsyncConnection]:
        """Returns the broker of a request, and an open connection to it."""
        if broker is None:
            broker = await self._route(route_of(request))
        return broker, await self._connection(broker, channel)

    async def _find_within(
        self, timeout_s: float, request: Any, broker: Broker | None, channel: str
    ) -> tuple[Broker, AsyncConnection]:
        """Calls `_find` with a time limit. An attempt to open a connection continues for later requests."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._find(request, broker, channel)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"{type(request).__name__}: no connection to its broker within {timeout_s:g} s"
            ) from error

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
        """Sends a request as `send` does, and calls `on_done` with the result.

        Requests that are started one after another on a channel are sent in this order. If the connection is open,
        this method sends the request itself, without a task. It returns before `on_done` is called.
        """
        self._require_loop()
        if request.API_KEY in LONG_POLLED and not channel:
            channel = "fetch"
        if broker is not None and not (self._unsent and (broker, channel) in self._unsent):
            connection = self._connections.get(broker, channel)
            if connection is not None and connection.writable:
                limit_s = self._timeout_s if timeout_s is None else timeout_s
                done = partial(self._report, broker, on_done)
                try:
                    connection.call(request, connection.newest(type(request), at_most), limit_s, done)
                except Exception as error:
                    asyncio.get_running_loop().call_soon(done, None, error)
                return
        unsent = _UnsentRequest(self._unsent, (broker, channel))
        task = asyncio.ensure_future(self._send_started(unsent, request, at_most, broker, channel, timeout_s))
        task.add_done_callback(unsent.release)  # a task that is cancelled before it begins does not run its `finally`
        report_result(task, on_done)

    async def _send_started(
        self,
        unsent: _UnsentRequest,
        request: Any,
        at_most: int | None,
        broker: Broker | None,
        channel: str,
        timeout_s: float | None,
    ) -> Any:
        """Sends a request in a separate task. Until the request is sent, later requests on its channel wait."""
        try:
            broker, future = await self._begin(request, None, at_most, broker, channel, timeout_s)
        finally:
            unsent.release()
        return await self._response(broker, future)

    async def _response(self, broker: Broker, future: asyncio.Future[R]) -> R:
        """Awaits a response. If the broker does not send it, removes the broker from the cached routes."""
        try:
            return await future
        except (ConnectionClosedError, TimeoutError):
            self._known.forget_broker(broker)
            raise

    def _report(self, broker: Broker, on_done: OnDone, response: Any, error: BaseException | None) -> None:
        """Calls `on_done` with the result of a request that needed no task.

        After a failure, removes the broker from the cached routes.
        """
        if isinstance(error, ConnectionClosedError | TimeoutError):
            self._known.forget_broker(broker)
        on_done(response, error)

    async def newest(self, request_type: Any, at_most: int | None = None) -> int:
        """Returns the newest version of a request that this client and a broker of the cluster support."""
        return (await self._connection(await self._any(), "")).newest(request_type, at_most)

    async def feature(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 if the cluster does not have it."""
        return (await self._connection(await self._any(), "")).features.get(name, 0)

    async def _route(self, route: Route) -> Broker:
        if route.coordinator is not None:
            return await self.coordinator(*route.coordinator)
        if route.partitions:
            by_leader = await self.by_leader(route.partitions)
            if len(by_leader) > 1:
                raise KcoreError(
                    "the request's partitions have different leaders: send one request to each leader (`by_leader`)"
                )
            return by_leader[0][0]
        if route.controller:
            if not self._known.names_controller:
                await self.metadata([])
            if self._known.controller is not None:
                return self._known.controller
        return await self._any()

    async def _any(self) -> Broker:
        """Returns a broker with an open connection, or else a broker to which a new connection succeeds."""
        connected = self._connections.connected_broker()
        if connected is not None:
            return connected
        candidates = [*self._known.by_id.values()]
        random.shuffle(candidates)
        last_error: Exception | None = None
        for broker in [*candidates, *self._bootstrap]:
            try:
                await self._connection(broker, "")
            except (ConnectionClosedError, TimeoutError) as error:
                last_error = error
            else:
                return broker
        self._known.by_id.clear()
        assert last_error is not None, "a cluster has at least one bootstrap address"
        raise last_error

    async def _connection(self, broker: Broker, channel: str) -> AsyncConnection:
        opened = self._connections.get(broker, channel)
        if opened is not None:
            return opened
        self._require_loop()
        return await self._connections.open(broker, channel)

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel that is no longer used."""
        self._connections.close_channel(channel)

    # ---- lookups

    async def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Requests topics and brokers, and stores the partition leaders.

        Args:
            topics: topic names; None: all topics; empty: brokers only.
            create: True to let the server create missing topics, if its settings allow that.
        """
        names = None if topics is None else list(dict.fromkeys(topics))
        listed = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=listed, allow_auto_topic_creation=create)
        broker = await self._any()
        response = await self.send(request, broker=broker)
        self._connections.accepted = True
        if response.error_code:
            raise KafkaError.of(response.error_code)
        fault = _metadata_fault(response, names)
        if fault is not None:
            raise malformed(broker, request, fault)
        self._known.update(response)
        return response

    async def by_leader(self, partitions: Sequence[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders.

        Raises:
            KafkaError: some partitions do not exist, or have no leader. The error has the code of the first of these
                partitions, and lists all partitions with this code.
        """
        missing = {partition.topic for partition in partitions if partition not in self._known.leaders}
        codes: dict[str | None, int] = {}
        if missing:
            response = await self.metadata(sorted(missing))
            codes = {topic.name: topic.error_code for topic in response.topics if topic.error_code}
        grouped: dict[Broker, list[TopicPartition]] = {}
        refused: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._known.leaders.get(partition)
            if leader is None:
                code = codes.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                refused.setdefault(code, []).append(partition)
            else:
                grouped.setdefault(leader, []).append(partition)
        if refused:
            code, listed = next(iter(refused.items()))
            raise KafkaError.of(code, None, listed)
        return list(grouped.items())

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of a partition's leader; -1: unknown."""
        return self._known.leader_epoch(partition)

    async def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the coordinator of a group or a transactional id.

        Raises:
            KafkaError: no coordinator is available, or the client may not use it.
        """
        cached = self._known.coordinators.get((key_type, key))
        if cached is not None:
            return cached
        broker = await self._any()
        version = (await self._connection(broker, "")).newest(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= versions.KEYS_IN_LISTS:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response = await self.send(request, version, broker=broker)
        result: Any = response
        if version >= versions.KEYS_IN_LISTS:
            result = next((row for row in response.coordinators if row.key == key), None)
            if result is None:
                raise malformed(broker, request, f"the response has no coordinator of {key!r}")
        if result.error_code:
            raise KafkaError.of(result.error_code, result.error_message)
        self._known.coordinators[key_type, key] = broker = Broker(result.node_id, result.host, result.port)
        return broker

    async def brokers(self) -> list[Broker]:
        """Returns all brokers."""
        await self.metadata([])
        return list(self._known.by_id.values())

    def known_broker(self, request: Any) -> Broker | None:
        """Returns the broker of a request, for error texts, without a lookup; None: unknown."""
        return self._known.serving(request)

    def forget(self, request: Any) -> None:
        """Forgets which broker serves a request, because an error shows that another broker serves it now."""
        self._known.forget_route(route_of(request))

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets the leaders of partitions, because an error shows that other brokers lead them now."""
        self._known.forget_route(Route(partitions=tuple(partitions)))


class _UnsentRequest:
    """A started request that is waiting to be sent. Later requests on the same channel wait until it has been sent.

    Args:
        unsent: the waiting requests of each channel. The constructor adds this request.
        channel: the broker and the name of the channel on which this request will be sent.
    """

    def __init__(
        self, unsent: dict[tuple[Broker | None, str], set[object]], channel: tuple[Broker | None, str]
    ) -> None:
        self._unsent = unsent
        self._channel = channel
        unsent.setdefault(channel, set()).add(self)

    def release(self, *_: object) -> None:
        """Lets later requests of the channel be sent. Further calls have no effect."""
        requests = self._unsent.get(self._channel)
        if requests is not None:
            requests.discard(self)
            if not requests:
                del self._unsent[self._channel]


def _metadata_fault(response: MetadataResponse, names: list[str] | None) -> str | None:
    """Describes the fault of a response, or returns None. A response must have a row for each topic of the request.

    Args:
        response: the response to a Metadata request.
        names: the topics of the request, without repetitions; None: all.
    """
    for topic in response.topics:
        if not topic.error_code and not topic.partitions:
            return f"the response has topic {topic.name!r} without partitions and without an error"
    if names is not None and sorted(topic.name or "" for topic in response.topics) != sorted(names):
        return f"its {len(response.topics)} topics are not the {len(names)} topics of the request"
    return None


def _parse(address: str) -> Broker:
    host, _, port = address.strip().rpartition(":") if isinstance(address, str) else ("", "", "")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= MAX_PORT):
        raise ConfigError(f"{address!r} is not HOST:PORT, with a port from 1 to {MAX_PORT}")
    return Broker(-1, host.strip("[]") or "127.0.0.1", int(port))
