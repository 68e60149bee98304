from typing import Final, final

TRIM_THRESHOLD: Final[int]
"""Let-go entries at the head of a partition's list before the list is rebuilt without them."""
BATCH_OVERHEAD: Final[int]
"""What a batch counts for beside its own bytes: the objects around it."""

@final
class PartitionTail:
    """One partition's part. Changed by the engine's owner only; read by any thread."""

    def __len__(self) -> int: ...
    def drop_below(self, offset: int) -> None:
        """Lets go of the batches below `offset`: compaction has put others in their place."""

    def clear(self) -> None:
        """Release every batch."""

    def read(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes] | None:
        """As `PartitionLog.read` with `limit` at most the high watermark; None when `offset` is not held here."""

@final
class TailCache:
    """The bound over all partitions: remembers in which order batches came.

    Args:
        max_bytes: of batches with what lies around each; 0: none are held.

    Attributes:
        size_bytes: what is held, and what was let go for other reasons than this bound and was not counted off yet.
    """

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def add(self, tail: PartitionTail, bases: list[int], batches: list[bytes]) -> None:
        """Add a partition's newly committed batches and release the oldest of all until the bound holds.

        If memory runs out, the partition's tail is emptied instead; its batches are read from storage then.
        """
