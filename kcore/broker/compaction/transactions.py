"""Transactions during a pass of compaction: batches and markers that are still needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.producer_state import ProducerStates
    from kcore_ext.batch import BatchHeader


class LastWritten:
    """The last batches, or the last marker, of each producer, which compaction must keep.

    From these batches, a restart recovers the states of producers.

    An idempotent producer may repeat any batch that the partition remembers, even after a restart of the node. In Kafka
    these batches are usually in the active segment of the log, which is never compacted. A transactional producer has
    no reason to repeat batches of a transaction that has ended. The last of these batches is enough to recover the
    producer's sequence.

    The methods use the current states of producers, so the caller must not call them while a batch is staged.

    Args:
        producers: the partition's producers.
    """

    __slots__ = ("_producers",)

    def __init__(self, producers: ProducerStates) -> None:
        self._producers = producers

    def is_remembered(self, header: BatchHeader) -> bool:
        """Tests if a batch is one of its producer's last batches, whose sequences must be kept."""
        entry = self._producers.entries.get(header.producer_id)
        return entry is not None and entry.wrote(header.last_offset, header.is_transactional)

    def is_only_batch(self, header: BatchHeader) -> bool:
        """Tests if this marker is the only batch of its producer and epoch."""
        entry = self._producers.entries.get(header.producer_id)
        return entry is not None and entry.epoch == header.producer_epoch and not entry.batches


class MarkersInUse:
    """The markers that compaction must keep, because the log has a batch of their transaction, even an empty batch.

    Without its marker, such a transaction would stay open forever.
    """

    __slots__ = ("_with_data",)

    def __init__(self) -> None:
        self._with_data: set[int] = set()

    def saw_data(self, producer_id: int) -> None:
        """Records a transactional batch that the pass has read."""
        self._with_data.add(producer_id)

    def ends_transaction(self, producer_id: int) -> bool:
        """Returns True if this marker of the producer ends a transaction with batches that the pass has read. Then
        forgets the transaction.
        """
        if producer_id in self._with_data:
            self._with_data.remove(producer_id)
            return True
        return False
