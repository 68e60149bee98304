"""The description of a group, which is collected in one decision and converted to its response in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

NAMES_A_MICROSECOND: Final = 5
"""The number of topic names that a step converts in a microsecond. The cost of the step is estimated from it."""


class Description(NamedTuple):
    """A group at the moment of a decision.

    Attributes:
        described: the group's part of the response; complete once `work` has ended.
        topics: the names of the group's topics; complete once `work` has ended.
        work: converts the assignments; yields the cost of each step in microseconds.
    """

    described: Any
    topics: set[str]
    work: Generator[int, None, None]
