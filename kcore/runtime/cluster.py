"""Who the nodes are, where clients find them, and which of them leads which partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Broker(NamedTuple):
    """A node as the clients of one listener see it.

    Attributes:
        node_id: its id.
        host: the advertised host of the listener that the client came through.
        port: the advertised port.
        rack: where it stands, or None.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """Who leads a partition, and in which epoch (KIP-101)."""

    node_id: int
    epoch: int


class ClusterView(Protocol):
    """The cluster as one of its nodes sees it."""

    @property
    def node_id(self) -> int:
        """This node."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id: 22 characters that never change."""
        ...

    @property
    def controller_id(self) -> int:
        """The node that clients send topic administration to."""
        ...

    @property
    def nodes(self) -> Sequence[int]:
        """The ids of the nodes that are alive."""
        ...

    def brokers(self, listener: str) -> Sequence[Broker]:
        """The nodes that are alive, with their addresses for clients of `listener`."""
        ...

    def broker(self, node_id: int, listener: str) -> Broker | None:
        """One node, None if it is unknown or has no such listener."""
        ...

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader of a partition, None while it has none."""
        ...


class SingleNodeCluster:
    """A cluster of one node, which leads everything.

    Args:
        node_id: this node's id.
        cluster_id: the cluster's id.
        leader_epoch: the epoch in which this node leads, one more at each start of the node, so that clients and
            appends of an earlier life are told from those of this one.
        rack: where the node stands, or None.
    """

    __slots__ = ("_addresses", "_cluster_id", "_leader", "_node_id", "_rack")

    def __init__(self, node_id: int, cluster_id: str, leader_epoch: int = 0, rack: str | None = None) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._leader = Leader(node_id, leader_epoch)
        self._rack = rack
        self._addresses: dict[str, tuple[Broker]] = {}

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Clients of `listener` find this node at `host`:`port` from now on."""
        self._addresses[listener] = (Broker(self._node_id, host, port, self._rack),)

    @property
    def node_id(self) -> int:
        """This node."""
        return self._node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster_id

    @property
    def controller_id(self) -> int:
        """This node."""
        return self._node_id

    @property
    def nodes(self) -> Sequence[int]:
        """This node."""
        return (self._node_id,)

    def brokers(self, listener: str) -> Sequence[Broker]:
        """This node; nothing for a listener that has no address."""
        return self._addresses.get(listener, ())

    def broker(self, node_id: int, listener: str) -> Broker | None:
        """This node at its address for `listener`, None for any other."""
        if node_id != self._node_id:
            return None
        return next(iter(self._addresses.get(listener, ())), None)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """This node."""
        return self._leader
