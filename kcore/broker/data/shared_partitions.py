"""The partitions of all topics on a node that leads only some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kcore.broker.data.partition import Partition
from kcore.broker.data.partitions import Partitions, TopicPartitions, no_settings
from kcore.log.errors import FencedWriteError
from kcore.log.interface import PartitionKey

if TYPE_CHECKING:
    from kcore.log.interface import EpochEntry, PartitionLog
    from kcore.log.shared_engine import SharedLogEngine
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices


class _NoLog:
    """An empty log that refuses appends. It represents the logs of partitions that other nodes lead."""

    log_start_offset = end_offset = high_watermark = cleaned_to = appended_bytes = 0
    leader_epoch = -1
    snapshot = None
    epoch_entries: tuple[EpochEntry, ...] = ()
    committed_epochs: tuple[EpochEntry, ...] = ()

    def append(self, batch: object, leader_epoch: int) -> int:
        """Refuses an append."""
        raise FencedWriteError("another node leads the partition")

    append_built = append


NO_LOG: Final[Any] = _NoLog()


class SharedPartitions(Partitions):
    """The partitions that this node leads, and placeholders for the partitions of other nodes.

    A placeholder is always `recovering`, so the response to every request for its partition is NOT_LEADER_OR_FOLLOWER.
    A partition that changes its leader is closed, and a new object takes its place, so that no request sees one object
    under two leaders.

    `Partitions` documents the arguments.
    """

    __slots__ = ()

    def __init__(
        self,
        engine: SharedLogEngine,
        pipeline: CommitPipeline,
        slices: Slices,
        settings: Callable[[str], Mapping[str, Any]] = no_settings,
        *,
        recover: Callable[[Partition], Iterator[None]] = Partition.recovery,
    ) -> None:
        super().__init__(engine, pipeline, slices, settings, leader_epoch=-1, recover=recover)

    def __iter__(self) -> Iterator[Partition]:
        """Yields the partitions that this node leads."""
        return (partition for partition in super().__iter__() if partition.log is not NO_LOG)

    def led(self, key: PartitionKey) -> Partition | None:
        """Returns a partition that this node leads, or None."""
        topic = self.ids.get(key.topic_id)
        partition = None if topic is None else topic.get(key.partition)
        return None if partition is None or partition.log is NO_LOG else partition

    def high_watermark(self, topic: str, index: int) -> int | None:
        """Returns the committed end of a partition; None if this node does not lead it."""
        partition = self.get(topic, index)
        return None if partition is None or partition.log is NO_LOG else partition.high_watermark

    def lead(self, key: PartitionKey, log: PartitionLog, leader_epoch: int) -> Partition | None:
        """Begins to serve a partition whose log this node has taken over. Returns None if its topic is deleted."""
        topic = self.ids.get(key.topic_id)
        before = None if topic is None else topic.get(key.partition)
        if topic is None or before is None:
            return None
        partition = self._make(topic, key.partition, log, leader_epoch)
        partition.producers.adopt_refused(before.producers)
        self._replace(topic, before, partition)
        self._begin_recovery(topic, partition)
        return partition

    def resign(self, key: PartitionKey) -> None:
        """Stops serving a partition: waiting requests fail with an error, and later requests with
        NOT_LEADER_OR_FOLLOWER.
        """
        topic = self.ids.get(key.topic_id)
        before = self.led(key)
        if topic is not None and before is not None:
            self._replace(topic, before, self._placeholder(topic, key.partition))

    def _replace(self, topic: TopicPartitions, before: Partition, after: Partition) -> None:
        topic.partitions[after.index] = after
        before.close()

    def _open(self, topic: TopicPartitions, size: int) -> None:
        topic.size = size
        self._open_until(topic, size)

    def _open_until(self, topic: TopicPartitions, stop: int) -> None:
        for index in range(len(topic.partitions), stop):
            topic.partitions.append(self._placeholder(topic, index))

    def _placeholder(self, topic: TopicPartitions, index: int) -> Partition:
        partition = self._make(topic, index, NO_LOG, -1)
        partition.recovering = True
        return partition
