"""The base of the simulated clients."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kcore.errors import ConnectionClosedError
from tools.simulate.channel import Channel
from tools.simulate.kernel import Task

if TYPE_CHECKING:
    from tools.simulate.world import World

NETWORK = (ConnectionClosedError, TimeoutError)


class Client(ABC):
    """One client process. A restart makes a new object with the same name.

    Args:
        world: the simulation.
        name: the client id; random numbers and record values derive from it.
        options: the settings of this kind of client.
        life: the number of earlier restarts of this client.

    Attributes:
        alive: False after the process has ended.
        choice: the client's random number generator.
    """

    def __init__(self, world: World, name: str, options: dict[str, Any], life: int) -> None:
        self.world = world
        self.kernel = world.kernel
        self.history = world.history
        self.name = name
        self.options = options
        self.life = life
        self.alive = True
        self.choice = random.Random(f"{world.plan.seed}/{name}/{life}")
        self._tasks: list[Task] = []
        self._channels: list[Channel] = []

    @abstractmethod
    def start(self) -> None:
        """Starts the client's work."""

    def channel(self) -> Channel:
        """Opens a connection of the client."""
        channel = self.world.make_channel(self.name)
        self._channels.append(channel)
        return channel

    def spawn(self, coroutine: Any) -> None:
        """Runs a coroutine until the process ends."""
        self._tasks.append(self.kernel.spawn(coroutine))

    def later(self, delay_ms: int, callback: Callable[..., object], *arguments: Any) -> None:
        """Calls `callback` after a delay, unless the process has ended."""

        def call() -> None:
            if self.alive:
                callback(*arguments)

        self.kernel.after(delay_ms, call)

    def kill(self) -> None:
        """Ends the process at once."""
        if self.alive:
            self.alive = False
            for task in self._tasks:
                task.stop()
            for channel in self._channels:
                channel.close()

    def shut_down(self) -> None:
        """Ends the process in an orderly way. The default implementation kills it."""
        self.kill()

    def at_rest(self) -> str | None:
        """Returns None if the client has recovered from all faults, otherwise the reason why it has not."""
        return None
