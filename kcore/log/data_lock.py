"""A lock on the data file itself, in addition to the lock on `kcore.lock`."""

from __future__ import annotations

import fcntl
import os


class DataFileLock:
    """flock(2) on a data file, from construction to `release`.

    If `kcore.lock` is removed while its owner runs, the next process creates a new `kcore.lock` and locks it. The lock
    on the data file still keeps that process from opening the same LMDB file. LMDB itself locks only `lock.mdb`.

    Args:
        path: the data file; created empty if missing.

    Raises:
        BlockingIOError: another process or another owner in this process has the lock.
        OSError: the file cannot be opened.
    """

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.abandon()
            raise

    def __del__(self) -> None:
        # An interrupt may come after the constructor, before its caller has the object to release it.
        self.abandon()

    @property
    def descriptor(self) -> int:
        """The descriptor that has the lock."""
        return self._fd

    def release(self) -> None:
        """Unlocks the file. Closing alone would not unlock it while a forked child has a copy of the descriptor."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.abandon()

    def abandon(self) -> None:
        """Closes the descriptor without unlocking the file.

        A forked child calls this, and its parent keeps the lock.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def is_locked(path: str) -> bool:
    """Returns True if any process has a `DataFileLock` on a data file; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
