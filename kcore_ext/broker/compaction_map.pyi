"""The first half of a compaction pass: reads the new batches once and stores the last offset of each key."""

from typing import Final, NamedTuple, final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run

ENTRY_BYTES: Final[int]
"""Approximate memory of an entry in bytes, without the bytes of its key."""

class Sizes(NamedTuple):
    """The result of `sizes`. A batch is clean if an earlier pass has compacted it, and otherwise dirty.

    Attributes:
        clean_bytes: total size of the clean batches.
        dirty_bytes: total size of the dirty batches.
        first_dirty_ms: largest timestamp of the first dirty batch, in ms since the epoch; -1: there is no dirty batch,
            or it has no timestamp.
        next_offset: the offset after the last batch; -1: there is no batch.
    """

    clean_bytes: int
    dirty_bytes: int
    first_dirty_ms: int
    next_offset: int

def sizes(run: Run, mark: int) -> Sizes:
    """Returns the total sizes of the clean and the dirty batches.

    Args:
        run: the batches.
        mark: the offset up to which earlier passes have compacted the log. Batches that end at or below it are clean.

    Raises:
        ValueError: a batch is shorter than a header.
    """

@final
class OffsetMap:
    """A map from each key in the surveyed batches to the offset of the key's latest record. Each batch that `survey`,
    `add` or `step_over` has handled is a surveyed batch.

    It also counts the live records of each batch. A record is live if no later surveyed record has the same key. The
    map stores whole keys; Kafka stores digests, which can be equal for two keys.

    Args:
        max_bytes: approximate memory limit.

    Attributes:
        count: the number of surveyed batches. Their indexes begin at 0, in the order of the log.
    """

    count: int

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def full(self) -> bool:
        """True if the memory is used up. The caller then ends the survey; a later pass compacts the other batches."""

    @property
    def within_batch(self) -> bool:
        """True if the last call has read only a part of a batch, because its work units were used up.

        The next `survey` or `add` of that batch reads the rest.
        """

    def offset_of(self, key: bytes) -> int:
        """Returns the offset of the latest record of `key`; -1 if there is none."""

    def survey(
        self, run: Run, index: int, start: int, newest_ms: int, work: int, decompress: Decompress
    ) -> tuple[int, int]:
        """Adds the keys of batches. Stops before the first batch that is a marker, transactional, large and compressed,
        or too young.

        Args:
            run: the batches, all valid.
            index: index of the first batch.
            start: the log's start offset. A batch that begins below it is removed only after it was read.
            newest_ms: a batch with a larger timestamp, in ms since the epoch, is too young.
            work: the number of work units to use; one batch may exceed it. Each record, each batch and each 512 bytes
                count as one unit.
            decompress: decompresses records.

        Returns:
            The index after the last batch that was read to its end, and the remaining work units. If work units remain,
            the map is not full, and there is a batch at this index, then the survey stopped at that batch. The caller
            must pass the batch to `add` or `step_over`, or end the survey if the batch is too young.

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, decompress: Decompress, work: int = ...) -> int:
        """Adds the keys of one batch, also of a batch at which `survey` stops. Returns the remaining work units.

        If the work units are used up within the batch, call `add` with the batch again to read the rest. By default,
        the number of work units is not limited. `Sweep`, the second half of the pass, always reads a batch that was
        passed to `add`, even if the batch has no live records.
        """

    def step_over(self, base_offset: int) -> None:
        """Counts a batch without adding its keys: a marker, or a batch of an aborted transaction."""

    def base_offset(self, index: int) -> int:
        """Returns the base offset of a surveyed batch.

        Raises:
            IndexError: the batch does not exist.
        """

    def next_sequence(self, index: int, shortest: int) -> tuple[int, bool]:
        """Finds the end of a sequence of batches that the second half of the pass treats equally: it removes all of
        them unread, or reads all of them.

        A batch without live records can be removed without reading it.

        Args:
            index: index of the first batch of the sequence.
            shortest: the smallest number of adjacent removable batches that the second half removes unread. It reads
                fewer of them together with the batches around them.

        Returns:
            The index after the sequence. True if the second half removes the batches of the sequence unread, False if
            it reads them.
        """

    def remove(self, start: int, stop: int, changes: dict[int, bytes | None]) -> None:
        """Adds the removal of batches `start` to `stop` to `changes`, in the form of `PartitionLog.rewrite`."""
