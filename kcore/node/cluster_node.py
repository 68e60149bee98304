"""Nodes that belong to a cluster: `kcore.open(cluster=...)` and `kcore.open_async(cluster=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.client.aio.cluster import AsyncCluster
from kcore.client.aio.threads import Cluster
from kcore.cluster.urls import store_of_node
from kcore.config.node import Config
from kcore.node._async.node import AsyncNode
from kcore.node._sync.node import Node
from kcore.server.cluster_member import ClusterMember, ThreadMember
from kcore.server.inter_node import inter_node_security

if TYPE_CHECKING:
    from kcore.client.security import ClientSecurity
    from kcore.server.cluster_node import ClusterNode

CLIENT_ID = "kcore"
TIMEOUT_S = 30.0


class ClusteredNode(Node):
    """A node of a cluster in this process, for threads. `kcore.open(cluster=...)` returns it.

    Clients and the other nodes reach this node over its listeners. The operations of this object send their requests to
    the leaders of the partitions, on any node. When this node is closed, its partitions move to other nodes.
    """

    def __init__(self, url: str, config: Config) -> None:
        self._member = ThreadMember(store_of_node(url, config), config)
        try:
            super().__init__(
                Cluster(self._member.member.bootstrap, CLIENT_ID, TIMEOUT_S, _security(self._member.member))
            )
        except BaseException:
            self._member.stop()
            raise

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self._member.member.node.config

    def close(self) -> None:
        """Closes the members, consumers and producers, moves the partitions to other nodes, and ends this node."""
        self._calls.callbacks.require_outside("the node")
        try:
            super().close()
        finally:
            self._member.stop()

    def __enter__(self) -> ClusteredNode:
        return self


class AsyncClusteredNode(AsyncNode):
    """A node of a cluster on an event loop. `kcore.open_async(cluster=...)` returns it; see `ClusteredNode`."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        super().__init__(AsyncCluster(member.bootstrap, CLIENT_ID, TIMEOUT_S, _security(member)))

    @classmethod
    async def start(cls, url: str, config: Config) -> AsyncClusteredNode:
        """Registers a node and opens its listeners.

        Raises:
            ConfigError: a setting does not fit a node of a cluster.
            LogError: the store refuses the node permanently.
            OSError: the node cannot listen.
        """
        member = ClusterMember(store_of_node(url, config), config)
        await member.start()
        try:
            return cls(member)
        except BaseException:
            await member.stop()
            raise

    @property
    def config(self) -> Config:
        """The effective settings."""
        return self._member.node.config

    async def close(self) -> None:
        """Closes the members, consumers and producers, moves the partitions to other nodes, and ends this node.

        After the end of the node's event loop, another loop may close the node. The node then ends as after a crash:
        the controller moves its partitions when its lease has ended.

        Raises:
            ConcurrentCallError: the node's event loop is running in another thread. The node stays open.
        """
        if self._calls.loop_has_ended():
            await super().close()
            self._member.node.abandon()
            return
        self._calls.callbacks.require_outside("the node")
        try:
            await super().close()
        finally:
            await self._member.stop()

    async def __aenter__(self) -> AsyncClusteredNode:
        return self


def _security(member: ClusterMember) -> ClientSecurity | None:
    node: ClusterNode = member.node
    return inter_node_security(node.config, node.inter_listener)
