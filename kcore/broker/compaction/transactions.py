"""Transactions as a pass of compaction sees them: which records never happened, which markers are still needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcore.broker.data.aborted_transactions import AbortedTransaction
    from kcore.broker.data.producer_state import ProducerStates
    from kcore_ext.batch import BatchHeader


class AbortedRanges:
    """Which stretches of a log were written by whom in transactions that were aborted.

    Args:
        transactions: the aborted ones, ascending by marker.
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
        """Whether a transactional batch, below the last stable offset, belongs to one of them."""
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges[0], header.base_offset) - 1
        return at >= 0 and header.base_offset <= ranges[1][at]


class LastWritten:
    """What a partition must go on to know of its producers: each one's last batch of records, or last marker.

    Made while nothing is staged. A batch that is not a producer's last any more when it is asked for is kept once too
    often, which the next pass makes good.

    Args:
        producers: the partition's.
    """

    __slots__ = ("_epochs", "_offsets")

    def __init__(self, producers: ProducerStates) -> None:
        self._offsets: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        for producer_id, entry in producers.entries.items():
            if entry.batches:
                self._offsets[producer_id] = entry.batches[-1].last_offset
            else:
                self._epochs[producer_id] = entry.epoch

    def is_last_data(self, header: BatchHeader) -> bool:
        """Whether it is the producer's last batch: its sequence must not be forgotten."""
        return self._offsets.get(header.producer_id) == header.last_offset

    def is_last_marker(self, header: BatchHeader) -> bool:
        """Whether a marker alone tells the producer's epoch: no batch of records has it."""
        return self._epochs.get(header.producer_id) == header.producer_epoch


class MarkersInUse:
    """Which end markers still have something to end. A marker is needed as long as any batch of its transaction is
    there, be it empty: without the marker, that transaction would be open for ever.
    """

    __slots__ = ("_with_data",)

    def __init__(self) -> None:
        self._with_data: set[int] = set()

    def saw_data(self, producer_id: int) -> None:
        """A transactional batch stood in the log when the pass came by."""
        self._with_data.add(producer_id)

    def ends_something(self, producer_id: int) -> bool:
        """A marker comes: whether it ends a transaction with data."""
        if producer_id in self._with_data:
            self._with_data.remove(producer_id)
            return True
        return False
