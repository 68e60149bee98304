"""Base classes of the APIs of the data plane, such as ListOffsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kcore.broker.data.after_commit import AfterCommit
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.api import Api, RequestContext

if TYPE_CHECKING:
    from kcore.broker.data.partitions import Partitions
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.sliced import Work

Request = TypeVar("Request")
Response = TypeVar("Response")

FEW_PARTITIONS = 200
"""Number of partitions that one step of a long request handles."""


class DataApi(Api[Request, Response]):
    """Base of the APIs of the data plane.

    Args:
        partitions: the node's partitions.
        pipeline: commits appends and deletions.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_authorizer", "_partitions", "_pipeline")

    storage_error: ClassVar[ErrorCode] = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(
        self, partitions: Partitions, pipeline: CommitPipeline, *, authorizer: Authorizer | None = None
    ) -> None:
        self._partitions = partitions
        self._pipeline = pipeline
        self._authorizer = authorizer

    def allowed(self, context: RequestContext, operation: Operation, topic: str) -> bool:
        """Decides if the client may perform `operation` on a topic."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, operation, ResourceType.TOPIC, topic)


class ReadApi(DataApi[Request, Response]):
    """Base of the APIs that read durable state. A response waits until earlier appends with acks=0 are durable."""

    __slots__ = ()

    @abstractmethod
    def requested_partitions(self, request: Request) -> Iterable[tuple[str, int]]:
        """Yields the topic and number of each requested partition."""

    @abstractmethod
    def read(self, context: RequestContext, request: Request) -> Response:
        """Makes the response in one step, from the current durable state."""

    @abstractmethod
    def steps(self, context: RequestContext, request: Request) -> Work:
        """Makes the response in steps, each from the durable state at the time of the step."""

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Responds immediately, or after the commit if a requested partition has an uncommitted append with acks=0."""
        for topic, index in self.requested_partitions(request):
            partition = self._partitions.get(topic, index)
            if partition is not None and partition.unacknowledged:
                return AfterCommit.respond(self._pipeline, self, context, request)
        return self.respond(context, request)

    def respond(self, context: RequestContext, request: Request) -> Any:
        """Returns the response, or a `Pending` for it if the request is long."""
        if self.is_short(request):
            return self.read(context, request)
        return self._partitions.slices.requests.run(self, context, request, self.steps(context, request))

    def is_short(self, request: Request) -> bool:
        """Returns True if the request has few partitions, so that it is served in one step."""
        return sum(1 for _ in self.requested_partitions(request)) <= FEW_PARTITIONS
