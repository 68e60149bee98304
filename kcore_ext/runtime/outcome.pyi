from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

class Records(Protocol):
    """A sequence of records: a list, or a `RecordBlock`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...

@final
class Outcome:
    """The result of a decision: records to write, and a response that waits until they are durable.

    Attributes:
        records: the records, in the order in which they are written and replayed. Either all of them are written, or
            none. It is a list, or a `RecordBlock` (kcore.runtime.machine) with its own methods for writing and replay.
        reply: the response, or a parked `Pending`; None for a decision without a request, such as that of a timer.
        producer_id: the producer to whose transaction the records belong; they become a separate transactional batch.
            -1: the records belong to no transaction.
        producer_epoch: the epoch of that producer.
    """

    def __init__(
        self, records: Records, reply: Any = None, producer_id: int = -1, producer_epoch: int = -1
    ) -> None: ...
    @property
    def records(self) -> Records: ...
    @property
    def reply(self) -> Any: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...

class Pending:
    """A response that will be completed later.

    If `parked` is False, the response waits only for a commit. Meanwhile, the next requests of the connection are
    decided; the responses are sent in request order. If `parked` is True, the response waits for other members, data or
    a timeout, as in a join, a sync or a long poll.

    A response is completed exactly once. A single callback can be attached, before or after the completion.

    Args:
        api: builds the error response if the request fails later.
        context: the client and the API version of the request.
        request: the request to which this is the response.
        parked: True if the response waits for something other than the commit of the records that it depends on.

    Attributes:
        done: True if the response is complete.
        response: the response; None until it is complete.
        after_commit: the response with which the pipeline completes it once the awaited commit is durable; None before
            it waits for a commit.
    """

    parked: bool

    def __init__(self, api: Any, context: Any, request: Any, *, parked: bool = False) -> None: ...
    @property
    def api(self) -> Any: ...
    @property
    def context(self) -> Any: ...
    @property
    def request(self) -> Any: ...
    @property
    def done(self) -> bool: ...
    @property
    def response(self) -> Any: ...
    @property
    def after_commit(self) -> Any: ...
    def complete(self, response: Any) -> None:
        """Sets the response and calls the callback.

        Only the runtime calls this method; state machines call `ShardContext.respond`.

        If the callback raises an exception, the exception is logged, so that the other responses of the round are still
        completed. If the callback is a method of a second `Pending`, the second `Pending` is completed with
        UNKNOWN_SERVER_ERROR. If there is no memory for this error response, the second `Pending` is completed with the
        exception instead, which closes the connection.
        """

    def fail(self, code: int, message: str | None = None) -> None:
        """Completes the response with an error response of the request's API, whose error code is `code`.

        The response contains `message` if the API has a field for it. If all attempts to build the error response fail,
        for example without memory, the response is completed with the exception. A server then closes the connection,
        and an embedded engine raises the exception.
        """

    def on_complete(self, callback: Callable[[Any], Any]) -> None:
        """Sets the callback, which receives the response.

        It is called at completion, or immediately if the response is complete.
        """

    def redirect(self, callback: Callable[[Any], Any]) -> None:
        """Sets the callback in place of the present one, because another driver waits for the response from now on."""

    def abandon(self) -> None:
        """Removes the callback, because the connection was closed.

        The operation continues; its response will be discarded.
        """
