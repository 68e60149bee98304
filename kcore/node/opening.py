"""`kcore.open`, `kcore.connect` and their asynchronous counterparts."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import kcore
from kcore import client
from kcore.clock import Clock
from kcore.config.node import Config
from kcore.config.paths import check_path
from kcore.errors import ConfigError
from kcore.node._async.node import CALL_TIMEOUT_S, AsyncNode
from kcore.node._sync.node import Node
from kcore.node.arguments import LONG_WAIT_S, check_mapping, check_seconds, check_text

if TYPE_CHECKING:
    from kcore.engine import Engine

N = TypeVar("N", bound=AsyncNode)

TIMEOUT_S = 30.0
LONG_TIMEOUT_S, LONG_CALL_S = 600.0, 3_600.0
"""Times in seconds above which `timeout` and `call_timeout` cause a warning: the caller probably passed milliseconds.
"""


class NodeOpener(Generic[N]):
    """An awaitable that opens a node: `node = await …`, or `async with … as node`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, N]]) -> None:
        self._make = make
        self._node: N | None = None

    def __await__(self) -> Generator[Any, None, N]:
        return self._make().__await__()

    async def __aenter__(self) -> N:
        self._node = await self._make()
        return self._node

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node is not None:
            await self._node.close()


@overload
def open(
    path: str | Path | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    create: bool = True,
) -> kcore.EmbeddedNode: ...
@overload
def open(*, config: Config | Mapping[str, Any] | None = None, cluster: str) -> kcore.ClusteredNode: ...
def open(  # callers write `kcore.open(...)`
    path: str | Path | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    create: bool = True,
    cluster: str | None = None,
) -> kcore.EmbeddedNode | kcore.ClusteredNode:
    """Opens an engine in this process, for threads. Any thread may call the node.

    Use it with `with`, or call `close` at the end.

    Args:
        path: the data folder, created if missing; None keeps everything in memory.
        config: a `Config`, or settings by Kafka's names.
        clock: the source of time; a `ManualClock` stands still until the caller moves it.
        create: True to create a missing folder.
        cluster: the URL of a cluster's store, as for `kcore serve --cluster`. This process then becomes a node of that
            cluster. Its settings must have `node.id`, and `listeners` with a fixed port. With `cluster`, the caller
            must not pass `path` or `clock`, and `create` has no effect. The call waits until the store and the cluster
            are ready.

    Raises:
        ConfigError: a setting is unknown or not valid, or the path is empty.
        DataFolderError: the folder cannot be opened.
        LogError: the store of the cluster refuses the node.
        OSError: the node of a cluster cannot listen.
        TypeError: an argument has another type.
    """
    if cluster is not None:
        from kcore.node.cluster_node import ClusteredNode  # noqa: PLC0415 - needs the whole server

        return ClusteredNode(cluster, _clustered(config, path, clock))
    from kcore.node.embedded import embedded_node  # noqa: PLC0415 - `connect` needs no engine

    return embedded_node(_engine(path, config, clock, create))


@overload
def open_async(
    path: str | Path | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    create: bool = True,
) -> NodeOpener[kcore.AsyncEmbeddedNode]: ...
@overload
def open_async(
    *, config: Config | Mapping[str, Any] | None = None, cluster: str
) -> NodeOpener[kcore.AsyncClusteredNode]: ...
def open_async(
    path: str | Path | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    create: bool = True,
    cluster: str | None = None,
) -> NodeOpener[kcore.AsyncEmbeddedNode] | NodeOpener[kcore.AsyncClusteredNode]:
    """Opens an engine on the running event loop: `await kcore.open_async(...)`, or `async with`.

    Args:
        path: the data folder, created if missing; None keeps everything in memory.
        config: a `Config`, or settings by Kafka's names.
        clock: the source of time; a `ManualClock` stands still until the caller moves it.
        create: True to create a missing folder.
        cluster: the URL of a cluster's store, as for `kcore serve --cluster`. This process then becomes a node of that
            cluster. Its settings must have `node.id`, and `listeners` with a fixed port. With `cluster`, the caller
            must not pass `path` or `clock`, and `create` has no effect. The call waits until the store and the cluster
            are ready.

    Raises:
        ConfigError: a setting is unknown or not valid, or the path is empty.
        DataFolderError: the folder cannot be opened.
        LogError: the store of the cluster refuses the node.
        OSError: the node of a cluster cannot listen.
        TypeError: an argument has another type.
    """

    if cluster is not None:
        settings = _clustered(config, path, clock)

        async def start() -> kcore.AsyncClusteredNode:
            from kcore.node.cluster_node import AsyncClusteredNode  # noqa: PLC0415 - needs the whole server

            return await AsyncClusteredNode.start(cluster, settings)

        return NodeOpener(start)

    async def make() -> kcore.AsyncEmbeddedNode:
        from kcore.node.embedded import async_embedded_node  # noqa: PLC0415 - `connect` needs no engine

        if path is None:
            return async_embedded_node(_engine(path, config, clock, create))
        from kcore.drivers.offload import call_on_thread  # noqa: PLC0415 - `connect` needs no engine

        # The loop serves other tasks while a thread reads the log.
        engine = await call_on_thread(lambda: _engine(path, config, clock, create), lambda unused: unused.close())
        return async_embedded_node(engine)

    return NodeOpener(make)


def _clustered(config: Config | Mapping[str, Any] | None, path: object, clock: object) -> Config:
    """Returns the settings of a node of a cluster.

    Raises:
        ConfigError: a setting is not valid, or an argument does not apply to a cluster.
    """
    if path is not None or clock is not None:
        raise ConfigError("a node of a cluster needs no data folder and no clock: leave out path and clock")
    return _copy(config) if isinstance(config, Config) else Config.of(config)


