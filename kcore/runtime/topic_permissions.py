"""The permissions of a client for the topics of one request, decided in steps if there are many topics."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Final

from kcore.protocol.authorizer import Operation, ResourceType
from kcore.runtime.sliced import SLICE_COST_US

if TYPE_CHECKING:
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext

FEW_TOPICS: Final = 1_000
"""Maximum number of topics of a request whose permissions are decided in one slice."""
TOPICS_PER_STEP: Final = 100
PERMISSION_COST_US: Final = 8
"""The cost of a custom authorizer's decision about one topic, in microseconds."""


class TopicPermissions(dict[str, bool]):
    """Decisions about the topics of one request: topic name -> True if the client may do the operation.

    The authorizer decides about a topic when the topic is first looked up.

    Args:
        authorizer: decides about each topic.
        context: the client and the API version of the request.
        operation: the operation on each topic.
    """

    __slots__ = ("_authorizer", "_context", "_operation")

    def __init__(self, authorizer: Authorizer, context: RequestContext, operation: Operation) -> None:
        super().__init__()
        self._authorizer = authorizer
        self._context = context
        self._operation = operation

    def __missing__(self, topic: str) -> bool:
        decision = self._authorizer.allowed(self._context, self._operation, ResourceType.TOPIC, topic)
        self[topic] = decision
        return decision

    def steps(self, topics: Iterable[str | None]) -> Generator[int, None, None]:
        """Decides about all `topics` that are not None, in steps, and yields the cost of each step in microseconds.

        If there are many topics, the last step has the cost of a full slice, so that the next work of the request runs
        in another slice.
        """
        decided = 0
        for topic in topics:
            if topic is not None and topic not in self:
                self[topic]
                if len(self) - decided >= TOPICS_PER_STEP:
                    decided = len(self)
                    yield TOPICS_PER_STEP * PERMISSION_COST_US
        if decided > FEW_TOPICS:
            yield SLICE_COST_US
