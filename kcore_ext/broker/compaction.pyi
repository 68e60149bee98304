"""The second half of a compaction pass: removes records from each batch and merges small adjacent batches."""

from typing import final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run
from kcore_ext.broker.compaction_map import OffsetMap

def filtered(batch: bytes, stays: bytes, horizon_ms: int) -> bytes:
    """Returns a copy of a batch without the removed records. Offsets and timestamps of the other records do not change.

    Args:
        batch: an uncompressed batch.
        stays: a byte for each record; 0 means that the record is removed. At least one record must remain.
        horizon_ms: the time in ms since the epoch from which the batch's tombstones or marker may be removed (KIP-534);
            -1: the batch has neither.

    Raises:
        ValueError: the batch is compressed, `stays` has the wrong length, or no record remains.
        CorruptBatchError: the batch cannot be read.
    """

def merged(batches: list[bytes]) -> bytes:
    """Merges batches into one batch. The batches must have the same leader epoch, ascending offsets, no producer and no
    attributes.

    The log of a coordinator has many small batches, because a coordinator commits after a few requests. After
    compaction, each of them has only one or two records. The log then loads faster from merged batches, because the
    duration of a load also depends on the number of batches.

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
        changes: a dictionary to which the sweep adds each changed batch, in the form that `PartitionLog.rewrite`
            requires.
        now_ms: the wall-clock time, ms since the epoch.
        delete_retention_ms: the time in ms for which a tombstone is retained after the first pass that reads it.
        max_merged_bytes: the largest size of a merged batch. A batch of at least half that size is not merged, so that
            later passes do not rewrite merged batches.

    Attributes:
        size_bytes: total size of the remaining batches, except batches that may still be merged.
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
    def remaining_records(self, batch: bytes, decompress: Decompress, work: int = ...) -> tuple[int, int, bytes] | None:
        """Determines the records of a batch that remain, without removing any record.

        Args:
            batch: the batch. If an earlier call of `sweep` or `remaining_records` has read a part of it, this call
                reads the rest.
            decompress: decompresses records.
            work: maximum number of records to read; by default all.

        Returns:
            None if unread records are left: call the method again with the same batch. Otherwise a tuple: the number of
            remaining records, the number of tombstones among them, and a byte for each record, which is 0 if the record
            is removed.

        Raises:
            CorruptBatchError: the batch cannot be read.
        """

    def horizon(self, horizon_ms: int) -> int:
        """Returns the time from which the tombstones or the marker of a batch may be removed, in ms since the epoch.

        Args:
            horizon_ms: the time that an earlier pass has set for the batch. If it is -1 (none), the result is the end
                of a delete retention that begins now.
        """

    def sweep(self, run: Run, index: int, position: int, work: int, decompress: Decompress) -> tuple[int, int, int]:
        """Compacts consecutive batches, and stops before the first batch that the caller must compact.

        The caller must compact these batches:

        - markers, and batches of transactions,
        - batches that begin below `position`,
        - large compressed batches, and compressed batches of which a record is removed,
        - batches of a producer if no record remains.

        Args:
            run: the batches, all valid.
            index: index of the first batch.
            position: the offset after the batches that the pass has compacted so far.
            work: the number of work units to use; one batch may exceed it. Each record, each batch and each 512 bytes
                count as one unit.
            decompress: decompresses records.

        Returns:
            The index after the last compacted batch, the offset after that batch, and the remaining work units. If no
            work units remain, call the method again with this index and offset. It then continues even within a batch.

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
