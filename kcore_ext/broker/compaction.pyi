"""The second half of a compaction pass: removes records from each batch and merges small adjacent batches."""

from typing import final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run
from kcore_ext.broker.compaction_map import OffsetMap

def filtered(batch: bytes, stays: bytes, horizon_ms: int) -> bytes:
    """Returns a batch with only some of its records, at least one, and with unchanged offsets and timestamps.

    Args:
        batch: an uncompressed batch.
        stays: a byte for each record, 0 for a removed one.
        horizon_ms: the time in ms since the epoch from which the batch's tombstones or marker may be removed (KIP-534);
            -1: the batch has neither.

    Raises:
        ValueError: the batch is compressed, the number of flags is wrong, or no record stays.
        CorruptBatchError: the batch cannot be read.
    """

def merged(batches: list[bytes]) -> bytes:
    """Merges batches into one batch. The batches have one leader epoch, ascending offsets, no producers and no
    attributes.

    A coordinator commits after a few requests, so its log has many small batches, of which compaction leaves one or two
    records each. The duration of a load depends on the number of batches as well as on the number of records.

    Raises:
        ValueError: a batch has attributes.
        CorruptBatchError: a batch cannot be read.
    """

@final
class Sweep:
    """The second half of a compaction pass. It reads the batches in the order of the log, removes records, and merges
    small adjacent batches.

    Args:
        map: the result of the first half.
        changes: collects the changed batches, in the form of `PartitionLog.rewrite`.
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: the time in ms for which tombstones stay from now on.
        max_merged_bytes: the largest size of a merged batch. A batch of at least half that size is not merged, so that
            later passes do not rewrite merged batches.

    Attributes:
        size_bytes: total size of the remaining batches, without batches that `flush` has not merged yet.
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
        """Finds the records of a batch that remain. Changes nothing.

        Args:
            batch: the batch. If `sweep` or `judge` has read a part of the batch, the call reads the rest.
            decompress: decompresses records.
            work: maximum number of records to read; by default all.

        Returns:
            The number of remaining records, the number of tombstones among them, and a byte for each record, which is 0
            if the record is removed; None if the next call must continue.

        Raises:
            CorruptBatchError: the batch cannot be read.
        """

    def horizon(self, horizon_ms: int) -> int:
        """Returns the time from which retained tombstones or a marker may be removed. This is `horizon_ms`, or the end
        of a delete retention that begins now if `horizon_ms` is -1.
        """

    def sweep(self, run: Run, index: int, position: int, work: int, decompress: Decompress) -> tuple[int, int, int]:
        """Compacts batches up to the first batch that the caller must compact.

        The caller must compact batches of transactions and markers, batches that begin below `position`, compressed
        batches with a change, and batches of a producer without remaining records.

        Args:
            run: the batches, all valid.
            index: index of the first batch.
            position: the offset after the compacted batches.
            work: the number of work units to use; one batch may exceed it. Each record, each batch and each 512 bytes
                count as one unit.
            decompress: decompresses records.

        Returns:
            The index after the last compacted batch, the offset after that batch, and the remaining work units. If no
            work remains, call this again with this index; a batch that was read in part is continued.

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, changed: bool, may_merge: bool) -> None:
        """Adds a remaining batch, in the order of the log.

        Args:
            batch: the batch's new bytes.
            changed: True if the bytes differ from the stored bytes.
            may_merge: True if the batch can be merged, because it has no producer and no attributes.
        """

    def flush(self) -> None:
        """Merges the current run of small adjacent batches. Batches that are added later begin a new run."""
