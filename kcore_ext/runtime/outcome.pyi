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
        records: the records in the order in which they are written and replayed, all of them or none. A list, or a
            `RecordBlock` (kcore.runtime.machine), which writes and replays itself.
        reply: the response, or a parked `Pending`; None if there is no request (a timer).
        producer_id: the producer of a transaction, whose records become a separate transactional batch; -1: none.
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

    The response waits for a commit (`parked` is False), or for other members, data or a timeout (`parked` is True: a
    join, a sync, a long poll). While a response that is not parked waits, later requests of the connection may be
    decided; responses keep their order. A response is completed exactly once. One callback may be attached, before or
    after the completion.

    Args:
        api: builds the error response if the request fails later.
        context: the context of the request.
        request: the request.
        parked: True if the response waits for something other than the commit of the records that it depends on.

    Attributes:
        done: True if the response is complete.
        response: the response; None before.
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
    def complete(self, response: Any) -> None:
        """Sets the response and calls the callback. Only the runtime calls it: machines use `ShardContext.respond`.

        An exception of the callback is logged, so that the other responses of the round are completed. If the callback
        is a method of another `Pending`, that `Pending` is completed with UNKNOWN_SERVER_ERROR. If there is no memory
        for this error response, the other `Pending` is completed with the exception, which closes the connection.
        """

    def fail(self, code: int) -> None:
        """Completes the response with the error response of the request's API for `code`."""

    def on_complete(self, callback: Callable[[Any], Any]) -> None:
        """Sets the only callback: `callback(response)` is called at completion, or at once if the response is
        complete.
        """

    def abandon(self) -> None:
        """Removes the callback, because the connection was closed.

        The operation continues; its response will be discarded.
        """
