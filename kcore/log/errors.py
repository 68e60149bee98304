"""The errors of the partition log, and the reasons that distinguish them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from kcore import errors


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
    INTERRUPTED = "interrupted"
    """An exception interrupted an earlier call (a signal, lack of memory); all staged changes were discarded."""
    INJECTED = "injected"
    """A test injected this failure (`kcore.log.faults`)."""


class LogError(errors.LogError):
    """A log operation failed and had no effect.

    Callers choose between retrying, alarming and giving up by `reason`.
    """

    def __init__(self, message: str, reason: FailureReason = FailureReason.IO_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class FencedLeaderEpochError(LogError):
    """An append has an older leader epoch than the log: another owner has taken over the partition."""

    def __init__(self, leader_epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"append with leader epoch {leader_epoch}, but the log is at epoch {current_epoch}", FailureReason.MISUSE
        )
        self.leader_epoch = leader_epoch
        self.current_epoch = current_epoch


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
    """Stored bytes are damaged; `offset` is the position in the partition (None: unknown)."""

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
    """A data folder is refused: damaged, locked, not kcore's, of an unknown format version, or not writable.

    `path` is the folder, `what` the problem, `where` the file or position within the folder (empty: the whole folder).
    """

    def __init__(self, path: str | Path, what: str, where: str = "") -> None:
        super().__init__(path, what)
        self.where = where

    def __str__(self) -> str:
        return f"{self.path}: {self.where + ': ' if self.where else ''}{self.what}"
