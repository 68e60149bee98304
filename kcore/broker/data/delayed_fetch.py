"""Long polls: a fetch that waits in the purgatory for data, an error, or the end of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.data.after_commit import complete_with
from kcore.broker.data.fetch import available_bytes, divergence, refusal
from kcore.runtime.pending import Pending
from kcore_ext.runtime.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kcore.broker.apis.fetch import FetchApi
    from kcore.broker.data.fetch_session import FetchContext
    from kcore.broker.data.partition import Partition
    from kcore.runtime.api import RequestContext
    from kcore_ext.broker.fetch_reader import FetchItem, FetchParams


class FetchPending(Pending):
    """The answer of a fetch that waits. Abandoning it (the connection closed) also ends the wait."""

    __slots__ = ("operation",)

    def __init__(self, api: Any, context: RequestContext, request: Any) -> None:
        super().__init__(api, context, request, parked=True)
        self.operation: DelayedFetch | None = None

    def abandon(self) -> None:
        """Nobody waits any more: the operation leaves the purgatory and is never completed."""
        super().abandon()
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.forget()


class DelayedFetch(DelayedOperation):
    """A fetch that has not enough to answer yet.

    It is watched under each of its partitions, and tried whenever one of them has something new. Completed once, by
    data, error or timeout; it then reads everything again.

    Args:
        api: who reads and answers.
        pending: who waits.
        items: the request's partitions.
        params: the request's limits.
        fetch_context: the request's session, None without.
        unsettled: appends that the answer has to wait for whatever it holds: (partition, end offset when asked).

    Attributes:
        partitions: those that it waits for. A session's next request may look the session's partitions up anew.
    """

    __slots__ = ("api", "fetch_context", "items", "params", "partitions", "pending", "pending_appends")

    def __init__(
        self,
        api: FetchApi,
        pending: FetchPending,
        items: list[FetchItem],
        params: FetchParams,
        fetch_context: FetchContext | None,
        pending_appends: list[tuple[Partition, int]],
    ) -> None:
        super().__init__()
        self.api = api
        self.pending = pending
        self.items = items
        self.partitions = dict.fromkeys(item.partition for item in items if item.partition is not None)
        self.params = params
        self.fetch_context = fetch_context
        self.pending_appends = pending_appends

    def watch(self) -> None:
        """Its partitions tell when they have something new, from now on."""
        for partition in self.partitions:
            partition.watched += 1

    def _unwatch(self) -> None:
        for partition in self.partitions:
            partition.watched -= 1

    def forget(self) -> None:
        """Ends the wait without an answer."""
        if self.cancel():
            self._unwatch()

    def try_complete(self) -> bool:
        """Completes it if any partition has an error, or all of them together have enough bytes."""
        if self.pending_appends:
            for awaited, end_offset in self.pending_appends:
                # An append that failed takes the end back: then there is nothing to wait for either.
                if awaited.high_watermark < end_offset <= awaited.log.end_offset and not awaited.closed:
                    return False
            self.pending_appends = []
            if self.params.max_wait_ms <= 0:
                return self.force_complete()
        params = self.params
        missing = params.min_bytes
        if missing > 0 and self.api.reader.idle(self.items, params):
            return False
        read_committed = params.read_committed
        for item in self.items:
            partition = item.partition
            if partition is None or refusal(partition, item) is not None:
                return self.force_complete()
            if item.last_fetched_epoch >= 0 and divergence(partition, item) is not None:
                return self.force_complete()
            limit = partition.last_stable_offset if read_committed else partition.high_watermark
            if item.fetch_offset < limit:
                if missing <= 1:
                    return self.force_complete()
                missing -= available_bytes(partition, item, limit)
        if missing <= 0:
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        """Reads everything again and answers."""
        pending = self.pending
        if pending.operation is not None:
            pending.operation = None
            self._unwatch()
        complete_with(pending, self.api.read_again, pending.context, self.items, self.params, self.fetch_context)
