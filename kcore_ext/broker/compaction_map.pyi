"""The first half of a compaction pass: reads the new batches once and stores the last offset of each key."""

from typing import Final, NamedTuple, final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run

ENTRY_BYTES: Final[int]
"""Approximate memory of an entry in bytes, without the bytes of its key."""

class Sizes(NamedTuple):
    """The result of `sizes`.

    Attributes:
        clean_bytes: total size of batches that end at or below `mark`.
        dirty_bytes: total size of the other batches.
        first_dirty_ms: largest timestamp of the first of the other batches, in ms since the epoch; -1: there is no such
            batch, or it has no timestamp.
        next_offset: the offset after the last batch; -1: there is no batch.
    """

    clean_bytes: int
    dirty_bytes: int
    first_dirty_ms: int
    next_offset: int

def sizes(run: Run, mark: int) -> Sizes:
    """Sums the sizes of batches below and above `mark`, the offset up to which compaction has cleaned the log.

    Raises:
        ValueError: a batch is shorter than a header.
    """

@final
class OffsetMap:
    """The latest offset of each key in a part of a log, in bounded memory, and the live records of its batches.

    The map stores whole keys, so it never confuses two keys (Kafka stores digests).

    Args:
        max_bytes: approximate memory limit.

    Attributes:
        count: the number of batches that were read, which are numbered from 0 in the order of the log.
    """

    count: int

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def full(self) -> bool:
        """True if the memory is used up: the caller must end the survey, and a later pass compacts the rest."""

    @property
    def within_batch(self) -> bool:
        """True if the work units ended within a batch: the next `survey` or `add` of that batch continues it."""

    def offset_of(self, key: bytes) -> int:
        """Returns the offset of the latest record of `key`; -1 if there is none."""

    def survey(
        self, run: Run, index: int, start: int, newest_ms: int, work: int, decompress: Decompress
    ) -> tuple[int, int]:
        """Surveys batches up to the first batch that is a marker, transactional or too young.

        Args:
            run: the batches, all valid.
            index: index of the first batch.
            start: the log's start offset. A batch that begins below it is never removed without being read.
            newest_ms: a batch with a larger timestamp, in ms since the epoch, is too young.
            work: the number of work units to use; one batch may exceed it. Each record, each batch and each 512 bytes
                count as one unit.
            decompress: decompresses records.

        Returns:
            The index after the last batch that was read to its end, and the remaining work units. If batches and work
            remain and the map is not full, the caller must decide about the batch at this index.

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, decompress: Decompress, work: int = ...) -> int:
        """Surveys one batch of any kind, or a part of it, as `survey` does; returns the remaining work units.

        The batch will not be removed unread. By default, `work` has no limit.
        """

    def step_over(self, base_offset: int) -> None:
        """Adds a batch without surveying its records: a marker, or a batch of an aborted transaction."""

    def base_offset(self, index: int) -> int:
        """Returns the base offset of a surveyed batch.

        Raises:
            IndexError: the batch does not exist.
        """

    def stretch(self, index: int, shortest: int) -> tuple[int, bool]:
        """Finds the next sequence of batches from `index` on that can all be removed unread, or that must all be read.

        Args:
            index: index of the first batch.
            shortest: the smallest number of adjacent removable batches that form a sequence; fewer batches are read
                with their neighbours.

        Returns:
            The index after the sequence, and True if all its batches can be removed. A sequence that must be read may
            contain batches without live records.
        """

    def remove(self, start: int, stop: int, changes: dict[int, bytes | None]) -> None:
        """Adds the removal of batches `start` to `stop` to `changes`, in the form of `PartitionLog.rewrite`."""
