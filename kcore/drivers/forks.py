"""Makes the drivers of a forked child refuse every call, because their engines belong to the parent.

A fork copies only one thread. A lock that another thread of the parent held stays locked in the child forever, and
memory that this thread was changing stays half changed. So the child uses neither the locks nor the memory.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedDriver(Protocol):
    """A driver that may exist when the process is forked."""

    def leave_to_parent(self, reason: str) -> None:
        """Makes this process refuse every later call with an EngineClosedError of text `reason`. Waits for no lock."""
        ...


_DRIVERS: weakref.WeakSet[ForkedDriver] = weakref.WeakSet()


def refuse_in_child(driver: ForkedDriver) -> None:
    """Registers a driver, which forked children of this process then refuse to use."""
    _DRIVERS.add(driver)


def connection_refusal() -> str:
    """Returns the text of the errors in a forked child for a node that the parent has connected to a cluster."""
    return f"the node was connected by the parent of process {os.getpid()}: connect again after the fork"


def _leave_all() -> None:
    reason = f"the engine was opened by the parent of process {os.getpid()}: open it after the fork"
    for driver in list(_DRIVERS):
        driver.leave_to_parent(reason)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
