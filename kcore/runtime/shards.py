"""All shards of one internal topic: finding the shard of a key, loading and unloading."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import StateMachine
from kcore.runtime.partitioner import partition_for
from kcore.runtime.shard import Shard
from kcore.runtime.shard_state import ShardState

if TYPE_CHECKING:
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.loader import ReadableLog
    from kcore.runtime.slices import Slices

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)


class Shards(Generic[M]):
    """The shards of an internal topic that this node owns.

    Args:
        topic: the topic's name (`__consumer_offsets`, …).
        partitions: the topic's number of partitions on all nodes. It determines the shard of a key and never changes.
        make: creates the shard of a partition.
        pipeline: commits decided records before a shard is unloaded.

    Attributes:
        on_made: called with each new shard before its load; or None.
        by_partition: for each partition its shard, or None if this node does not own it; for compiled code. It is
            always the same list; callers do not change it.
    """

    __slots__ = ("_ahead", "_make", "_pipeline", "_shards", "by_partition", "on_made", "partitions", "topic")

    def __init__(self, topic: str, partitions: int, make: Callable[[int], Shard[M]], pipeline: CommitPipeline) -> None:
        self.topic = topic
        self.partitions = partitions
        self._make = make
        self._pipeline = pipeline
        self.on_made: Callable[[Shard[M]], None] | None = None
        self._shards: dict[int, Shard[M]] = {}
        self.by_partition: list[Shard[M] | None] = [None] * partitions
        self._ahead: dict[int, Shard[M]] = {}  # shards that read the logs of other nodes, and serve nothing

    def __iter__(self) -> Iterator[Shard[M]]:
        return iter(self._shards.values())

    def __len__(self) -> int:
        return len(self._shards)

    def of(self, key: str) -> Shard[M]:
        """Returns the shard of `key`.

        Raises:
            KafkaError: NOT_COORDINATOR if this node does not own the shard.
        """
        shard = self.find(key)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def find(self, key: str) -> Shard[M] | None:
        """Returns the shard of `key`, or None if this node does not own it."""
        return self._shards.get(partition_for(key, self.partitions))

    def get(self, index: int) -> Shard[M] | None:
        """Returns the shard of a partition, or None if this node does not own it."""
        return self._shards.get(index)

    def load(self, index: int, leader_epoch: int) -> None:
        """Loads the shard of a partition that this node owns since `leader_epoch`.

        The call is ignored if the epoch is not newer than the shard's epoch, unless the shard's load failed.
        """
        shard = self._shards.get(index)
        if shard is not None:
            if shard.state is ShardState.INITIAL:  # an exception interrupted the first call
                shard.load()
            if leader_epoch <= shard.leader_epoch and shard.state is not ShardState.FAILED:
                return
            shard.leader_epoch = leader_epoch
            shard.load_again()
            return
        shard = self._make(index)
        shard.leader_epoch = leader_epoch
        ahead = self._ahead.pop(index, None)
        if ahead is not None:
            shard.continue_from(ahead)
        if self.on_made is not None:
            self.on_made(shard)
        self._shards[index] = self.by_partition[index] = shard
        shard.load()

    def read_ahead(self, index: int, log: ReadableLog) -> None:
        """Begins to replay the log of a partition that this node will own soon, so that its `load` is short.

        Args:
            index: the partition, which another node owns.
            log: the log that the other node writes. When this node becomes the owner, the load continues after the
                records that were replayed here.
        """
        if index not in self._shards:
            self.stop_reading_ahead(index)
            ahead = self._ahead[index] = self._make(index)
            ahead.read_ahead(log)

    def stop_reading_ahead(self, index: int) -> None:
        """Discards the records that were read ahead for a partition."""
        ahead = self._ahead.pop(index, None)
        if ahead is not None:
            ahead.stop_reading_ahead()

    def unload(self, index: int, leader_epoch: int | None = None) -> None:
        """Unloads the shard of a partition that another node owns since `leader_epoch`; None: the partition is deleted.

        The call is ignored if the epoch is not newer than the shard's epoch.
        """
        shard = self._shards.get(index)
        if shard is None or (leader_epoch is not None and leader_epoch <= shard.leader_epoch):
            return
        self._pipeline.commit()
        shard.unload()
        self.by_partition[index] = None
        del self._shards[index]

    @property
    def slices(self) -> Slices | None:
        """The node's queue of long work; None while the node owns no shard."""
        shard = next(iter(self._shards.values()), None)
        return None if shard is None else shard.slices

    @property
    def loading(self) -> bool:
        """True while any shard is loading."""
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())
