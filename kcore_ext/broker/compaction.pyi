"""The second half of a pass of compaction: filters the records of each batch and merges small neighbours."""

from typing import final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run
from kcore_ext.broker.compaction_map import OffsetMap

def filtered(batch: bytes, stays: bytes, horizon_ms: int) -> bytes:
    """Builds a batch from some of its records, at least one, with unchanged offsets and timestamps.

    Args:
        batch: an uncompressed batch.
        stays: a byte for each record, 0 for a removed one.
        horizon_ms: the time from which its tombstones or its marker may be removed (KIP-534); -1: it has neither.

    Raises:
        ValueError: the batch is compressed, the number of flags is wrong, or no record stays.
        CorruptBatchError: the batch cannot be read.
    """

def merged(batches: list[bytes]) -> bytes:
    """Merges batches of one leader epoch, sorted by offset and without producers and attributes, into one.

    A coordinator commits after a few requests, so its log has many small batches, and compaction leaves a record or two
    of each. The time of a load depends on the number of batches as well as of records.

    Raises:
        ValueError: a batch has attributes.
        CorruptBatchError: a batch cannot be read.
    """

@final
class Sweep:
    """The second half of a compaction: it goes through the batches in the order of the log, compacts them and merges
    small neighbours.

    Args:
        map: the result of the first half.
        changes: collects the changed batches, in the form of `PartitionLog.rewrite`.
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: time for which tombstones stay from now on.
        max_merged_bytes: largest size of a merged batch. A batch of half that size is not merged, so that later passes
            do not write a merged log again.

    Attributes:
        size_bytes: total size of the remaining batches, without those of an open run.
        next_horizon_ms: earliest time at which a retained tombstone or marker may be removed; -1 if there is none.
    """

    size_bytes: int
    next_horizon_ms: int

    def __init__(
        self,
        map: OffsetMap,
        changes: dict[int, bytes | None],
        now_ms: int,
        delete_retention_ms: int,
        max_merged_bytes: int,
    ) -> None: ...
    def judge(self, batch: bytes, decompress: Decompress, work: int = ...) -> tuple[int, int, bytes] | None:
        """Finds the remaining records of a batch, without a change.

        Args:
            batch: the batch. If `sweep` or `judge` has read a part of it, the call reads the rest.
            decompress: decompresses records.
            work: maximum number of records to read; by default all.

        Returns:
            (number of remaining records, number of tombstones among them, a byte for each record: 0 for a removed one);
            None if records are left for the next call.

        Raises:
            CorruptBatchError: the batch cannot be read.
        """

    def horizon(self, horizon_ms: int) -> int:
        """Returns the horizon of retained tombstones or a marker: `horizon_ms`, or a new one for -1."""

    def sweep(self, run: Run, index: int, position: int, work: int, decompress: Decompress) -> tuple[int, int, int]:
        """Compacts batches up to the first batch that the caller must compact.

        These are batches of transactions and markers, batches that begin below `position`, compressed batches with a
        change, and batches of a producer without remaining records.

        Args:
            run: the batches, all valid.
            index: index of the first batch.
            position: the offset after the compacted batches.
            work: work units to use, exceeded by those of one batch and its bytes. Each record, each batch and each 512
                bytes count as one.
            decompress: decompresses records.

        Returns:
            (index after the last compacted batch, offset after it, remaining work). A batch that is read in part is
            the next one. If no work remains, call this again with the batch that is next.

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, changed: bool, may_merge: bool) -> None:
        """Adds a remaining batch, in the order of the log.

        Args:
            batch: the batch's new bytes.
            changed: the bytes differ from the stored ones.
            may_merge: the batch can be merged: it has no producer and no attributes.
        """

    def flush(self) -> None:
        """Ends the run of neighbours: later batches are not merged with earlier ones."""
