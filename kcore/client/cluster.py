"""A client's view of a cluster: partition leaders, and one connection to each broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kcore.client.connection import Connection
from kcore.client.security import ClientSecurity
from kcore.errors import KcoreError
from kcore.protocol.error_codes import ErrorCode, code_name
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

NAMES_VERSION = 9  # Metadata 10 and later also address topics by id (KIP-516)

KEYS_VERSION = 4  # FindCoordinator 4 and later look up several keys (KIP-699)


class Cluster:
    """Connections to the brokers of a cluster, reopened after they were closed. Not thread-safe.

    Args:
        bootstrap: HOST:PORT of one broker.
        client_id: the client id in every request.
        timeout_s: time limit of one response.
        security: TLS and SASL for every broker; None: neither.

    Raises:
        ConnectionClosedError: no server listens on `bootstrap`.
        AuthenticationError: a broker refuses the client's credentials.
    """

    def __init__(
        self,
        bootstrap: str,
        client_id: str = "kcore",
        timeout_s: float = 30.0,
        security: ClientSecurity | None = None,
    ) -> None:
        self._options: dict[str, Any] = {"client_id": client_id, "timeout_s": timeout_s, "security": security}
        self._address = bootstrap
        self._bootstrap = Connection.to(bootstrap, **self._options)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[tuple[str, int], tuple[str, int]] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for connection in (self._bootstrap, *self._connections.values()):
            connection.close()

    def send(self, request: Any, version: int | None = None) -> Any:
        """Sends a request that any broker can serve."""
        if self._bootstrap.closed:
            self._bootstrap = Connection.to(self._address, **self._options)
        return self._bootstrap.send(request, version)

    def partitions(self, topics: Sequence[str], create: bool = False) -> dict[str, list[int]]:
        """Looks up topics and the leaders of their partitions.

        Args:
            topics: topic names.
            create: True to let the server create missing topics, if it is configured to.

        Returns:
            Topic -> its partitions in order; a missing topic has none.

        Raises:
            KcoreError: the lookup of a topic failed.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=create
        )
        response = self.send(request, NAMES_VERSION)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        found: dict[str, list[int]] = {}
        for topic in response.topics:
            if topic.error_code and topic.error_code not in _NOT_YET:
                raise KcoreError(f"topic {topic.name!r}: {code_name(topic.error_code)}")
            found[topic.name] = sorted(part.partition_index for part in topic.partitions)
            for part in topic.partitions:
                if part.leader_id in addresses:
                    self._leaders[topic.name, part.partition_index] = addresses[part.leader_id]
        return found

    def leader(self, topic: str, partition: int) -> Connection:
        """Returns a connection to the leader of a partition that `partitions` has found.

        Raises:
            KcoreError: the partition has no leader.
        """
        place = self._leaders.get((topic, partition))
        if place is None:
            raise KcoreError(f"{topic}-{partition} has no leader")
        return self._connection(place)

    def coordinator(self, group_id: str) -> Connection:
        """Returns a connection to a group's coordinator.

        Raises:
            KcoreError: no coordinator is available.
        """
        response = self.send(FindCoordinatorRequest(coordinator_keys=[group_id]), KEYS_VERSION).coordinators[0]
        if response.error_code:
            raise KcoreError(f"group {group_id!r}: {code_name(response.error_code)}")
        return self._connection((response.host, response.port))

    def _connection(self, place: tuple[str, int]) -> Connection:
        connection = self._connections.get(place)
        if connection is None or connection.closed:
            connection = self._connections[place] = Connection(*place, **self._options)
        return connection


_NOT_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
