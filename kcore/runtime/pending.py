"""Responses that are completed later (`Pending`), and functions that join several responses into one response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kcore_ext.runtime.outcome import Pending

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices

__all__ = ["Derived", "Gathered", "Pending", "gather", "gather_each"]

FEW_NAMES = 100
"""Maximum number of names that a request looks up in one step. Requests with more names are handled in slices."""
NAME_COST_US = 10
"""The default cost of the look-up of one name, in microseconds."""


class Gathered(Pending):
    """A response built from several responses, some of which are still pending. `gather` creates it."""

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
            part.on_complete(partial(self._arrived, i))

    def _arrived(self, index: int, response: Any) -> None:
        """Adds the response of one part, and builds the whole response after the last part.

        If building raises, `Pending.complete` completes the whole response with an error.
        """
        self._parts[index] = response
        self._missing -= 1
        if not self._missing:
            self.complete(self._build(self._parts))


class Derived(Pending):
    """A response that is made from another response, which is still pending.

    Args:
        api: the API of the response.
        context: the client and the API version of the request.
        request: the request that gets the converted response.
        source: the other response.
        convert: makes the response from the other response. If it raises, `Pending.complete` completes the response
            with an error.
    """

    __slots__ = ("_convert",)

    def __init__(
        self, api: Api[Any, Any], context: RequestContext, request: Any, source: Pending, convert: Callable[[Any], Any]
    ) -> None:
        super().__init__(api, context, request, parked=source.parked)
        self._convert = convert
        source.on_complete(self._arrived)

    def _arrived(self, response: Any) -> None:
        self.complete(self._convert(response))


def gather_each(
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    names: Sequence[str],
    look_up: Callable[[str], Any],
    build: Callable[[list[Any]], Any],
    slices: Slices | None,
    cost: Callable[[str], int] | None = None,
) -> Any:
    """Joins the responses about several names into one response.

    A name that the request repeats is looked up once, and its response is shared. So the cost of the request, without
    encoding its response, depends only on the number of different names.

    Args:
        api: the API of the whole request.
        context: the client and the API version of the request.
        request: the whole request.
        names: the names in the request.
        look_up: returns the response about one name, or a `Pending`.
        build: builds the response from the responses about single names, in the order of `names`.
        slices: runs a request about many names in slices; None: the request is handled in one step.
        cost: returns the cost of one name, in microseconds; None: each name costs `NAME_COST_US`.

    Returns:
        The response if all parts are complete, else a `Pending`.
    """
    distinct = dict.fromkeys(names)

    def join(parts: list[Any]) -> Any:
        if len(distinct) == len(names):
            return gather(api, context, request, parts, build)

        def expand(responses: list[Any]) -> Any:
            by_name = dict(zip(distinct, responses, strict=True))
            return build([by_name[name] for name in names])

        return gather(api, context, request, parts, expand)

    few = len(distinct) <= FEW_NAMES
    if slices is None or (few and cost is None):
        return join([look_up(name) for name in distinct])

    def work() -> Work:
        parts = []
        for name in distinct:
            parts.append(look_up(name))
            yield NAME_COST_US if cost is None else cost(name)
        return parts

    return slices.requests.run(api, context, request, work(), join, eager=few)


def gather(
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    parts: Sequence[Any],
    build: Callable[[list[Any]], Any],
) -> Any:
    """Joins the responses of several shards into one response.

    Args:
        api: the API of the whole request.
        context: the client and the API version of the request.
        request: the whole request.
        parts: the responses, each of which may be a `Pending`.
        build: builds the response from the parts' responses, in the order of `parts`.

    Returns:
        The response if all parts are complete, else a `Pending`.
    """
    missing = [part for part in parts if isinstance(part, Pending) and not part.done]
    if not missing:
        return build([part.response if isinstance(part, Pending) else part for part in parts])
    gathered = Gathered(api, context, request, list(parts), build)
    return gathered.response if gathered.done else gathered
