"""`kcore serve --cluster`: runs one node of a cluster. If another node fences it, the node registers again."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING

from kcore.cli.stop_signals import stop_at_signals
from kcore.errors import EngineInterruptedError
from kcore.log.errors import LogError
from kcore.server.listeners import format_address
from kcore.server.unused_settings import warn_of_unused_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcore.cluster.store import ClusterStore
    from kcore.config.node import Config
    from kcore.server.cluster_member import ClusterMember
    from kcore.server.cluster_node import ClusterNode
    from kcore.server.http import HttpServer

logger = logging.getLogger("kcore.serve")


class Stop:
    """The request to end a node.

    Attributes:
        requested: an event, which is set when the node must end.
        hand_over: True if the node gives its partitions to other nodes; False if all nodes of the cluster end.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hand_over = True


async def serve_cluster(config: Config, url: str) -> int:
    """Serves as one node of a cluster until SIGTERM, SIGINT or SIGHUP.

    Args:
        config: the node's settings.
        url: the URL of the cluster's store.

    Returns:
        The exit code: 1 if the node cannot serve.
    """
    from kcore.cluster.urls import store_of_node  # noqa: PLC0415  # only nodes of a cluster need it

    warn_of_unused_settings(config, in_cluster=True)
    return await serve_node(config, store_of_node(url, config), Stop())


async def serve_node(
    config: Config, open_store: Callable[[], ClusterStore], stop: Stop, ready: Callable[[], None] = lambda: None
) -> int:
    """Serves as one node of a cluster until SIGTERM, SIGINT, SIGHUP or `stop`. The node registers again if it is
    fenced.

    Args:
        config: the node's settings.
        open_store: opens the cluster's store.
        stop: the request to end the node.
        ready: called whenever the node has begun to serve.

    Returns:
        The exit code: 1 if the node cannot serve.
    """
    from kcore.server.cluster_member import ClusterMember  # noqa: PLC0415  # only nodes of a cluster need it

    loop = asyncio.get_running_loop()
    stop_at_signals(loop, stop.requested.set)

    async def attach(node: ClusterNode) -> Callable[[], Awaitable[None]]:
        http = await _http(node, config)
        if http is not None:
            address = format_address(*http.address)
            where = f"console at http://{address}/, metrics at http://{address}/metrics"
            print(f"kcore: node {config.node_id}: {where}", flush=True)
        for name, (host, port) in node.server.addresses.items():
            print(f"kcore: node {config.node_id}: {name} listening on {format_address(host, port)}", flush=True)
        ready()

        async def detach() -> None:
            if http is not None:
                await http.stop()

        return detach

    member = ClusterMember(open_store, config, attach=attach, survives_interrupts=False)
    if not await _started(member, stop):
        return 0 if stop.requested.is_set() else 1
    await _first(stop.requested.wait(), member.ended)
    if member.ended.done():
        member.ended.result()
        print(f"kcore: {EngineInterruptedError()}", file=sys.stderr)
        return 1
    await member.stop(hand_over=stop.hand_over)
    logger.info("server: has ended in an orderly way")
    return 0


async def _started(member: ClusterMember, stop: Stop) -> bool:
    """Starts a node. Returns False if the node cannot start, or if a request to stop comes first.

    Prints the cause if the node cannot start.
    """
    starting = asyncio.ensure_future(member.start())
    try:
        await _first(stop.requested.wait(), starting)
        if not starting.done():
            starting.cancel()
        await starting
    except asyncio.CancelledError:
        return False
    except (LogError, OSError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        print(f"kcore: node {member.node.config.node_id} cannot start: {cause}", file=sys.stderr)
        return False
    return True


async def _http(node: ClusterNode, config: Config) -> HttpServer | None:
    """Starts the console and metrics, if they are configured."""
    if not config.kcore_http_listen:
        return None
    from kcore.server.http import HttpServer  # noqa: PLC0415
    from kcore.server.observe import Observer  # noqa: PLC0415

    http = HttpServer(Observer(node.engine, node.driver, node.server), config.kcore_http_listen)
    await http.start()
    return http


async def _first(*waits: Awaitable[object]) -> None:
    """Waits until one of several awaitables ends, then cancels the others. Does not cancel tasks and futures."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, wait in zip(tasks, waits, strict=True):
        if task is not wait:
            task.cancel()
