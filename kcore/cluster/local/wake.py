"""Notifications between processes through FIFOs: a byte wakes the listener of a node."""

from __future__ import annotations

import contextlib
import os
import selectors
import stat
import threading
from collections.abc import Callable
from typing import Final

from kcore.log.data_folder import FILE_MODE
from kcore.log.errors import LogError
from kcore.log.node_journals import CLUSTER_FOLDER

NAME: Final = "wake"
_READ_BYTES: Final = 4096


def notify(path: str) -> None:
    """Wakes the listeners of all nodes of a data folder. If a FIFO is full, its listener wakes anyway, because of the
    unread bytes.
    """
    folder = os.path.join(path, CLUSTER_FOLDER)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            _wake(os.path.join(folder, name, NAME))


def _wake(path: str) -> None:
    with contextlib.suppress(OSError):  # there is no listener, or it has unread bytes
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b"\0")
        finally:
            os.close(fd)


class Listener:
    """A thread that calls a function when another process has changed the cluster.

    Args:
        folder: the folder of the node.
        callback: the function; it is called on the thread.
    """

    __slots__ = ("_callback", "_fd", "_path", "_stop_read", "_stop_write", "_stopped", "_thread")

    def __init__(self, folder: str, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._path = os.path.join(folder, NAME)
        self._stopped = False
        self._fd = self._stop_read = self._stop_write = -1
        try:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._path, FILE_MODE)
            if not stat.S_ISFIFO(os.stat(self._path).st_mode):
                raise LogError(f"{self._path} is not a FIFO")
            # A writer of its own keeps reads of the FIFO from reporting its end.
            self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._stop_read, self._stop_write = os.pipe()
            self._thread = threading.Thread(target=self._run, name="kcore-wake", daemon=True)
            self._thread.start()
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise LogError(f"listening for changes of the cluster: {error}") from error
            raise

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._fd, selectors.EVENT_READ)
            selector.register(self._stop_read, selectors.EVENT_READ)
            while not self._stopped:
                ready = {key.fd for key, _ in selector.select()}
                if self._fd in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._fd, _READ_BYTES)
                    if not self._stopped:
                        self._callback()

    def stop(self) -> None:
        """Ends the listening thread."""
        if self._stopped:
            return
        self._stopped = True
        os.write(self._stop_write, b"\0")
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._close()

    def _close(self) -> None:
        for fd in (self._fd, self._stop_read, self._stop_write):
            if fd >= 0:
                os.close(fd)
