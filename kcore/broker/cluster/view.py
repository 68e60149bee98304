"""The cluster as one of its nodes sees it: nodes and leaders from the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.runtime.cluster import Broker, Leader, OwnIdentity

if TYPE_CHECKING:
    from kcore.broker.metadata.brokers import BrokerRegistration
    from kcore.broker.metadata.topics import Topics


class SharedClusterView(OwnIdentity):
    """A `ClusterView` of several nodes.

    Args:
        node_id: this node's id.
        cluster_id: the cluster's id.
        topics: the metadata that this node has replayed.

    Attributes:
        controller: the controller and its epoch; None while no controller is known.
    """

    __slots__ = ("_own", "_topics", "controller")

    def __init__(self, node_id: int, cluster_id: str, topics: Topics) -> None:
        super().__init__(node_id, cluster_id)
        self._topics = topics
        self._own: dict[str, Broker] = {}  # listeners of this node that its registration does not have
        self.controller: Leader | None = None

    def advertise(self, listener: str, host: str, port: int) -> None:
        """Adds a listener that only clients of this node use, such as clients in this process."""
        self._own[listener] = Broker(self._node_id, host, port)

    @property
    def controller_id(self) -> int:
        """The id of the node that serves topic administration; -1 while none is known."""
        return -1 if self.controller is None else self.controller.node_id

    @property
    def nodes(self) -> Sequence[int]:
        """The ids of the live nodes, ascending."""
        return sorted(node_id for node_id, broker in self._topics.image.brokers.items() if not broker.fenced)

    def placement_order(self, replicas: int) -> Sequence[int]:
        """Returns the nodes for new partitions: first one node of each rack, then a second node of each rack, and so on
        (KIP-36).

        The result includes draining nodes only if there are fewer other nodes than replicas. A draining node would have
        to give its new partitions away at once.

        Args:
            replicas: the number of replicas of each partition.
        """
        brokers = self._topics.image.brokers
        staying = [node_id for node_id in self.nodes if not brokers[node_id].draining]
        racks: dict[str, list[int]] = {}
        for node_id in staying if len(staying) >= max(replicas, 1) else self.nodes:
            racks.setdefault(brokers[node_id].rack or "", []).append(node_id)
        rows = zip_longest(*(racks[rack] for rack in sorted(racks)))
        return [node_id for row in rows for node_id in row if node_id is not None]

    def registration(self, node_id: int) -> BrokerRegistration | None:
        """Returns the registration of a live node, or None."""
        broker = self._topics.image.brokers.get(node_id)
        return None if broker is None or broker.fenced else broker

    def brokers(self, listener: str) -> Sequence[Broker]:
        """Returns the live nodes that have this listener."""
        found = (self.broker(node_id, listener) for node_id in self.nodes)
        return tuple(broker for broker in found if broker is not None)

    def broker(self, node_id: int, listener: str) -> Broker | None:
        """Returns a live node at its address for `listener`, or None."""
        registration = self.registration(node_id)
        if registration is None:
            return None
        address = registration.address(listener)
        if address is None:
            return self._own.get(listener) if node_id == self._node_id else None
        return Broker(node_id, address.host, address.port, registration.rack)

    def leader(self, topic: str, partition: int) -> Leader | None:
        """Returns the leader of a partition, or None while it has none."""
        if topic == CLUSTER_METADATA:
            return self.controller
        image = self._topics.image
        info = image.names.get(topic)
        leader = None if info is None else image.leader(info.topic_id, partition)
        return None if leader is None or leader.node_id < 0 else leader
