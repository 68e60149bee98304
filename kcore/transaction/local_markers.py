"""Markers for partitions of this node: they become part of the commit that the transaction's end is part of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.protocol.error_codes import COORDINATOR_AWAY, ErrorCode

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.shard import Shard
    from kcore.transaction.markers import Marker, Results, TopicPartition

logger = logging.getLogger(__name__)


class MarkerCheck(Protocol):
    """What a partition knows of its producers."""

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Raises a KafkaError if the marker comes too late."""
        ...


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

    @property
    def producers(self) -> MarkerCheck:
        """Its producers."""
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


class LocalMarkers:
    """Writes markers to partitions that this node leads.

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
        partition = self._partition(topic, index)
        if partition is None or partition.closed:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.recovering:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        producer_id, epoch, commit, coordinator_epoch, version = marker
        shard = self._shard(topic, index)
        try:
            if shard is None:
                partition.append_marker(
                    producer_id, epoch, coordinator_epoch, commit, self._now.wall_ms, transaction_version=version
                )
                return ErrorCode.NONE
            partition.producers.check_marker(producer_id, epoch, coordinator_epoch, version)
            code = shard.append_marker(producer_id, epoch, coordinator_epoch, commit)
        except KafkaError as error:
            return error.code
        except LogError as error:
            logger.error("%s-%d: a marker was not written: %s", topic, index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        # What a coordinator says of itself, in the words of a partition's leader.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_AWAY else code
