"""Long polls: fetches that wait in the purgatory for data, an error or their timeout."""

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
    """Response of a parked fetch. Abandoning it, because the connection closed, also ends the wait."""

    __slots__ = ("operation",)

    def __init__(self, api: Any, context: RequestContext, request: Any) -> None:
        super().__init__(api, context, request, parked=True)
        self.operation: DelayedFetch | None = None

    def abandon(self) -> None:
        """Removes the operation from the purgatory; it is never completed."""
        super().abandon()
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.forget()


class DelayedFetch(DelayedOperation):
    """A parked fetch without enough data for its response.

    The purgatory watches it under each of its partitions and tries it when one of them has progress. It completes once,
    by data, error or timeout, and then reads every partition again.

    Args:
        api: reads the partitions and makes the response.
        pending: the deferred response.
        items: the request's partitions.
        params: the request's limits.
        fetch_context: the request's session; None: no session.
        pending_appends: appends that the response must wait for: (partition, end offset when the request arrived).

    Attributes:
        partitions: the watched partitions; kept because the session's next request may look its partitions up again.
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
        """Makes its partitions report progress from now on."""
        for partition in self.partitions:
            partition.watched += 1

    def _unwatch(self) -> None:
        for partition in self.partitions:
            partition.watched -= 1

    def forget(self) -> None:
        """Ends the wait without a response."""
        if self.cancel():
            self._unwatch()

    def try_complete(self) -> bool:
        """Completes the fetch if a partition has an error, or if all partitions together have enough bytes."""
        if self.pending_appends:
            for awaited, end_offset in self.pending_appends:
                # A failed append moves the end offset back, which also ends the wait for it.
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
        """Reads every partition again and completes the response."""
        pending = self.pending
        if pending.operation is not None:
            pending.operation = None
            self._unwatch()
        complete_with(pending, self.api.read_again, pending.context, self.items, self.params, self.fetch_context)
