"""Long polls: fetches that wait in the purgatory for data, an error or their timeout."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from kcore.broker.data.after_commit import complete_with
from kcore.broker.data.fetch import available_bytes, divergence, refusal
from kcore.process_logging import log_failure
from kcore.runtime.pending import Pending
from kcore_ext.runtime.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kcore.broker.apis.fetch import FetchApi
    from kcore.broker.data.fetch_session import FetchContext
    from kcore.broker.data.partition import Partition
    from kcore.runtime.api import RequestContext
    from kcore.runtime.slices import Slices
    from kcore_ext.broker.fetch_reader import FetchItem, FetchParams


MAX_AT_ONCE: Final = 100
"""Partitions of a fetch that is tried as soon as one of them has progress; longer ones are tried in slices."""
MAX_WATCHED: Final = 500_000
"""The partitions of all parked operations above which a fetch with many of them gets its response at once. Each takes
about 350 bytes."""

logger = logging.getLogger(__name__)


class LongFetch(Protocol):
    """A parked fetch, of the records of partitions or of share partitions."""

    @property
    def watched(self) -> bool:
        """True while the fetch is parked."""
        ...

    def try_now(self) -> bool:
        """Completes the fetch if its condition holds. Returns whether it did."""
        ...


class LongFetches:
    """Parked fetches with many partitions that are due for another try.

    A try looks at every partition: an append to one that a thousand long fetches wait for would hold the event loop for
    seconds. So each of them is tried in a slice of its own, once for all appends until then.

    Args:
        slices: runs the slices.
    """

    __slots__ = ("_due", "_running", "_slices")

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._running = False
        self._due: dict[LongFetch, None] = {}

    def defer(self, operation: LongFetch) -> bool:
        """Defers a try. Returns False if it must take place at once, because no event loop runs slices."""
        if not self._slices.requests.enabled:
            return False
        if not self._running:
            self._slices.add(self._try_all())
            self._running = True
        self._due[operation] = None
        return True

    def _try_all(self) -> Iterator[None]:
        try:
            while self._due:
                operation = next(iter(self._due))
                del self._due[operation]
                try:
                    if operation.watched:
                        operation.try_now()
                except Exception as error:
                    log_failure(logger, error, "a parked fetch could not be tried; it waits for its timeout")
                yield
        finally:
            self._running = False
            self._due.clear()  # after an error: the next append begins again


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
        """Tries the fetch now, or in a slice if it has many partitions and was tried before."""
        if len(self.items) > MAX_AT_ONCE and self.watched and self.api.long_fetches.defer(self):
            return False
        return self.try_now()

    def try_now(self) -> bool:
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
