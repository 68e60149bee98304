"""Answering a read once what is staged is durable: with one replica, Kafka has every append readable at once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline

logger = logging.getLogger(__name__)


def complete_with(pending: Pending, read: Callable[..., Any], *arguments: Any) -> None:
    """Completes `pending` with what `read` returns; a read that fails is answered too, never left open.

    Args:
        pending: who waits.
        read: makes the response.
        arguments: of `read`.
    """
    try:
        response = read(*arguments)
    except LogError:
        logger.exception("a read for %s failed", type(pending.api).__name__)
        pending.fail(pending.api.storage_error)
    except Exception:
        logger.exception("%s failed", type(pending.api).__name__)
        pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        pending.complete(response)


class Reader(Protocol):
    """An API that can answer of what is durable."""

    def read(self, context: RequestContext, request: Any) -> Any:
        """The response, of what is durable now."""
        ...


class AfterCommit:
    """A `Participant` that staged nothing: it reads when the round is over, behind those whose appends it must see."""

    __slots__ = ("_pending", "_reader")

    allows_background_commit = True

    def __init__(self, reader: Any, context: RequestContext, request: Any) -> None:
        self._reader: Reader = reader
        self._pending = Pending(reader, context, request)

    def seal(self) -> None:
        """Nothing to stage."""

    def committed(self) -> None:
        """Reads and answers."""
        pending = self._pending
        complete_with(pending, self._reader.read, pending.context, pending.request)

    def failed(self, error: LogError) -> None:
        """The appends are gone; the read stands by what is there."""
        self.committed()

    @classmethod
    def answer(cls, pipeline: CommitPipeline, reader: Any, context: RequestContext, request: Any) -> Pending:
        """The answer of `reader.read(context, request)` once the present round is over."""
        waiting = cls(reader, context, request)
        pipeline.enlist(waiting)
        return waiting._pending
