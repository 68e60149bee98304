"""Reads that complete after the present commit, so that they see the staged appends.

In Kafka, with one replica, every append is readable at once.
"""

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
    """Completes `pending` with the result of `read`, or with an error if the read fails.

    Args:
        pending: the deferred response.
        read: makes the response.
        arguments: the arguments of `read`.
    """
    try:
        response = read(*arguments)
    except LogError:
        logger.exception("%s: the read of the log failed", type(pending.api).__name__)
        pending.fail(pending.api.storage_error)
    except Exception:
        logger.exception("%s: internal error in a read", type(pending.api).__name__)
        pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        pending.complete(response)


class Reader(Protocol):
    """An API whose responses depend only on durable state."""

    def read(self, context: RequestContext, request: Any) -> Any:
        """Makes the response from the present durable state."""
        ...


class AfterCommit:
    """A `Participant` that stages nothing: it reads after the commit, after the participants whose appends it must
    see.
    """

    __slots__ = ("_pending", "_reader")

    allows_background_commit = True

    def __init__(self, reader: Any, context: RequestContext, request: Any) -> None:
        self._reader: Reader = reader
        self._pending = Pending(reader, context, request)

    def seal(self) -> None:
        """Does nothing: it stages nothing."""

    def committed(self) -> None:
        """Reads and completes the response."""
        pending = self._pending
        complete_with(pending, self._reader.read, pending.context, pending.request)

    def failed(self, error: LogError) -> None:
        """Reads and completes the response without the failed appends."""
        self.committed()

    @classmethod
    def respond(cls, pipeline: CommitPipeline, reader: Any, context: RequestContext, request: Any) -> Pending:
        """Returns a response that `reader.read(context, request)` completes after the present commit."""
        waiting = cls(reader, context, request)
        pipeline.enlist(waiting)
        return waiting._pending
