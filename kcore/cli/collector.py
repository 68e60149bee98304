"""The garbage collector of a server process. Its full collections stay short even if the state is large."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, Final

STEP_OBJECTS: Final = 50_000
"""Number of objects, except frozen ones, in the oldest generation that triggers a full collection (see `gc.freeze`).

A collection takes a quarter of a microsecond for each object.
"""
_THRESHOLDS: Final = (10_000, 5, 1_000_000)
"""The normal thresholds of Python's garbage collector. `_AT_ONCE` replaces them shortly before each full collection.

With Python's defaults 700, 10 and 10, collections would take a fifth of a busy server's time.
"""
_AT_ONCE: Final = (10_000, 0, 0)
"""Thresholds that make the next collection a full collection.

`SteppedCollector` sets them when a partial collection ends, because a full collection cannot start at this point.
"""
_MIDDLE: Final = 1
_OLDEST: Final = 2


class SteppedCollector:
    """A garbage collector that freezes the objects left by a full collection. The next collection visits only newer
    objects.

    A full collection of millions of objects would stop the event loop for up to a second. This would happen again and
    again while a client makes the state grow. Frozen objects are never visited again. They do not need the collector:
    deleted state and ended connections are not in cycles, so Python frees them at once. A cycle that becomes garbage
    after it was frozen is never freed.
    """

    __slots__ = ()

    def start(self) -> None:
        """Freezes all objects and sets the thresholds of this process."""
        gc.enable()
        gc.set_threshold(*_THRESHOLDS)
        if self not in gc.callbacks:
            gc.callbacks.append(self)
        self.freeze()

    def freeze(self) -> None:
        """Freezes all objects that exist now with `gc.freeze`: no later collection visits them.

        `start` calls this method after the imports. The server calls it again after it has loaded the state.
        """
        gc.freeze()

    def stop(self) -> None:
        """Stops freezing objects; the thresholds stay."""
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


COLLECTOR: Final = SteppedCollector()
"""The collector of this process."""
