"""Imports of modules at their first use, with a reserve of file descriptors."""

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
    """A reserve of open file descriptors. They are closed during an import, so that the import can open files.

    Clients can use up all file descriptors of the process immediately after the start. Without a reserve, requests
    whose modules are not imported yet would fail.
    """

    __slots__ = ("_fds", "_holders")

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._holders = 0

    def hold(self) -> None:
        """Opens the descriptors of the reserve for a server, which later calls `drop` once."""
        self._holders += 1
        self.fill()

    def drop(self) -> None:
        """Reverts a call of `hold`. When all calls are reverted, closes the descriptors."""
        self._holders -= 1
        if not self._holders:
            self.release()

    def fill(self) -> None:
        """Opens the missing descriptors of the reserve. If no descriptor is free, a later call opens them."""
        with contextlib.suppress(OSError):
            while self._holders and len(self._fds) < COUNT:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def release(self) -> None:
        """Closes the descriptors, so that an import can use them; `fill` opens them again."""
        while self._fds:
            os.close(self._fds.pop())


RESERVE: Final = DescriptorReserve()


def import_late(name: str) -> ModuleType:
    """Imports a module. Closes the descriptors of `RESERVE` before the import, and opens them again after it.

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
