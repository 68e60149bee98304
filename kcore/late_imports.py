"""Imports of modules at their first use, with file descriptors that are kept free for them."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from types import ModuleType
from typing import Final

COUNT: Final = 4
"""Number of file descriptors in the reserve.

An import opens one file at a time, but packages that import each other have several imports in progress.
"""


class DescriptorReserve:
    """A reserve of file descriptors of this process, which is closed for the time of an import while all other
    descriptors are in use.

    Clients can use up all descriptors in the second after a start. Without a reserve, requests whose modules are not
    imported yet would fail.
    """

    __slots__ = ("_fds", "_holders")

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._holders = 0

    def hold(self) -> None:
        """Reserves the descriptors, for a server that has not imported everything; `drop` ends it."""
        self._holders += 1
        self.fill()

    def drop(self) -> None:
        """Ends one `hold`. After the end of the last `hold`, the descriptors are closed."""
        self._holders -= 1
        if not self._holders:
            self.release()

    def fill(self) -> None:
        """Opens the missing descriptors of the reserve. If no descriptor is free, a later call opens them."""
        with contextlib.suppress(OSError):
            while self._holders and len(self._fds) < COUNT:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Closes the descriptors for the time of an import."""
        while self._fds:
            os.close(self._fds.pop())


RESERVE: Final = DescriptorReserve()


def import_late(name: str) -> ModuleType:
    """Imports a module, with the descriptors of the reserve.

    Args:
        name: the module's full name.

    Raises:
        ImportError, OSError: the module cannot be read.
    """
    RESERVE.release()
    try:
        return import_module(name)
    finally:
        RESERVE.fill()
