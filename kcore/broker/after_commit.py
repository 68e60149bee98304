"""Answering a read once what is staged is durable: with one replica, Kafka has every append readable at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.log.errors import LogError
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline


class Reader(Protocol):
    """An API that can answer of what is durable."""

    def read(self, context: RequestContext, request: Any) -> Any:
        """The response, of what is durable now."""
        ...


class AfterCommit:
    """A `Participant` that staged nothing: it reads when the round is over, behind those whose appends it must see."""

    __slots__ = ("_pending", "_reader")

    def __init__(self, reader: Any, context: RequestContext, request: Any) -> None:
        self._reader: Reader = reader
        self._pending = Pending(reader, context, request)

    def seal(self) -> None:
        """Nothing to stage."""

    def committed(self) -> None:
        """Reads and answers."""
        pending = self._pending
        pending.complete(self._reader.read(pending.context, pending.request))

    def failed(self, error: LogError) -> None:
        """The appends are gone; the read stands by what is there."""
        self.committed()

    @classmethod
    def answer(cls, pipeline: CommitPipeline, reader: Any, context: RequestContext, request: Any) -> Pending:
        """The answer of `reader.read(context, request)` once the present round is over."""
        waiting = cls(reader, context, request)
        pipeline.enlist(waiting)
        return waiting._pending
