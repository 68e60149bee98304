# Made by tools/generate_sync.py from _async/callers.py: change that file, then run the program.
"""Refuses calls that would block forever or collide: `close` from a callback, and concurrent calls of one operation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kcore.errors import ConcurrentCallError, ReentrantCallError
from kcore.node._sync.backend import caller, guard
from kcore.process_logging import log_name

logger = logging.getLogger(__name__)


class CallbackCallers:
    """The tasks or threads of a node that run a listener or a callback of the user's code."""

    def __init__(self) -> None:
        self._owners: dict[object, object] = {}

    @contextmanager
    def running(self, owner: object) -> Iterator[None]:
        """Marks the running task or thread as the runner of a callback until the `with` block ends.

        Args:
            owner: the member that waits for the end of the callback.
        """
        key = caller()
        outer = self._owners.get(key)
        try:
            self._owners[key] = owner
            yield
        finally:
            if outer is None:
                self._owners.pop(key, None)
            else:
                self._owners[key] = outer

    def call(self, owner: object, function: Callable[[Any], Any], argument: Any) -> None:
        """Calls the user's callback of an offset commit. Logs an exception, because the member continues."""
        try:
            with self.running(owner):
                function(argument)
        except Exception:
            logger.exception(
                "client: the callback %s of an offset commit raised an error; the member continues; correct the "
                "callback",
                log_name(function),
            )

    def require_outside(self, target: str, owner: object = None, *, closing: bool = False) -> bool:
        """Refuses to close an object from a callback, because the close would wait for the end of the callback.

        Args:
            target: the object, for the error.
            owner: the member that is closed; None: all members.
            closing: True if another call is closing the object already.

        Returns:
            True if the caller may close the object. False if the caller runs a callback, and another call is closing
            the object already.

        Raises:
            ReentrantCallError: the caller runs a callback, and no other call is closing the object.
        """
        running = self._owners.get(caller())
        if running is None or (owner is not None and owner is not running):
            return True
        if closing:
            return False
        raise ReentrantCallError(
            f"a listener or callback cannot close {target}, because close() waits until the callback has returned: "
            "call close() outside of callbacks"
        )


class SingleCaller:
    """A context manager around an operation that allows one task or thread at a time.

    Entering the `with` block raises ConcurrentCallError while another task or thread is inside the block.

    Args:
        operation: the description of the operation, for the error.
    """

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._guard = guard()
        self._caller: object | None = None

    def __enter__(self) -> None:
        own = caller()
        with self._guard:
            # The same caller may begin again, because an interrupt may have skipped the end.
            if self._caller is not None and self._caller != own:
                raise ConcurrentCallError(
                    f"{self._operation} in another task or thread already; only one at a time is possible"
                )
            self._caller = own

    def __exit__(self, *_: object) -> None:
        self._caller = None
