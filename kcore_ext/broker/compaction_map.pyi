"""The first half of a pass of compaction: what is new is read once, and of each key the last offset remembered."""

from typing import Final, NamedTuple, final

from kcore_ext.batch.records import Decompress
from kcore_ext.batch.run import Run

ENTRY_BYTES: Final[int]
"""What an entry takes beside the bytes of its key, about."""

class Sizes(NamedTuple):
    """What `sizes` found.

    Attributes:
        clean_bytes: of batches that end at the mark or below.
        dirty_bytes: of the others.
        first_dirty_ms: the largest timestamp of the first of those; -1: there is none, or it has none.
        next_offset: the offset behind the last batch; -1: there is none.
    """

    clean_bytes: int
    dirty_bytes: int
    first_dirty_ms: int
    next_offset: int

def sizes(run: Run, mark: int) -> Sizes:
    """The sizes of batches below and above the mark of compaction.

    Raises:
        ValueError: one is shorter than a header.
    """

@final
class OffsetMap:
    """The latest offset of each key in a stretch of a log, in bounded memory, and what is left of its batches.

    Keys are kept whole: two keys are never taken for one (Kafka keeps digests of them).

    Args:
        max_bytes: about how much it may take.

    Attributes:
        count: how many batches were looked at. They are numbered from 0 in the order of the log.
    """

    count: int

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def full(self) -> bool:
        """Whether the stretch must end here; what comes behind it is a later pass's."""

    def offset_of(self, key: bytes) -> int:
        """The offset of the latest record of `key`; -1 if there is none."""

    def survey(
        self, run: Run, index: int, start: int, newest_ms: int, work: int, decompress: Decompress
    ) -> tuple[int, int]:
        """Looks at batches, up to the first that is a marker's or a transaction's, or too young.

        Args:
            run: the batches, all of them sound.
            index: of the first.
            start: the log's start; a batch that begins below it is not counted as one that may go.
            newest_ms: a batch with a larger timestamp is too young, in ms since the epoch.
            work: how much to look at, give or take a batch. A record, a batch and 512 bytes are one each.
            decompress: for records of compressed batches.

        Returns:
            (index behind the last one, what is left of `work`). If it ended before all was done, and the map is not
            full, the batch at the index is for the caller to judge.

        Raises:
            CorruptBatchError: a batch cannot be read.
        """

    def add(self, batch: bytes, decompress: Decompress) -> int:
        """Looks at one batch of any kind, which is not to go without being read again; returns how much work it was."""

    def step_over(self, base_offset: int) -> None:
        """The batch that comes next counts for nothing here: a marker, or of an aborted transaction."""

    def base_offset(self, index: int) -> int:
        """Where a batch begins.

        Raises:
            IndexError: there is no such batch.
        """

    def stretch(self, index: int, shortest: int) -> tuple[int, bool]:
        """What to do with the batches from `index` on.

        Args:
            index: of the first.
            shortest: fewer batches that may go are not worth a reading of their own before and behind them.

        Returns:
            (index behind the stretch, whether all of it goes). A stretch that does not is to be read; there may be
            batches in it of which nothing is left.
        """

    def remove(self, start: int, stop: int, changes: dict[int, bytes | None]) -> None:
        """Says of the batches from index `start` up to `stop` that they go; see `PartitionLog.rewrite`."""
