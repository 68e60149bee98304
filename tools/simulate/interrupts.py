"""Raises an exception at a random call within a commit: before or after a call of a Python or compiled function."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

MOMENTS: Final[dict[type[BaseException], frozenset[str]]] = {
    MemoryError: frozenset(("call", "c_call")),
    KeyboardInterrupt: frozenset(("call", "c_return")),
}
"""Exception class -> events of `sys.setprofile` at which Python can raise it. CPython handles signals after calls."""
RELEASES: Final = ("__exit__", "release")
"""Names of methods that release a lock. They allocate no memory, so no exception is raised at their calls."""


class InterruptAt:
    """A profile function that raises an exception at the n-th event of kcore's functions, or of other modules.

    Args:
        events_before: the number of events before the exception.
        error: the exception, a key of `MOMENTS`.
        modules: the prefix of the names of the modules whose events count.

    Attributes:
        left: the remaining number of events before the exception.
        raised: True once the exception was raised.
        where: the function in which the exception was raised.
    """

    def __init__(self, events_before: int, error: type[BaseException], modules: str = "kcore.") -> None:
        self.left = events_before
        self._modules = modules
        self._error = error
        self._moments = MOMENTS[error]
        self.raised = False
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Counts an event of `sys.setprofile`. Raises the exception once enough events have passed."""
        if self.raised or event not in self._moments:
            return
        if not frame.f_globals.get("__name__", "").startswith(self._modules):
            return
        if event == "c_call" and argument.__name__ in RELEASES:
            return
        self.left -= 1
        if self.left < 0:
            self.raised = True
            self.where = f"{event} in {frame.f_code.co_qualname}"
            sys.setprofile(None)
            raise self._error


@contextmanager
def without_collections() -> Iterator[None]:
    """Runs the block without garbage collections.

    A collection would run the finalizers of unrelated objects within the block. An exception would then be raised in a
    finalizer, or the calls of the finalizers would count.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Runs the block without the profile function, so that no exception is injected in it."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)


@contextmanager
def interrupted(
    events_before: int, error: type[BaseException], trace: Callable[[str], None], modules: str = "kcore."
) -> Iterator[InterruptAt]:
    """Raises an exception at one event of the block; the arguments are those of `InterruptAt`."""
    interrupt = InterruptAt(events_before, error, modules)
    with without_collections():
        sys.setprofile(interrupt)
        try:
            yield interrupt
        finally:
            sys.setprofile(None)
            if interrupt.raised:
                trace(f"{error.__name__} at event {events_before}: {interrupt.where}")
