"""What the APIs have in common that answer for partitions of named topics: ListOffsets and its like."""

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
"""Partitions that are looked at between two steps of a long request."""


class DataApi(Api[Request, Response]):
    """An API of the data plane.

    Args:
        partitions: what can be asked for.
        pipeline: commits what is appended and deleted.
        authorizer: who may do what; None allows all.
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
        """Whether the one who asks may do `operation` with a topic."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allowed(context, operation, ResourceType.TOPIC, topic)


class ReadApi(DataApi[Request, Response]):
    """An API that tells what is durable: where an append waits for its commit, the answer does, too."""

    __slots__ = ()

    @abstractmethod
    def places(self, request: Request) -> Iterable[tuple[str, int]]:
        """The partitions that a request asks about: topic and number."""

    @abstractmethod
    def read(self, context: RequestContext, request: Request) -> Response:
        """Builds the response at once, of what is durable now."""

    @abstractmethod
    def steps(self, context: RequestContext, request: Request) -> Work:
        """Builds the response in steps, each of what is durable then."""

    def handle(self, context: RequestContext, request: Request) -> Any:
        """Answers at once, or behind the commit of appends that nobody was told of yet."""
        count = 0
        for topic, index in self.places(request):
            count += 1
            partition = self._partitions.get(topic, index)
            if partition is not None and partition.unacknowledged:
                return AfterCommit.answer(self._pipeline, self, context, request)
        if count <= FEW_PARTITIONS:
            return self.read(context, request)
        return self._partitions.slices.requests.run(self, context, request, self.steps(context, request))
