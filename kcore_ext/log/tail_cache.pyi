from typing import Final, final

TRIM_THRESHOLD: Final[int]
"""The cache shortens the list of a partition when the list begins with this number of released entries."""
BATCH_OVERHEAD: Final[int]
"""Number of bytes that the cache adds to the size of each batch, for the memory of its Python objects."""

@final
class PartitionTail:
    """The cached batches of one partition. Only the thread that owns the engine changes it; any thread may read it."""

    def __len__(self) -> int: ...
    def drop_below(self, offset: int) -> None:
        """Releases the batches that begin below `offset`, because compaction has replaced some of them."""

    def drop_deleted(self, log_start_offset: int) -> None:
        """Releases the batches that end at or below the start of the log."""

    def clear(self) -> None:
        """Releases every batch."""

    def read(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes] | None:
        """Reads like `PartitionLog.read`. Returns None if `offset` is not cached.

        `limit` is at most the high watermark.
        """

@final
class TailCache:
    """The size limit of the cached batches of all partitions. The cache releases batches in the order of their commits.

    Args:
        max_bytes: the limit, including `BATCH_OVERHEAD` per batch; 0: no batch is cached.

    Attributes:
        size_bytes: the size of the cached batches. A batch that `drop_below` or `clear` has released counts until all
            batches committed before it are released.
    """

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...
    def add(self, tail: PartitionTail, batches: list[bytes]) -> None:
        """Adds a partition's newly committed batches.

        Then releases the oldest batches of all partitions until the total size is within the limit. If memory runs out,
        releases all batches of the partition; readers then read them from the storage.
        """
