"""A file that keeps disk space for an operator, who needs some space to delete data on a full disk.

`kcore serve` creates the file, and never uses its space: otherwise clients would fill that space, too. If a command
that works on a folder cannot open it because the disk is full, the command removes the file and tries again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from typing import Final, TypeVar

import lmdb

from kcore.log.data_folder import RESERVE_NAME
from kcore.log.errors import DataFolderError, FailureReason, LogError
from kcore.log.lmdb_environment import FULL_ERRNOS

T = TypeVar("T")

logger = logging.getLogger(__name__)

MIN_FREE_FACTOR: Final = 4
"""Minimum ratio of the disk's free space to the size of the file. With less free space, `make_reserve` creates no
file.
"""


def make_reserve(path: str, size_bytes: int) -> bool:
    """Creates the file `reserve` of a data folder, unless the file exists or the disk is nearly full.

    Args:
        path: the folder, which this process has open.
        size_bytes: the size of the file; 0: the folder has no such file.

    Returns:
        True if the folder has the file.
    """
    file = os.path.join(path, RESERVE_NAME)
    try:
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(file) == size_bytes:
                return True
            os.unlink(file)
        if not size_bytes:
            return False
        disk = os.statvfs(path)
        if disk.f_bavail * disk.f_frsize < MIN_FREE_FACTOR * size_bytes:
            return False
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, size_bytes)
        except BaseException:
            os.unlink(file)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        logger.warning(
            "log %s: cannot create the file `%s`, which reserves disk space (%s); the server works without this file, "
            "but on a full disk, free some space before you delete topics",
            *(path, RESERVE_NAME, error.strerror),
        )
        return False
    return True


def _allocate(fd: int, size_bytes: int) -> None:
    """Allocates the space of an open file."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # not every file system can allocate
                raise
    zeros = bytes(1 << 16)
    for at in range(0, size_bytes, len(zeros)):
        os.pwrite(fd, zeros[: size_bytes - at], at)


def with_reserve(path: str | os.PathLike[str], use: Callable[[], T]) -> T:
    """Calls a function that opens a folder. On a full disk, removes the folder's file `reserve`, and calls
    the function again.

    Args:
        path: the folder.
        use: the function.

    Raises:
        DataFolderError: the folder cannot be opened.
        LogError: the function failed for another reason.
    """
    try:
        return use()
    except (DataFolderError, LogError) as error:
        if not (_is_full(error) and _removed(path)):
            raise
    logger.warning(
        "log %s: the disk is full; to open the folder, kcore has deleted the file `%s`, which reserves disk space; "
        "delete topics with `kcore topics delete`, and run `kcore log compact`, before you start the server; the "
        "server then creates the file again",
        *(os.fspath(path), RESERVE_NAME),
    )
    return use()


def explained(error: DataFolderError) -> DataFolderError:
    """Returns an error about a server's folder. If the disk is full and the file `reserve` exists, the error says
    how to use the space of this file.
    """
    folder = str(error.path)
    if not (_is_full(error) and os.path.exists(os.path.join(folder, RESERVE_NAME))):
        return error
    what = (
        f"{error.what}. If only kcore's data fills the disk: `kcore topics delete {folder} --topic NAME` uses the "
        f"space of the file `{RESERVE_NAME}`, and `kcore log compact {folder}` then shrinks the data file"
    )
    return DataFolderError(folder, what, error.where)


def _removed(path: str | os.PathLike[str]) -> bool:
    try:
        os.unlink(os.path.join(path, RESERVE_NAME))
    except OSError:  # there is none
        return False
    return True


def _is_full(error: BaseException) -> bool:
    """Returns True if an error was caused by a full disk."""
    cause = error.__cause__ if isinstance(error, DataFolderError) else error
    if isinstance(cause, LogError):
        return cause.reason is FailureReason.DISK_FULL
    if isinstance(cause, OSError):
        return cause.errno in FULL_ERRNOS
    return isinstance(cause, lmdb.Error) and getattr(cause, "code", 0) in FULL_ERRNOS
