"""Timeouts within a shard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcore.runtime.machine import Outcome
    from kcore.runtime.shard import Shard
    from kcore_ext.runtime.timer_wheel import Timer


class ShardTimer(ABC):
    """A timeout within a shard, which fires as a decision like any request.

    Subclasses hold ids, not closures. `fire` must check that the state for which the timer was armed still exists.

    Attributes:
        shard: the shard that armed the timer.
        generation: the number of the load of the shard in which the timer was armed.
        timer: the timer in the wheel, for subclasses that need it. Such a subclass assigns the attribute, and drops the
            timer with `disarm`.
    """

    __slots__ = ("generation", "shard", "timer")
    shard: Shard[Any]
    generation: int
    timer: Timer | None

    def __repr__(self) -> str:
        return type(self).__qualname__

    @abstractmethod
    def fire(self) -> Outcome | None:
        """Decides the consequences of the timeout, from the state at the time of firing."""

    def __call__(self) -> None:
        """Fires the timer, unless the shard was reloaded since it was armed. The driver calls it."""
        if self.generation == self.shard.generation:
            self.shard.perform(self.fire, self)

    def disarm(self) -> None:
        """Cancels the timer, if there is one, and drops the reference to it.

        The timer refers to this object. Without the drop, the two objects would be a reference cycle, and a server's
        garbage collector may never visit old cycles.
        """
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
