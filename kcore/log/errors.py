"""What can go wrong in the partition log, and how a caller tells one from another."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from kcore import errors


class FailureReason(Enum):
    """Why a log operation failed; the value is what a log line or a metric label shows."""

    DISK_FULL = "disk_full"
    """The file system has no room for the write (ENOSPC, EDQUOT, EFBIG)."""
    SIZE_LIMIT = "size_limit"
    """The engine's own `max_size_bytes` is reached, or the address space for a larger map is not to be had."""
    TOO_LARGE = "too_large"
    """One round holds more than one transaction can (LMDB: about 512 MiB of dirty pages)."""
    IO_ERROR = "io_error"
    """The device or the file system refused a read, a write or a flush."""
    CORRUPT = "corrupt"
    """What is stored contradicts itself."""
    MISUSE = "misuse"
    """The caller asked for what cannot be: an older leader epoch, an offset outside the log, a closed engine."""
    INTERRUPTED = "interrupted"
    """An exception hit an earlier call midway (an interrupt, no memory); everything staged since was discarded."""
    INJECTED = "injected"
    """A test asked for this failure (`kcore.log.faults`)."""


class LogError(errors.LogError):
    """A log operation failed; nothing of it took effect.

    `reason` says what kind of failure, so that callers choose between retrying, alarming and giving up.
    """

    def __init__(self, message: str, reason: FailureReason = FailureReason.IO_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


class FencedLeaderEpochError(LogError):
    """An append carried an older leader epoch than the log has seen: another owner has taken the partition over."""

    def __init__(self, leader_epoch: int, current_epoch: int) -> None:
        super().__init__(
            f"append with leader epoch {leader_epoch}, but the log is at epoch {current_epoch}", FailureReason.MISUSE
        )
        self.leader_epoch = leader_epoch
        self.current_epoch = current_epoch


class OffsetOutOfRangeError(LogError):
    """An offset outside [log start offset, end offset] was asked for."""

    def __init__(self, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {end_offset}]", FailureReason.MISUSE)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class InvalidBatchError(LogError):
    """An append was handed bytes that are not one record batch v2."""

    def __init__(self, what: str) -> None:
        super().__init__(f"not a record batch v2: {what}", FailureReason.MISUSE)


class CorruptLogError(LogError):
    """Stored bytes are damaged; `offset` says where in the partition (None: not known)."""

    def __init__(self, partition: object, offset: int | None, what: str) -> None:
        super().__init__(f"{partition} at offset {offset}: {what}", FailureReason.CORRUPT)
        self.partition = partition
        self.offset = offset
        self.what = what


class PartitionDroppedError(LogError):
    """The partition of this handle has been dropped."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"{partition} has been dropped", FailureReason.MISUSE)


class LogClosedError(LogError):
    """The engine was closed, or belongs to the parent of this forked process."""

    def __init__(self, what: str = "the log engine is closed") -> None:
        super().__init__(what, FailureReason.MISUSE)


class DataFolderError(errors.DataFolderError):
    """A data folder is refused: damaged, locked, not kcore's, of an unknown format version, or not writable.

    `path` is the folder, `what` the finding, `where` the file or place within it (empty: the folder as a whole).
    """

    def __init__(self, path: str | Path, what: str, where: str = "") -> None:
        super().__init__(path, what)
        self.where = where

    def __str__(self) -> str:
        return f"{self.path}: {self.where + ': ' if self.where else ''}{self.what}"
