"""The interface between the log engine and its storage.

Any thread may call any method at any time. If one thread calls `write` and another one `reclaim`, one call waits for
the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.write_set import StoredPartition, WriteSet


class ReclaimTask(NamedTuple):
    """The entries to delete in the partition `number`.

    The task deletes batches that end at or below `below_offset` (None: all batches), and snapshots whose offset is not
    in `keep_snapshots` (None: it deletes no snapshots). `forget` is True if the partition was dropped; its tombstone is
    then deleted last. `leader_epoch`: in a store that several nodes share, the epoch in which this node leads the
    partition. For dropped partitions it is the epoch of the metadata log's leader.
    """

    number: int
    below_offset: int | None
    keep_snapshots: tuple[int, ...] | None
    forget: bool
    leader_epoch: int = -1


class Storage(ABC):
    """A committed store of batches, snapshot chunks and metadata."""

    __slots__ = ()

    node_epoch: int
    """The number of earlier openings of this store."""

    @abstractmethod
    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Returns three values: all partitions in order of number, the dropped numbers that are not reclaimed yet, and
        the next free number.
        """

    @abstractmethod
    def write(self, write_set: WriteSet) -> None:
        """Makes the write set durable and sets `write_set.is_durable`. If it raises, see `resolve_write`."""

    @abstractmethod
    def resolve_write(self) -> None:
        """Determines the result of a `write` that an exception interrupted, and sets `WriteSet.is_durable`.

        It does nothing if the results of all writes are known.

        Raises:
            LogError: the result cannot be determined now; the next call tries again.
        """

    def move_beside(self, start: Callable[[Callable[[], None]], bool] | None) -> None:  # noqa: B027
        """Lets the storage move committed data on another thread; see `LogEngine.move_beside`."""

    @abstractmethod
    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Returns (base offset, batch) pairs with base offsets below `limit`.

        The result begins with the batch that contains `offset`, or else with the first batch after `offset`. It ends
        after `max_batches` batches, or with the batch that reaches `max_bytes`.
        """

    @abstractmethod
    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Returns the headers of the batches that `slice` would return if it had no limit of bytes."""

    @abstractmethod
    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Returns one chunk of a snapshot, or None."""

    @abstractmethod
    def get_meta(self, name: str) -> bytes | None:
        """Returns a named value, or None."""

    @abstractmethod
    def meta_names(self, prefix: str) -> list[str]:
        """Returns the names of values that begin with `prefix`, sorted."""

    @abstractmethod
    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Deletes at most `max_entries` batches and chunks in one transaction; returns the number of finished tasks."""

    @abstractmethod
    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Finds batches and chunks whose partition number is neither in `known` nor dropped."""

    @abstractmethod
    def sync(self) -> None:
        """Forces all committed data to the device."""

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Returns the size of the file, and an upper bound of the size of its used part."""

    @abstractmethod
    def close(self) -> None:
        """Flushes the data and releases the store."""


class Leadership(NamedTuple):
    """A partition that this node leads since `leader_epoch`, in a store that several nodes share."""

    key: PartitionKey
    leader_epoch: int


class SharedStorage(Storage):
    """A store that several nodes share, as one registered node sees it. Every partition has one leader at a time.

    A new leader of a partition calls `adopt` to take over the partition. Then it may write to the partition.

    `write` stores a write set as a whole, or refuses it. In the same transaction, the store checks that this node is
    not fenced. It also checks that the node leads each partition of the write set in the `owned_epoch` of the
    partition's log. The checks lock the rows that they read, so that a take-over either precedes the write set or waits
    for it.

    If `WriteSet.cluster` is not None, the transaction also applies these changes of the cluster. The node must then
    lead `METADATA` in the changes' `controller_epoch`. After a commit that changes the cluster or the metadata log, the
    store notifies the nodes that wait for its changes.

    Besides LogError, `write` raises:

    * FencedWriteError: nothing is stored. The caller unloads the partitions that the error names.
    * StoreUnavailableError: nothing is stored. The caller may write again.
    * UnknownOutcomeError: `resolve_write` determines the result. It fences the interrupted attempt, and then reads.

    `resolve_write` raises StoreUnavailableError until it has read the result in a transaction that survives a failover
    of the store. It raises StoreRewoundError if a partition ends before an acknowledged offset. `load` always returns
    `([], [], 0)`, because a node takes over partitions only with `adopt`. `node_epoch` is the epoch of the lease.

    `reclaim` raises FencedWriteError for tasks whose `leader_epoch` is not the present leader epoch. `slice`,
    `summaries` and `snapshot_chunk` read any partition, also partitions of other leaders.
    """

    __slots__ = ()

    @abstractmethod
    def adopt(self, partitions: Sequence[Leadership]) -> list[StoredPartition]:
        """Takes over partitions that this node leads now: reads their metadata and ends, in the order of `partitions`.

        The result includes every write set of earlier leaders, and survives a failover of the store.

        Raises:
            FencedWriteError: this node does not lead the named partitions in the given epochs. No partition is taken
                over.
            StoreUnavailableError: the store cannot be reached.
        """

    @abstractmethod
    def look_up(self, key: PartitionKey) -> StoredPartition | None:
        """Reads the metadata and the end of any partition, for a node that follows it; None if it does not exist.

        All batches below the returned end survive a failover of the store.
        """

    @abstractmethod
    def removed_numbers(self) -> tuple[list[int], int]:
        """Returns the numbers of removed partitions that are not reclaimed yet, and the next free number.

        Only the leader of the metadata log calls this function, after it has taken over that log.
        """