def _engine(
    path: str | Path | None, config: Config | Mapping[str, Any] | None, clock: Clock | None, create: bool
) -> Engine:
    from kcore.engine import Engine  # noqa: PLC0415 - `connect` needs no engine

    folder = None if path is None else _folder(path)
    if config is not None and not isinstance(config, Config):
        check_mapping("config", config)
    if clock is not None and (isinstance(clock, type) or not hasattr(clock, "monotonic_ms")):
        raise TypeError(f"clock: {clock!r} is not a clock; valid: a kcore.ManualClock(), or None")
    # A copy: one Config may open several engines, and an engine's settings change while it runs.
    settings = _copy(config) if isinstance(config, Config) else Config.of(config)
    if folder is not None:
        settings.set("kcore.data.dir", folder, "path")
    return Engine.open(settings, clock=clock, create=create)


def _folder(path: str | Path) -> str:
    """Returns the path of the data folder as a text.

    Raises:
        ConfigError: the path is empty. An engine in memory, which None opens, would lose the data.
        TypeError: the path has another type.
    """
    folder = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(folder, str):
        raise TypeError(f"path: {path!r}; valid: a str, a pathlib.Path, or None for data in memory")
    if not folder:
        raise ConfigError("path is empty; valid: a folder, or None for data in memory")
    check_path("path", folder)
    return folder


def _copy(config: Config) -> Config:
    explicit = [entry for entry in config.effective() if entry.source != "default"]
    values = {entry.setting.name: entry.value for entry in explicit}
    return Config(values, {entry.setting.name: entry.source for entry in explicit})


def connect(
    bootstrap: str | Sequence[str],
    *,
    security: client.ClientSecurity | Mapping[str, str] | None = None,
    client_id: str = "kcore",
    timeout: float = TIMEOUT_S,
    call_timeout: float = CALL_TIMEOUT_S,
    wait: float = 0.0,
) -> Node:
    """Connects to a Kafka-compatible cluster, for threads. Any thread may call the node.

    Args:
        bootstrap: HOST:PORT of one or more brokers, in a list or separated by commas.
        security: settings of TLS and SASL by Kafka's names, such as `{"security.protocol": "SASL_SSL", ...}`, or a
            `kcore.client.ClientSecurity`; None: neither TLS nor SASL.
        client_id: the client id in every request.
        timeout: the time limit of one response, in seconds.
        call_timeout: the time in seconds for which an operation repeats its requests after temporary errors.
        wait: the time in seconds for which the call waits for a cluster that is not ready; 0 makes one attempt. An
            attempt that began in this time may take longer, up to `timeout`.

    Raises:
        ConfigError: an address, the client id, a time or a security setting is not valid, or no address is passed.
        TypeError: an argument has another type.
        ConnectionClosedError: no broker can be reached, or none is ready in time.
        TimeoutError: a broker does not respond.
        AuthenticationError: a broker refuses the credentials.
    """
    from kcore.client.aio.threads import Cluster  # noqa: PLC0415 - an embedded engine needs no connections

    check_text("client_id", client_id)
    _check_times(timeout, call_timeout, wait)

    cluster = Cluster(bootstrap, client_id, timeout, _security(security))
    try:
        node = Node(cluster, timeout_s=call_timeout)
        node._calls.connect(wait)
    except BaseException:
        cluster.close()
        raise
    return node


def connect_async(
    bootstrap: str | Sequence[str],
    *,
    security: client.ClientSecurity | Mapping[str, str] | None = None,
    client_id: str = "kcore",
    timeout: float = TIMEOUT_S,
    call_timeout: float = CALL_TIMEOUT_S,
    wait: float = 0.0,
) -> NodeOpener[AsyncNode]:
    """Connects to a Kafka-compatible cluster on the running event loop: `await kcore.connect_async(...)`, or
    `async with`.

    Args:
        bootstrap: HOST:PORT of one or more brokers, in a list or separated by commas.
        security: settings of TLS and SASL by Kafka's names, or a `kcore.client.ClientSecurity`; None: neither.
        client_id: the client id in every request.
        timeout: the time limit of one response, in seconds.
        call_timeout: the time in seconds for which an operation repeats its requests after temporary errors.
        wait: the time in seconds for which the call waits for a cluster that is not ready; 0 makes one attempt. An
            attempt that began in this time may take longer, up to `timeout`.

    Raises:
        ConfigError: an address, the client id, a time or a security setting is not valid, or no address is passed.
        TypeError: an argument has another type.
        ConnectionClosedError: no broker can be reached, or none is ready in time.
        TimeoutError: a broker does not respond.
        AuthenticationError: a broker refuses the credentials.
    """

    check_text("client_id", client_id)
    _check_times(timeout, call_timeout, wait)

    async def make() -> AsyncNode:
        from kcore.client.aio.cluster import AsyncCluster  # noqa: PLC0415 - an embedded engine needs no connections

        cluster = AsyncCluster(bootstrap, client_id, timeout, _security(security))
        try:
            node = AsyncNode(cluster, timeout_s=call_timeout)
            await node._calls.connect(wait)
        except BaseException:
            await cluster.close()
            raise
        return node

    return NodeOpener(make)


def _check_times(timeout: float, call_timeout: float, wait: float) -> None:
    check_seconds("timeout", timeout, LONG_TIMEOUT_S)
    check_seconds("call_timeout", call_timeout, LONG_CALL_S)
    check_seconds("wait", wait, LONG_WAIT_S)


def _security(security: client.ClientSecurity | Mapping[str, str] | None) -> client.ClientSecurity | None:
    if security is None:
        return None
    if isinstance(security, client.ClientSecurity):  # imports ssl
        return security
    check_mapping("security", security)
    return client.ClientSecurity.of(security)
