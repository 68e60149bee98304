"""The base class of the embedded transports of both API styles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.clock import SystemClock
from kcore.errors import KafkaError
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.topic_partition import TopicPartition

LOCAL = Broker(0, "localhost", 0)
"""The broker that an embedded transport reports in place of a cluster. It stands for the engine."""


def metadata_request(topics: Iterable[str] | None, create: bool) -> MetadataRequest:
    """Builds a Metadata request for topics; None requests all topics."""
    listed = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=listed, allow_auto_topic_creation=create)


def coordinator_request(key_type: int, key: str) -> FindCoordinatorRequest:
    """Builds a request for the coordinator of a key."""
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])


def check_coordinator(response: FindCoordinatorResponse) -> None:
    """Raises the error of a response to `coordinator_request`."""
    (row,) = response.coordinators
    if row.error_code:
        raise KafkaError.of(row.error_code, row.error_message)


class EmbeddedBase:
    """The base of both embedded transports: one broker, which leads all partitions and coordinates all groups."""

    def __init__(self, engine: Any, client_id: str) -> None:
        self._engine = engine
        self._client_id = client_id

    def __str__(self) -> str:
        return str(self._engine.config.kcore_data_dir or "memory")

    @property
    def clock_ms(self) -> Callable[[], int] | None:
        """Returns the engine's clock as the source of timestamps of records; None: the system's clock."""
        clock = self._engine.engine.clock
        return None if isinstance(clock, SystemClock) else clock.wall_ms

    def known_broker(self, request: Any) -> Broker | None:
        """Returns None, because an engine has no address."""
        return None

    def forget(self, request: Any) -> None:
        """Does nothing, because the engine itself serves every request."""

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Does nothing, because the engine itself leads every partition."""

    def close_channel(self, channel: str) -> None:
        """Does nothing: an engine has no connections."""

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns -1 (unknown). An engine truncates no log, so positions need no validation."""
        return -1

    def _newest(self, request_type: Any, at_most: int | None) -> int:
        newest: int = self._engine.engine.newest_version(request_type())
        return newest if at_most is None else min(newest, at_most)
