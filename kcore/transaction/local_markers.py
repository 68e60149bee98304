"""Markers for partitions of this node: they become part of the commit that the transaction's end is part of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.protocol.error_codes import COORDINATOR_AWAY, NO_ERROR, ErrorCode
from kcore_ext.transaction.coordinator import LocalMarkersCore

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.shard import Shard
    from kcore.transaction.markers import Marker, Results, TopicPartition

logger = logging.getLogger(__name__)


class MarkerLog(Protocol):
    """A partition, as far as markers go."""

    @property
    def recovering(self) -> bool:
        """Whether it serves nobody yet."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was deleted."""
        ...

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        timestamp_ms: int,
        transaction_version: int = 0,
    ) -> int:
        """Stages a marker; returns its offset."""
        ...


class LocalMarkers(LocalMarkersCore):
    """Writes markers to partitions that this node leads. Every end of a transaction comes through `put`; see
    `TransactionShardCore`.

    Args:
        partition: finds a partition; None if there is none.
        shard: finds the shard whose log a partition of an internal topic is; None for partitions of other topics. Its
            machine must hear of the marker: pending offsets become a group's with it.
        now: the time of the round.
    """

    __slots__ = ("_now", "_partition", "_shard")

    def __init__(
        self,
        partition: Callable[[str, int], MarkerLog | None],
        shard: Callable[[str, int], Shard[Any] | None],
        now: Now,
    ) -> None:
        self._partition = partition
        self._shard = shard
        self._now = now

    def write(self, marker: Marker, partitions: Collection[TopicPartition], done: Callable[[Results], None]) -> None:
        """Stages the markers; see `MarkerWriter`."""
        done({place: self.append(marker, *place) for place in partitions})

    def append(self, marker: Marker, topic: str, index: int) -> ErrorCode:
        """Stages one marker. Returns why it was not, or NONE."""
        found = self.look_up(topic, index)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        producer_id, epoch, commit, coordinator_epoch, version = marker
        return self.put(*found, producer_id, epoch, commit, coordinator_epoch, version)

    def look_up(self, topic: str, index: int) -> tuple[MarkerLog, Shard[Any] | None] | None:
        """A partition, and the shard whose log it is; None if it is not here."""
        partition = self._partition(topic, index)
        if partition is None or partition.closed:
            return None
        return partition, self._shard(topic, index)

    def put(
        self,
        partition: MarkerLog,
        shard: Shard[Any] | None,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        version: int,
    ) -> ErrorCode:
        """Stages one marker in a partition that was looked up. Returns why it was not, or NONE."""
        if partition.recovering:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            if shard is None:
                partition.append_marker(producer_id, epoch, coordinator_epoch, commit, self._now.wall_ms, version)
                return NO_ERROR
            code = shard.append_marker(producer_id, epoch, coordinator_epoch, commit, version)
        except KafkaError as error:
            return error.code
        except LogError as error:
            logger.error("%r: a marker was not written: %s", partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if code is NO_ERROR:
            return code
        # What a coordinator says of itself, in the words of a partition's leader.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_AWAY else code
