"""Transactions during a pass of compaction: aborted records, markers that are still needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.aborted_transactions import AbortedTransaction
    from kcore.broker.data.producer_state import ProducerStates
    from kcore_ext.batch import BatchHeader


class AbortedRanges:
    """Offset ranges of aborted transactions, by producer.

    Args:
        transactions: the aborted transactions, ascending by marker.
    """

    __slots__ = ("_by_producer",)

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # A producer has one transaction at a time: its ranges do not overlap and ascend.
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for transaction in transactions:
            firsts, lasts = self._by_producer.setdefault(transaction.producer_id, ([], []))
            firsts.append(transaction.first_offset)
            lasts.append(transaction.last_offset)

    def covers(self, header: BatchHeader) -> bool:
        """Tests if a transactional batch below the last stable offset belongs to an aborted transaction."""
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges[0], header.base_offset) - 1
        return at >= 0 and header.base_offset <= ranges[1][at]


class LastWritten:
    """The last batches of records, or the last marker, of each producer: the partition recovers the producer from them.

    An idempotent producer may repeat any of the batches that the partition remembers, after a restart, too. In Kafka
    these batches are usually in the active segment of the log, which is never compacted. A transactional producer has
    no reason to repeat batches of a transaction that has ended; of these, the last one tells its sequence.

    The caller creates this object while nothing is staged. If a producer writes another batch during the pass, its
    earliest batch is kept although it could go; the next pass removes it.

    Args:
        producers: the partition's producers.
    """

    __slots__ = ("_epochs", "_offsets")

    def __init__(self, producers: ProducerStates) -> None:
        self._offsets: dict[int, tuple[int, ...]] = {}
        self._epochs: dict[int, int] = {}
        for producer_id, entry in producers.entries.items():
            if entry.batches:
                self._offsets[producer_id] = tuple(batch.last_offset for batch in entry.batches)
            else:
                self._epochs[producer_id] = entry.epoch

    def is_remembered(self, header: BatchHeader) -> bool:
        """Tests if a batch is one of its producer's last batches, whose sequences must be kept."""
        offsets = self._offsets.get(header.producer_id, ())
        return header.last_offset in (offsets[-1:] if header.is_transactional else offsets)

    def is_last_marker(self, header: BatchHeader) -> bool:
        """Tests if only this marker has its producer's epoch, and no batch of records has it."""
        return self._epochs.get(header.producer_id) == header.producer_epoch


class MarkersInUse:
    """Markers that compaction must keep: those with a batch of their transaction in the log, even an empty one.

    Without its marker, such a transaction would stay open for ever.
    """

    __slots__ = ("_with_data",)

    def __init__(self) -> None:
        self._with_data: set[int] = set()

    def saw_data(self, producer_id: int) -> None:
        """Notes a transactional batch that the pass has read."""
        self._with_data.add(producer_id)

    def ends_something(self, producer_id: int) -> bool:
        """Tests if the producer's next marker ends a transaction with batches, and ends that transaction."""
        if producer_id in self._with_data:
            self._with_data.remove(producer_id)
            return True
        return False
