"""Slicing of long requests about offsets of share groups, so that they do not delay other requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kcore.runtime.sliced import step

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices

FEW_PARTITIONS: Final = 50
"""Maximum number of names in a request that runs without slices. Longer requests run in steps of this many partitions.

The share coordinator has the same maximum for a decision without slices.
"""
NAME_COST: Final = 5
"""The cost of a look-up of a group or topic with its authorization, in microseconds."""
PARTITION_COST: Final = 60
"""The cost of one operation of the share coordinator on a partition, in microseconds."""
ROW_COST: Final = 2
"""The cost of building or reading the entry of a partition in a message, in microseconds."""


def in_slices(
    slices: Slices | None,
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    work: Work,
    names: int,
    finish: Callable[[Any], Any],
) -> Any:
    """Runs work whose cost depends on the number of names in a request: at once if there are few names, else in slices.

    Args:
        slices: runs the slices; None: all work is done at once.
        api: the API of the request.
        context: the context of the request.
        request: the request.
        work: decides the request in steps.
        names: the number of groups, topics and partitions.
        finish: takes the result of `work`; returns the response, or a `Pending` for it.
    """
    if slices is None or names <= FEW_PARTITIONS:
        return finish(step(work, -1)[1])
    return slices.requests.run(api, context, request, work, finish)
