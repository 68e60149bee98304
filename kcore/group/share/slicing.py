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
"""Maximum number of groups, topics and partitions in a request that runs without slices.

Longer requests run in steps of at most this number of partitions. The share coordinator has the same maximum.
"""
NAME_COST_US: Final = 5
"""The cost of looking up a group or topic and checking its permission, in microseconds."""
PARTITION_COST_US: Final = 60
"""The cost of one operation of the share coordinator on a partition, in microseconds."""
ROW_COST_US: Final = 2
"""The cost of building or reading the entry of one partition in a request or response, in microseconds."""


def in_slices(
    slices: Slices | None,
    api: Api[Any, Any],
    context: RequestContext,
    request: Any,
    work: Work,
    names: int,
    finish: Callable[[Any], Any],
) -> Any:
    """Runs all steps of `work` without a pause if the request has at most `FEW_PARTITIONS` names, else in slices.

    Args:
        slices: runs the slices; None: all steps run without a pause.
        api: the API of the request.
        context: the context of the request.
        request: the request that `work` serves.
        work: a generator that does a part of the request in steps.
        names: the number of groups, topics and partitions in the request.
        finish: called with the result of `work`; returns the response, or a `Pending` for it.
    """
    if slices is None or names <= FEW_PARTITIONS:
        return finish(step(work, -1)[1])
    return slices.requests.run(api, context, request, work, finish)
