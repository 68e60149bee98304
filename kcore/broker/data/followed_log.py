"""The log of a coordinator's partition that another node leads. The next leader's shard reads this log ahead."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kcore.broker.data.partition import replay_producer_batch
from kcore.broker.data.producer_state import ProducerStates
from kcore.log.batch_header import last_offset
from kcore_ext.batch.run import replay_producers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.broker.data.partition import Partition
    from kcore.log.interface import PartitionLog


class FollowedLog:
    """The log of a partition that another node leads. `Shard.read_ahead` reads the log through this object, which also
    recovers the states of the log's producers from the batches that it reads.

    Args:
        log: the handle with which this node reads the partition.

    Attributes:
        offset: the offset after the batches that were read.
    """

    __slots__ = ("_cleaned_to", "_log", "_log_start_offset", "_producers", "offset")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._log_start_offset = log.log_start_offset
        self._cleaned_to = log.cleaned_to
        self._producers = ProducerStates()
        self.offset = log.log_start_offset

    def runs(self, start: int | None = None) -> Iterator[list[tuple[int, bytes]]]:
        """Yields the batches up to the present end of the handle, and recovers the producers from them."""
        replay = partial(replay_producer_batch, self._producers)
        for run in self._log.runs(start):
            replay_producers(run, replay)
            # Set before the yield: when the shard pauses, it has replayed the run, and this offset must match the
            # shard's.
            self.offset = last_offset(run[-1][1]) + 1
            yield run

    def hand_to(self, partition: Partition) -> bool:
        """Passes the producers that were read to the partition, which this node leads now.

        The recovery of the partition then continues after the batches that were read.

        Returns:
            False if that is not possible, because the log was compacted or shortened meanwhile. Markers of transactions
            that were read, and tombstones of keys that were read, may then be missing from the rest of the log.
        """
        log = partition.log
        if log.cleaned_to != self._cleaned_to or log.log_start_offset != self._log_start_offset:
            return False
        partition.continue_recovery(self._producers, self.offset)
        return True
