"""The order of operations that must not overlap: transactions of one transactional id, and closes of a node."""

from __future__ import annotations

from collections import deque

from kcore.node._async.backend import Event


class Turn:
    """An element of a `Turns` queue: a transaction of a producer, or a call that closes a node.

    Attributes:
        first: an event, set when this turn becomes the first turn in the queue.
        caller: the task or thread, once the transaction is open or the close has begun; None before.
    """

    __slots__ = ("caller", "first")

    def __init__(self) -> None:
        self.first = Event()
        self.caller: object = None


class Turns:
    """The queue of the turns of one producer or node, in the order of their `wait`. The first turn may use the
    producer, or close the node.

    A KeyboardInterrupt may come between any two steps of `wait` and `leave`. A lock could stay locked after such an
    interrupt. A turn is in the queue as soon as `wait` has begun, so `leave` always finds it.
    """

    def __init__(self) -> None:
        self._queue: deque[Turn] = deque()

    async def wait(self, turn: Turn) -> None:
        """Waits until `turn` is the first turn.

        The caller must then call `leave`, even if this method raises an exception.
        """
        self._queue.append(turn)
        while self._queue[0] is not turn:
            turn.first.clear()
            if self._queue[0] is not turn:
                await turn.first.wait()

    def leave(self, turn: Turn) -> None:
        """Removes `turn`, and wakes the next turn.

        Any thread may call this method. After an interrupt, the caller may call it a second time.
        """
        if turn in self._queue:
            self._queue.remove(turn)
        following = self._first()
        if following is not None:
            following.first.set()

    def is_open_for(self, caller: object) -> bool:
        """Returns True if the first turn belongs to `caller`, and its transaction or close has begun."""
        turn = self._first()
        return turn is not None and turn.caller is not None and turn.caller == caller

    def _first(self) -> Turn | None:
        """Returns the first turn, or None. The queue is copied, because another thread may empty it meanwhile."""
        queue = list(self._queue)
        return queue[0] if queue else None
