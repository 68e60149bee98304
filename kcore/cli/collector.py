"""The garbage collector of a server process: short full collections, however much state there is."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, Final

STEP_OBJECTS: Final = 100_000
"""The number of new objects in the oldest generation from which on they are collected. A collection visits an object in
a quarter of a microsecond."""
_THRESHOLDS: Final = (20_000, 12, 1_000_000)
"""Python's thresholds are 700, 10 and 10, which would take a fifth of a busy server's time."""
_AT_ONCE: Final = (20_000, 0, 0)
"""Thresholds with which the next collection is a full one. It cannot begin at the end of another one."""
_MIDDLE, _OLDEST = 1, 2
_FIRST_STEPS: Final = 8


class SteppedCollector:
    """Freezes the objects that a full collection has left, so that the next one visits only newer objects.

    Nearly all state is freed without the collector: it is not in cycles, and groups are in cycles only as a whole. A
    full collection of millions of objects would stop the event loop for up to a second, again and again while a client
    makes the state grow. So such a collection takes place only after the number of objects may have doubled. It frees
    cycles that were frozen while they were in use.

    Attributes:
        steps: the number of collections since the start, with the steps that the state at the start would have taken.
        full_at: the number of steps at which the next collection visits all objects.
    """

    __slots__ = ("full_at", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.full_at = _FIRST_STEPS

    def start(self) -> None:
        """Freezes all objects and sets the thresholds of this process."""
        gc.enable()
        gc.set_threshold(*_THRESHOLDS)
        if self not in gc.callbacks:
            gc.callbacks.append(self)
        self.freeze()

    def freeze(self) -> None:
        """Freezes all objects: imported modules, or the loaded state. It takes time for each object."""
        gc.freeze()
        self.steps = gc.get_freeze_count() // STEP_OBJECTS
        self.full_at = max(_FIRST_STEPS, 2 * self.steps)

    def stop(self) -> None:
        """Ends the collector's part; the thresholds stay."""
        gc.callbacks.remove(self)

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        """Handles the end of a collection; Python's garbage collector calls it."""
        if phase != "stop" or info["generation"] < _MIDDLE:
            return
        if info["generation"] == _MIDDLE:
            if len(gc.get_objects(_OLDEST)) >= STEP_OBJECTS:
                gc.set_threshold(*_AT_ONCE)
            return
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        self.steps += 1
        if self.steps == self.full_at:
            gc.unfreeze()
            gc.set_threshold(*_AT_ONCE)
        elif self.steps > self.full_at:
            self.full_at = 2 * self.steps


COLLECTOR: Final = SteppedCollector()
"""The collector of this process."""
