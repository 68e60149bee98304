"""An answer that is not there yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcore.protocol.error_codes import ErrorCode
from kcore_ext.decision import Pending

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext

__all__ = ["Gathered", "Pending", "gather"]

logger = logging.getLogger(__name__)


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
