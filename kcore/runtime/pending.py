"""An answer that is not there yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext

logger = logging.getLogger(__name__)


class Pending:
    """What a request gets instead of a response when the response comes later.

    It waits for a commit (`parked` is False: requests behind it on a connection may go on, answers keep their order),
    or for other members, data or a timeout (`parked` is True: a join, a sync, a long poll). It is completed exactly
    once; whoever wants the response attaches one callback, before or after.

    Args:
        api: builds the error response if the request fails after it was taken.
        context: who asks.
        request: the request.
        parked: whether it waits for something else than the commit of what it saw.
    """

    __slots__ = ("_callback", "api", "context", "done", "parked", "request", "response")

    def __init__(self, api: Api[Any, Any], context: RequestContext, request: Any, *, parked: bool = False) -> None:
        self.api = api
        self.context = context
        self.request = request
        self.parked = parked
        self.done = False
        self.response: Any = None
        self._callback: Callable[[Any], None] | None = None

    def complete(self, response: Any) -> None:
        """Gives the response to whoever waits. The runtime calls it; a state machine says `ShardContext.answer`.

        A callback that raises is logged and harms nobody: many answers go out one after the other.
        """
        assert not self.done, "a pending answer is completed exactly once"
        self.done = True
        self.response = response
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback(response)
            except Exception:
                logger.exception("whoever waited for an answer of %s failed", type(self.api).__name__)

    def fail(self, code: ErrorCode) -> None:
        """Completes it with the request's own error response for `code`."""
        self.complete(self.api.error(self.context, self.request, code))

    def on_complete(self, callback: Callable[[Any], None]) -> None:
        """Calls `callback(response)` once it is there: at once if it is. One callback alone may be attached."""
        if self.done:
            callback(self.response)
        else:
            assert self._callback is None, "one callback alone may wait for an answer"
            self._callback = callback

    def abandon(self) -> None:
        """Nobody waits any more (the connection closed): the answer will be thrown away; the operation goes on."""
        self._callback = None


class Gathered(Pending):
    """One response made of several that may still be pending: see `gather`."""

    __slots__ = ("_build", "_missing", "_parts")

    def __init__(
        self,
        api: Api[Any, Any],
        context: RequestContext,
        request: Any,
        parts: list[Any],
        build: Callable[[list[Any]], Any],
    ) -> None:
        super().__init__(api, context, request)
        self._parts = parts
        self._build = build
        waiting = [(i, part) for i, part in enumerate(parts) if isinstance(part, Pending)]
        self._missing = len(waiting)
        for i, part in waiting:
            self.parked = self.parked or part.parked
            part.on_complete(self._arrival(i))

    def _arrival(self, index: int) -> Callable[[Any], None]:
        def arrived(response: Any) -> None:
            self._parts[index] = response
            self._missing -= 1
            if self._missing:
                return
            try:
                response = self._build(self._parts)
            except Exception:
                logger.exception("the parts of an answer of %s do not fit together", type(self.api).__name__)
                self.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self.complete(response)

        return arrived


def gather(
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    parts: Sequence[Any],
    build: Callable[[list[Any]], Any],
) -> Any:
    """Joins the answers of several shards to one response.

    Args:
        api: the API of the whole request.
        context: who asks.
        request: the whole request.
        parts: responses, and `Pending`s where they are not there yet.
        build: makes the response of the parts' responses, in the order of `parts`.

    Returns:
        The response if all parts are there, else a `Pending`.
    """
    missing = [part for part in parts if isinstance(part, Pending) and not part.done]
    if not missing:
        return build([part.response if isinstance(part, Pending) else part for part in parts])
    gathered = Gathered(api, context, request, list(parts), build)
    return gathered.response if gathered.done else gathered
