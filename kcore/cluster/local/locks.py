"""File locks between the processes of one machine.

The kernel releases a flock(2) when its process ends in any way. Each `FileLock` and each `LifeLock` has its own
file descriptor, so two of them in one process exclude each other like two processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Final

from kcore.log.data_folder import FILE_MODE
from kcore.log.errors import StoreUnavailableError
from kcore.log.lmdb_environment import file_error

FIRST_PAUSE_S: Final = 0.000_1
LONGEST_PAUSE_S: Final = 0.005
LIFE_PREFIX: Final = "alive-"


class FileLock:
    """A lock that one process holds at a time. In a process, only one thread at a time may use the object.

    Callers call `acquire` within a `try` statement, and `release` in its `finally` clause. If an interrupt prevents the
    release, the file stays locked until the next use of this object. The next `acquire` succeeds nevertheless, because
    the lock belongs to this object's descriptor.

    Args:
        path: the file, created if missing. It is never removed, because another process may wait for its lock.
        limit_s: the time after which `acquire` fails.
    """

    __slots__ = ("_fd", "_limit_s", "path")

    def __init__(self, path: str, limit_s: float) -> None:
        self.path = path
        self._fd = -1
        self._limit_s = limit_s

    def acquire(self) -> None:
        """Takes the lock.

        Raises:
            StoreUnavailableError: another process has kept the lock for the whole time limit.
            LogError: the file cannot be opened.
        """
        self._open()
        self._wait()
        while not os.fstat(self._fd).st_nlink:  # an operator has removed the file: other processes lock a new file
            self.close()
            self._open()
            self._wait()

    def release(self) -> None:
        """Releases the lock, if this object holds it."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _open(self) -> None:
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            except OSError as error:
                raise file_error(error, "opening a lock of the cluster") from error

    def _wait(self) -> None:
        until_s = time.monotonic() + self._limit_s
        pause_s = FIRST_PAUSE_S
        while not try_lock(self._fd, fcntl.LOCK_EX):
            if time.monotonic() >= until_s:
                raise StoreUnavailableError(
                    f"another process has kept {self.path} locked for {self._limit_s} s; that process may be suspended"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def close(self) -> None:
        """Closes the file; a later call opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LifeLock:
    """The lock of one incarnation of a node, which is the time between a registration of the node and its end.

    The node keeps the lock until the process ends or the node unregisters.

    Args:
        folder: the folder of the node.
        epoch: the epoch of the incarnation.

    Raises:
        OSError: the file cannot be created or locked.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, folder: str, epoch: int) -> None:
        self._path = _life_path(folder, epoch)
        self._fd = -1
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        if not try_lock(self._fd, fcntl.LOCK_EX):
            self.end()
            raise OSError(f"{self._path} is locked by another process")
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)  # for operators, as in kcore.lock

    def __del__(self) -> None:
        self.end()

    def end(self) -> None:
        """Releases the lock, so that the incarnation counts as ended in all processes. Can be repeated."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(fd)


def remove_dead(folder: str, epoch: int) -> None:
    """Removes the lock files of earlier incarnations of a node."""
    own = _life_path(folder, epoch)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(LIFE_PREFIX) and path != own:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def is_alive(folder: str, epoch: int) -> bool:
    """Returns True if the process of an incarnation exists."""
    try:
        fd = os.open(_life_path(folder, epoch), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def try_lock(fd: int, operation: int) -> bool:
    """Takes a flock without waiting; returns False if another process has it."""
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _life_path(folder: str, epoch: int) -> str:
    return os.path.join(folder, f"{LIFE_PREFIX}{epoch}")
