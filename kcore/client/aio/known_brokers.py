"""The brokers, partition leaders and coordinators of a cluster, as the last responses have named them."""

from __future__ import annotations

from typing import Any

from kcore.client.aio.broker import Broker
from kcore.client.aio.routes import Route, route_of
from kcore.protocol.messages.metadata import MetadataResponse
from kcore.protocol.topic_partition import TopicPartition


class KnownBrokers:
    """The brokers that a client has looked up, by the requests that they serve. It sends no request itself.

    Attributes:
        by_id: all brokers of the last Metadata response.
        leaders: the leader of each partition that was looked up.
        coordinators: the coordinators by key type and key.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Broker] = {}
        self.leaders: dict[TopicPartition, Broker] = {}
        self.coordinators: dict[tuple[int, str], Broker] = {}
        self._epochs: dict[TopicPartition, tuple[int, bytes]] = {}  # leader epoch, topic id
        self._controller_id = -1

    @property
    def controller(self) -> Broker | None:
        """The controller; None: unknown."""
        return self.by_id.get(self._controller_id)

    @property
    def names_controller(self) -> bool:
        """True if the last Metadata response had the controller's id, even if it had no address for this id."""
        return self._controller_id >= 0

    def update(self, response: MetadataResponse) -> None:
        """Stores the brokers, the controller and the partition leaders of a Metadata response.

        Keeps a stored leader whose epoch is higher: the broker that responded does not know the newest leader yet.
        """
        brokers = {row.node_id: Broker(row.node_id, row.host, row.port) for row in response.brokers}
        if brokers:
            self.by_id = brokers
        self._controller_id = response.controller_id
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name or "", row.partition_index)
                epoch, topic_id = self._epochs.get(partition, (-1, topic.topic_id))
                if row.leader_epoch < epoch and topic_id == topic.topic_id:
                    continue
                self._epochs[partition] = (row.leader_epoch, topic.topic_id)
                if row.leader_id in brokers:
                    self.leaders[partition] = brokers[row.leader_id]
                else:
                    self.leaders.pop(partition, None)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the epoch of a partition's leader; -1: unknown."""
        epoch = self._epochs.get(partition)
        return -1 if epoch is None else epoch[0]

    def serving(self, request: Any) -> Broker | None:
        """Returns the broker of a request; None: unknown, or every broker serves the request."""
        route = route_of(request)
        if route.coordinator is not None:
            return self.coordinators.get(route.coordinator)
        if route.partitions:
            return self.leaders.get(route.partitions[0])
        return self.controller if route.controller else None

    def forget_route(self, route: Route) -> None:
        """Forgets the broker of a route, because an error shows that another broker serves it now."""
        if route.coordinator is not None:
            self.coordinators.pop(route.coordinator, None)
        for partition in route.partitions:
            self.leaders.pop(partition, None)
        if route.controller:
            self._controller_id = -1

    def forget_broker(self, broker: Broker) -> None:
        """Forgets that a broker leads partitions or is a coordinator, because it cannot be reached."""
        address = broker[1:]
        self.leaders = {key: value for key, value in self.leaders.items() if value[1:] != address}
        self.coordinators = {key: value for key, value in self.coordinators.items() if value[1:] != address}
