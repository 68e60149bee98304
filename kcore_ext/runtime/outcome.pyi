from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

class Facts(Protocol):
    """Records, in their order: a list of them, or what stands for one."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...

@final
class Outcome:
    """What was decided: facts to keep, and a reply to give once they are kept.

    Attributes:
        records: facts in the order in which they are written and replayed; all of them or none. A list, or a
            `RecordBlock` (see kcore.runtime.machine), which writes and replays itself.
        reply: the response, or a parked `Pending`; None where nobody waits (a timer).
        producer_id: for facts of a transaction: they become a transactional batch of their own.
        producer_epoch: the epoch of that producer.
    """

    def __init__(self, records: Facts, reply: Any = None, producer_id: int = -1, producer_epoch: int = -1) -> None: ...
    @property
    def records(self) -> Facts: ...
    @property
    def reply(self) -> Any: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...

class Pending:
    """What a request gets instead of a response when the response comes later.

    It waits for a commit (`parked` is False: requests behind it on a connection may go on, answers keep their order),
    or for other members, data or a timeout (`parked` is True: a join, a sync, a long poll). It is completed exactly
    once; whoever wants the response attaches one callback, before or after.

    Args:
        api: builds the error response if the request fails after it was taken.
        context: who asks.
        request: the request.
        parked: whether it waits for something else than the commit of what it saw.

    Attributes:
        done: whether the response is there.
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
        """Gives the response to whoever waits. The runtime calls it; a state machine says `ShardContext.answer`.

        A callback that raises is logged and harms nobody: many answers go out one after the other.
        """

    def fail(self, code: int) -> None:
        """Completes it with the request's own error response for `code`."""

    def on_complete(self, callback: Callable[[Any], Any]) -> None:
        """Calls `callback(response)` once it is there: at once if it is. One callback alone may be attached."""

    def abandon(self) -> None:
        """Nobody waits any more (the connection closed): the answer will be thrown away; the operation goes on."""
