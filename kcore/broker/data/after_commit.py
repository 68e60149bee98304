"""Read requests that wait for the current commit, so that their responses include the staged appends.

In Kafka, with one replica, every append is readable immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kcore.log.errors import LogError
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import log_failed_request, log_storage_error
from kcore.runtime.pending import Pending

if TYPE_CHECKING:
    from kcore.runtime.api import RequestContext
    from kcore.runtime.commit import CommitPipeline

logger = limited_logger(__name__)


def complete_with(pending: Pending, read: Callable[..., Any], *arguments: Any) -> None:
    """Completes `pending` with the result of `read`, or with an error if the read fails.

    Args:
        pending: the deferred response.
        read: makes the response, or returns a `Pending` for it.
        arguments: the arguments of `read`.
    """
    try:
        response = read(*arguments)
    except LogError as error:
        pending.fail(pending.api.storage_error)  # first: there may be no memory for the line
        log_storage_error(
            logger,
            error,
            "%s: the data cannot be read: %s; the client gets %s; if this repeats, check the log with `kcore log "
            "verify`",
            pending.api,
            pending.context,
        )
    except Exception as error:
        message = "%s: the data cannot be read, and the client gets UNKNOWN_SERVER_ERROR%s"
        pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        log_failed_request(logger, error, message, pending.api, pending.context)
    else:
        if isinstance(response, Pending):
            response.on_complete(pending.complete)
        else:
            pending.complete(response)


class Reader(Protocol):
    """An API whose responses depend only on durable state."""

    def respond(self, context: RequestContext, request: Any) -> Any:
        """Returns the response from the current durable state, or a `Pending` for it if the request is long."""
        ...


class AfterCommit:
    """A `Participant` that stages nothing.

    It reads after the commit, when the participants that have staged appends are done.
    """

    __slots__ = ("_pending", "_reader")

    allows_background_commit = True

    def __init__(self, reader: Any, context: RequestContext, request: Any) -> None:
        self._reader: Reader = reader
        self._pending = Pending(reader, context, request)

    def seal(self) -> None:
        """Does nothing, because this participant stages no writes."""

    def committed(self) -> None:
        """Reads and completes the response."""
        pending = self._pending
        complete_with(pending, self._reader.respond, pending.context, pending.request)

    def failed(self, error: LogError) -> None:
        """Reads the data without the failed appends, and completes the response with this data."""
        self.committed()

    @classmethod
    def respond(cls, pipeline: CommitPipeline, reader: Any, context: RequestContext, request: Any) -> Pending:
        """Returns a response that `reader.respond(context, request)` completes after the current commit."""
        waiting = cls(reader, context, request)
        pipeline.enlist(waiting)
        return waiting._pending
