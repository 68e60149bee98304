"""Writes markers to partitions of this node, in the same commit as the end of the transaction."""

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
    from kcore.protocol.topic_partition import PartitionTuple
    from kcore.runtime.shard import Shard
    from kcore.transaction.markers import Marker, Results

logger = logging.getLogger(__name__)


class MarkerLog(Protocol):
    """The interface of a partition for writers of markers."""

    @property
    def recovering(self) -> bool:
        """True while the partition recovers and serves no requests."""
        ...

    @property
    def closed(self) -> bool:
        """True after the partition was deleted."""
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
    """The writer of markers to partitions that this node leads.

    `TransactionShardCore` calls `put` for every local marker.

    Args:
        partition: returns a partition by topic and number, or None if this node does not have it.
        shard: returns the shard that owns a partition of an internal topic; None for partitions of other topics. The
            shard's state machine must replay the marker, which turns pending offsets into committed offsets.
        now: the clock, which is read once per round.
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

    def write(self, marker: Marker, partitions: Collection[PartitionTuple], done: Callable[[Results], None]) -> None:
        """Stages the marker in each partition, and calls `done` with the codes of all partitions before it returns."""
        done({partition: self.append(marker, *partition) for partition in partitions})

    def append(self, marker: Marker, topic: str, index: int) -> ErrorCode:
        """Stages one marker. Returns NONE or the error code."""
        local = self.look_up(topic, index)
        if local is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        producer_id, epoch, commit, coordinator_epoch, version = marker
        return self.put(*local, producer_id, epoch, commit, coordinator_epoch, version)

    def look_up(self, topic: str, index: int) -> tuple[MarkerLog, Shard[Any] | None] | None:
        """Returns a partition together with the shard that owns it; None if this node does not have the partition.

        In the result, the shard is None for a partition that belongs to no shard.
        """
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
        """Stages one marker in a partition that `look_up` returned. Returns NONE or the error code."""
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
            logger.error(
                "transaction coordinator: the end marker of producer id %d could not be written to partition %r: %s; "
                "the coordinator tries again; if this repeats, check the disk",
                producer_id,
                partition,
                error,
            )
            return ErrorCode.KAFKA_STORAGE_ERROR
        if code is NO_ERROR:
            return code
        # An inactive shard returns a coordinator's code, but clients of a partition expect a leader's code.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_AWAY else code
