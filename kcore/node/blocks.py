"""The `with` block of a context manager whose `__exit__` may be interrupted before its first statement."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class TrackedExit:
    """A descriptor in place of `__exit__`, which calls a function if a `with` block ends without a complete `__exit__`.

    A KeyboardInterrupt may come before the first statement of `__exit__`, where no `try` can catch it. At the beginning
    of a block, the interpreter looks up `__exit__`, and holds the result until the block ends. Therefore, this
    descriptor returns a new function, and calls `left` when the interpreter releases this function. Other look-ups of
    `__exit__` during the block have no effect.

    Args:
        function: the `__exit__` of the class.
        left: called with the object when its block has ended, unless the object's attribute `_block` is None.
            `__exit__` sets `_block` to None at its end, to prevent the call. Python ignores an exception in this call,
            so a KeyboardInterrupt during the call would be lost.
        is_open: returns True while the object is in its block.
    """

    def __init__(
        self, function: Callable[..., Any], left: Callable[[Any], None], is_open: Callable[[Any], bool]
    ) -> None:
        self._function = function
        self._left = left
        self._is_open = is_open
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        if instance is None:
            return self._function
        function = partial(self._function, instance)
        if not self._is_open(instance):
            left, owning = self._left, weakref.ref(instance)

            def released(_: object) -> None:
                again = owning()
                if again is not None:
                    left(again)

            instance._block = weakref.ref(function, released)
        return function


def tracked_exit(left: Callable[[Any], None], is_open: Callable[[Any], bool]) -> Callable[[F], F]:
    """Returns a decorator of `__exit__`; see `TrackedExit`."""

    def decorate(function: F) -> F:
        return cast("F", TrackedExit(function, left, is_open))

    return decorate
