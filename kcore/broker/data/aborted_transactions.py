"""The aborted transactions of a partition, whose records a read_committed consumer must skip (KIP-98)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from kcore.protocol.batch_layout import header_struct
from kcore_ext.broker.producers import AbortedCore

MAX_COMPLETE_LIST: Final = 50
"""Maximum number of aborted transactions in a partition for which responses have a complete list, as in Kafka.

A complete list has all aborted transactions that overlap the offsets of the response. In a partition with more aborted
transactions, a response lists only those of the producers whose batches it contains. Clients need no others.
"""
MAX_DELETED: Final = 50_000
"""Maximum number of entries that one call of `delete_before` removes. The next call removes further entries."""

_PRODUCER_ID: Final = header_struct("producer_id")


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a partition.

    Attributes:
        producer_id: the producer's id.
        first_offset: the offset of the transaction's first batch.
        last_offset: the offset of the transaction's ABORT marker.
        last_stable_offset: the last stable offset after the marker was written. A search for transactions that overlap
            a range of offsets stops at the first entry whose value is not below the range's end.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_last_offset = attrgetter("last_offset")
_first_offset = attrgetter("first_offset")


class AbortedTransactionIndex(AbortedCore):
    """The aborted transactions in the order of their markers, and by producer.

    The index is not durable: recovery rebuilds it from the log. A partition may have hundreds of thousands of entries,
    so a search examines few entries besides its results.
    """

    __slots__ = ("_by_producer", "_last_offsets")

    _entries: list[AbortedTransaction]

    def __init__(self) -> None:
        self._last_offsets: list[int] = []
        # A producer has one transaction at a time: both offsets of its entries ascend.
        self._by_producer: dict[int, list[AbortedTransaction]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[AbortedTransaction]:
        """A copy of all entries, ascending by marker offset."""
        return list(self._entries)

    def add(self, entry: AbortedTransaction) -> None:
        """Appends an entry; its marker must be after all earlier markers."""
        assert not self._last_offsets or self._last_offsets[-1] < entry.last_offset, "markers come in offset order"
        own = self._by_producer.setdefault(entry.producer_id, [])
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)
        own.append(entry)

    def of_batches(self, batches: Iterable[bytes], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Finds the aborted transactions that a reader of some batches needs, ascending by marker offset.

        Args:
            batches: the batches in the response.
            start_offset: the offset that the reader requested.
            end_offset: the offset after the last batch.
        """
        if len(self._entries) <= MAX_COMPLETE_LIST:
            return self._between(start_offset, end_offset)
        entries = []
        for producer_id in {_PRODUCER_ID.unpack_from(batch)[0] for batch in batches}:
            own = self._by_producer.get(producer_id)
            if own is not None:
                first = bisect_left(own, start_offset, key=_last_offset)
                entries += own[first : bisect_left(own, end_offset, first, key=_first_offset)]
        entries.sort(key=_last_offset)
        return entries

    def _between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Finds the aborted transactions that overlap [start_offset, end_offset)."""
        found = []
        for entry in self._entries[bisect_left(self._last_offsets, start_offset) :]:
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                break
        return found

    def covers(self, producer_id: int, offset: int) -> bool:
        """Tests if an offset of a producer's batch is within one of its aborted transactions."""
        own = self._by_producer.get(producer_id)
        if own is None:
            return False
        at = bisect_right(own, offset, key=_first_offset) - 1
        return at >= 0 and offset <= own[at].last_offset

    def truncate(self, end_offset: int) -> None:
        """Removes the entries whose markers are at or beyond `end_offset`, because the append of these markers
        failed.
        """
        keep = bisect_left(self._last_offsets, end_offset)
        for producer_id in {entry.producer_id for entry in self._entries[keep:]}:
            own = self._by_producer.get(producer_id, [])
            del own[bisect_left(own, end_offset, key=_last_offset) :]
            if not own:
                self._by_producer.pop(producer_id, None)
        del self._entries[keep:], self._last_offsets[keep:]

    def forget(self, last_offsets: Collection[int]) -> None:
        """Removes the entries of transactions whose markers compaction has removed from the log.

        If a response lists an aborted transaction, the reader drops all records of the producer up to the marker.
        Without the marker, the reader would also drop the producer's later records.

        Args:
            last_offsets: the offsets of the removed markers.
        """
        if not last_offsets:
            return
        lowest, highest = min(last_offsets), max(last_offsets)
        first, stop = bisect_left(self._last_offsets, lowest), bisect_right(self._last_offsets, highest)
        some = self._entries[first:stop]
        for producer_id in {entry.producer_id for entry in some if entry.last_offset in last_offsets}:
            own = self._by_producer.get(producer_id, [])
            low, high = bisect_left(own, lowest, key=_last_offset), bisect_right(own, highest, key=_last_offset)
            own[low:high] = [entry for entry in own[low:high] if entry.last_offset not in last_offsets]
            if not own:
                self._by_producer.pop(producer_id, None)
        remaining = [entry for entry in some if entry.last_offset not in last_offsets]
        offsets = [entry.last_offset for entry in remaining]
        self._entries[first:stop] = remaining
        self._last_offsets[first:stop] = offsets

    def delete_before(self, log_start_offset: int) -> None:
        """Removes at most `MAX_DELETED` of the entries whose markers the log has deleted.

        Readers do not find the remaining ones, because they search from an offset that the log still has.
        """
        drop = min(bisect_left(self._last_offsets, log_start_offset), MAX_DELETED)
        if not drop:
            return
        for producer_id in {entry.producer_id for entry in self._entries[:drop]}:
            own = self._by_producer.get(producer_id, [])
            del own[: bisect_left(own, self._last_offsets[drop - 1] + 1, key=_last_offset)]
            if not own:
                self._by_producer.pop(producer_id, None)
        del self._entries[:drop], self._last_offsets[:drop]
