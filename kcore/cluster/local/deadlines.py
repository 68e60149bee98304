"""The deadlines of leases. Each deadline has its own small file, so a renewal does not need LMDB's writer lock."""

from __future__ import annotations

import os
import struct
from typing import Final

from kcore.cluster.local.locks import FileLock
from kcore.log.data_folder import FILE_MODE
from kcore.log.node_journals import node_folder

_DEADLINE: Final = struct.Struct(">q")
LIMIT_S: Final = 1.0


class Deadline:
    """The time at which one lease ends, on the machine's monotonic clock.

    A renewal locks the file while it reads the holder of the lease and writes the new deadline. A transaction that ends
    the lease locks the file, too. So no renewal succeeds after the transaction has read the deadline.

    Args:
        path: the file that stores the deadline; also the file that is locked.
    """

    __slots__ = ("_lock", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = FileLock(path, LIMIT_S)

    @classmethod
    def of_node(cls, path: str, node_id: int) -> Deadline:
        """Returns the deadline of a node's lease in a data folder."""
        return cls(os.path.join(node_folder(path, node_id), "lease"))

    def acquire(self) -> None:
        """Locks the file. Raises StoreUnavailableError if the lock is not free in time."""
        self._lock.acquire()

    def release(self) -> None:
        """Unlocks the file, if this object has locked it."""
        self._lock.release()

    def read_ms(self) -> int:
        """Returns the deadline in ms; 0 if there is none."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                data = file.read(_DEADLINE.size)
        except FileNotFoundError:
            return 0
        return int(_DEADLINE.unpack(data)[0]) if len(data) == _DEADLINE.size else 0

    def write_ms(self, deadline_ms: int) -> None:
        """Stores the deadline. The caller must have called `acquire`."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.pwrite(fd, _DEADLINE.pack(deadline_ms), 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Closes the file."""
        self._lock.close()
