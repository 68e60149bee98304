"""The errors of the partition log, and the reasons that distinguish them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from kcore import errors

if TYPE_CHECKING:
    from kcore.log.interface import PartitionKey


class FailureReason(Enum):
    """The reason for which a log operation failed. Log lines and metric labels show the value."""

    DISK_FULL = "disk_full"
    """The file system has no room for the write (ENOSPC, EDQUOT, EFBIG)."""
    SIZE_LIMIT = "size_limit"
    """The engine's `max_size_bytes` is reached, or the address space for a larger map is not available."""
    TOO_LARGE = "too_large"
    """A write set exceeds the limit of one transaction (LMDB: about 512 MiB of dirty pages)."""
    IO_ERROR = "io_error"
    """The device or the file system refused a read, a write or a flush."""
    CORRUPT = "corrupt"
    """The stored data is inconsistent."""
    MISUSE = "misuse"
    """The call is invalid: an older leader epoch, an offset outside the log, a closed engine."""
    MISSING = "missing"
    """The commit that creates the partition has failed, and `permit_recreation` forbids another attempt now."""
    INTERRUPTED = "interrupted"
    """An exception interrupted an earlier call (a signal, lack of memory); all staged changes were discarded."""
    INJECTED = "injected"
    """A test injected this failure (`kcore.log.faults`)."""
    FENCED = "fenced"
    """Another node leads the partitions, or the cluster has fenced this node. The call wrote no data."""
    UNAVAILABLE = "unavailable"
    """The store of the cluster cannot be reached now. The call wrote no data."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """The connection to the store ended during the commit: `Storage.resolve_write` determines if the write set is
    stored.
    """
    DELETED = "deleted"
    """The data file was deleted while the engine uses it. The call wrote no data."""
    DATA_LOST = "data_lost"
    """The store of the cluster has lost commits that it had acknowledged."""


class LogError(errors.LogError):
    """The error of a failed log operation. The operation had no effect, unless a subclass of this error says otherwise.

    `reason` shows callers whether to retry, to alert an operator, or to give up.
    """

    def __init__(self, message: str, reason: FailureReason = FailureReason.IO_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class FencedLeaderEpochError(LogError):
    """An append has an older leader epoch than the log, because another owner has taken over the partition."""

    def __init__(self, leader_epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"append with leader epoch {leader_epoch}, but the log is at epoch {current_epoch}", FailureReason.MISUSE
        )
        self.leader_epoch = leader_epoch
        self.current_epoch = current_epoch


class FencedWriteError(LogError):
    """The cluster's store refused a write set or a take-over of partitions, because this node does not lead them.

    The store wrote no data. The caller unloads the partitions.

    Attributes:
        partitions: the partitions that this node does not lead in the leader epoch of the call. Empty if the store did
            not determine them: this node may then lead none of the partitions of the call.
        node: True if the cluster has fenced this node. The node then leads no partition, and must register again.
    """

    def __init__(self, what: str, partitions: Iterable[PartitionKey] = (), node: bool = False) -> None:
        super().__init__(what, FailureReason.FENCED)
        self.partitions = tuple(partitions)
        self.node = node


class StoreUnavailableError(LogError):
    """The store of the cluster cannot be reached now, or is overloaded. The call wrote nothing and may be repeated."""

    def __init__(self, what: str) -> None:
        super().__init__(what, FailureReason.UNAVAILABLE)


class UnknownOutcomeError(LogError):
    """The connection ended during a commit. `Storage.resolve_write` determines whether the write set is stored."""

    def __init__(self, what: str) -> None:
        super().__init__(what, FailureReason.UNKNOWN_OUTCOME)


class StoreRewoundError(LogError):
    """The store of the cluster shows an older state than this node has seen: acknowledged commits are missing.

    An asynchronous standby was promoted, a backup was restored, or the connection leads to an old primary. The caller
    unloads the partitions, and an operator must decide.

    Attributes:
        partitions: the partitions that end before an acknowledged offset; empty if the whole store is older.
    """

    def __init__(self, what: str, partitions: Iterable[PartitionKey] = ()) -> None:
        super().__init__(what, FailureReason.DATA_LOST)
        self.partitions = tuple(partitions)


class NodeAliveError(LogError):
    """The node id is in use: its process is running, or has ended so recently that its lease is still valid.

    Attributes:
        remaining_ms: the time in ms after which the lease of the process expires, unless the process renews it.
    """

    def __init__(self, node_id: int, remaining_ms: int) -> None:
        super().__init__(
            f"node {node_id} is alive: another process holds its lease for {remaining_ms} ms more", FailureReason.FENCED
        )
        self.node_id = node_id
        self.remaining_ms = remaining_ms


class OffsetOutOfRangeError(LogError):
    """A requested offset is outside [log start offset, end offset]."""

    def __init__(self, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {end_offset}]", FailureReason.MISUSE)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class InvalidBatchError(LogError):
    """The bytes of an append are not exactly one record batch v2."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not a record batch v2: {what}", FailureReason.MISUSE)


class CorruptLogError(LogError):
    """The error for damaged stored bytes; `offset` is the position in the partition (None: unknown)."""

    def __init__(self, partition: object, offset: int | None, what: str) -> None:
        super().__init__(f"{partition} at offset {offset}: {what}", FailureReason.CORRUPT)
        self.partition = partition
        self.offset = offset
        self.what = what


class PartitionDroppedError(LogError):
    """The partition of this handle was dropped."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"{partition} has been dropped", FailureReason.MISUSE)


class LogClosedError(LogError):
    """The engine is closed, or belongs to the parent of this forked process."""

    def __init__(self, what: str = "the log engine is closed") -> None:
        super().__init__(what, FailureReason.MISUSE)


class DataFolderError(errors.DataFolderError):
    """The error for a refused data folder: it is damaged, locked, not kcore's, of an unknown format, or not writable.

    `path` is the folder, `what` the problem, `where` the file or position within the folder (empty: the whole folder).
    """

    def __init__(self, path: str | Path, what: str, where: str = "") -> None:
        super().__init__(path, what)
        self.where = where

    def __str__(self) -> str:
        return f"{self.path}: {self.where + ': ' if self.where else ''}{self.what}"
