"""The nodes of the cluster, their advertised addresses, and the leaders of partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Broker(NamedTuple):
    """A node as the clients of one listener see it.

    Attributes:
        node_id: the id of the node.
        host: the advertised host of the client's listener.
        port: the advertised port.
        rack: the node's rack, or None.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """The leader of a partition and its leader epoch (KIP-101)."""

    node_id: int
    epoch: int


class ClusterView(Protocol):
    """The cluster as one of its nodes sees it."""

    @property
    def node_id(self) -> int:
        """This node's id."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster's id: 22 characters, never changed."""
        ...

    @property
    def directory_id(self) -> bytes:
        """The id of this node's data folder, sixteen bytes."""
        ...

    @property
    def controller_id(self) -> int:
        """The id of the node that serves topic administration."""
        ...

    @property
    def nodes(self) -> Sequence[int]:
        """The ids of the live nodes."""
        ...

    def placement_order(self, replicas: int) -> Sequence[int]:
        """Returns the nodes for new partitions, in the order in which replicas are placed.

        Adjacent nodes are in different racks. Draining nodes are left out if there are enough other nodes.

        Args:
            replicas: the number of replicas of each partition.
        """
        ...

    def brokers(self, listener: str) -> Sequence[Broker]:
        """Returns the live nodes with their addresses for clients of `listener`."""
        ...

    def broker(self, node_id: int, listener: str) -> Broker | None:
        """Returns a node, or None if the id is unknown or the node has no such listener."""
        ...

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Returns the leader of a partition, or None while it has none."""
        ...


class AdvertisedCluster(ClusterView, Protocol):
    """A `ClusterView` to which this node's own listeners are added as they open."""

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Sets the address of this node for clients of `listener`."""
        ...


class OwnIdentity:
    """The ids of this node and its cluster, as every `ClusterView` has them.

    Args:
        node_id: this node's id.
        cluster_id: the cluster's id.
    """

    __slots__ = ("_cluster_id", "_node_id")

    def __init__(self, node_id: int, cluster_id: str) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self._node_id

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster_id

    @property
    def directory_id(self) -> bytes:
        """The id of this node's data folder, derived from the ids of the cluster and the node."""
        return hashlib.sha256(f"{self._cluster_id}/{self._node_id}".encode()).digest()[:16]


class SingleNodeCluster(OwnIdentity):
    """A cluster of one node, which leads every partition.

    Args:
        node_id: this node's id.
        cluster_id: the cluster's id.
        leader_epoch: the epoch in which this node leads. It increases at each start of the node, which fences clients
            and appends of an earlier run.
        rack: the node's rack, or None.
    """

    __slots__ = ("_addresses", "_leader", "_rack")

    def __init__(self, node_id: int, cluster_id: str, leader_epoch: int = 0, rack: str | None = None) -> None:
        super().__init__(node_id, cluster_id)
        self._leader = Leader(node_id, leader_epoch)
        self._rack = rack
        self._addresses: dict[str, tuple[Broker]] = {}

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Sets the address of this node for clients of `listener`."""
        self._addresses[listener] = (Broker(self._node_id, host, port, self._rack),)

    @property
    def controller_id(self) -> int:
        """This node's id, because the only node is the controller."""
        return self._node_id

    @property
    def nodes(self) -> Sequence[int]:
        """This node's id alone."""
        return (self._node_id,)

    def placement_order(self, replicas: int) -> Sequence[int]:
        """Returns this node's id alone."""
        return (self._node_id,)

    def brokers(self, listener: str) -> Sequence[Broker]:
        """Returns this node, or an empty sequence for a listener without an address."""
        return self._addresses.get(listener, ())

    def broker(self, node_id: int, listener: str) -> Broker | None:
        """Returns this node at its address for `listener`, or None for any other id."""
        if node_id != self._node_id:
            return None
        return next(iter(self._addresses.get(listener, ())), None)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Returns this node, for every partition."""
        return self._leader
