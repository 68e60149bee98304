"""Long polls: fetches that wait in the purgatory for data, an error or their timeout."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from kcore.broker.data.after_commit import complete_with
from kcore.broker.data.fetch import available_bytes, divergence, refusal
from kcore.process_logging import log_failure, next_step
from kcore.runtime.failed_requests import request_name
from kcore.runtime.pending import Pending
from kcore_ext.runtime.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kcore.broker.apis.fetch import FetchApi
    from kcore.broker.data.fetch_session import FetchContext
    from kcore.broker.data.partition import Partition
    from kcore.clock import Now
    from kcore.runtime.api import RequestContext
    from kcore.runtime.slices import Slices
    from kcore_ext.broker.fetch_reader import FetchItem, FetchParams


MAX_AT_ONCE: Final = 100
"""Maximum number of partitions for which a parked fetch is checked immediately when new data arrives.

Larger fetches are checked in slices.
"""
MAX_IN_A_ROUND: Final = 1_000
"""Maximum number of partitions that all immediate checks of parked fetches examine during one round of requests.

Each partition takes about a microsecond. Further fetches are checked in slices.
"""
MAX_BATCHES: Final = 15_000
"""Maximum number of batches that one check of a parked fetch examines.

If a check finds this many batches, the fetch is completed immediately. A response rarely contains more batches.
"""
MAX_WATCHED: Final = 500_000
"""Limit for the total number of partitions that parked operations wait for. Above it, a fetch with many partitions is
not parked, but completed immediately.

A watched partition takes about 350 bytes.
"""

logger = logging.getLogger(__name__)


class ParkedFetch(Protocol):
    """The interface of a parked Fetch or ShareFetch request."""

    deferred: bool

    @property
    def watched(self) -> bool:
        """True while the purgatory watches the fetch."""
        ...

    def try_complete_now(self) -> bool:
        """Completes the fetch if its condition holds. Returns True if the call has completed the fetch."""
        ...


class DueFetches:
    """The parked fetches to check because an append has added data. Some are checked immediately, the others in slices.

    A check examines every partition of the fetch. If a round of requests appends to many partitions, each fetch would
    be checked once for each of these partitions. A thousand clients could block the event loop for seconds. So a fetch
    is checked in a slice if it has many partitions, or if the checks of the round have already examined many partitions
    (`MAX_IN_A_ROUND`). One check then covers all appends before the slice.

    Args:
        slices: runs the slices.
        now: the clock, which the driver reads once for each round of requests.
    """

    __slots__ = ("_checked", "_due", "_now", "_round_ms", "_running", "_slices")

    def __init__(self, slices: Slices, now: Now) -> None:
        self._slices = slices
        self._now = now
        self._round_ms = -1
        self._checked = 0  # number of partitions that the checks of this round have examined
        self._running = False
        self._due: dict[ParkedFetch, int] = {}  # deferred fetch -> the number of its partitions

    def defer_if_costly(self, operation: ParkedFetch, partitions: int) -> bool:
        """Schedules the check of a parked fetch in a slice if it would delay this round too long.

        Args:
            operation: the fetch.
            partitions: the number of its partitions or, if that is larger, of the batches that it examines.

        Returns:
            False if this method has scheduled no check, so that the caller checks the fetch immediately.
        """
        if self._round_ms != self._now.now_ms:
            self._round_ms = self._now.now_ms
            self._checked = 0
        self._checked += partitions
        if partitions <= MAX_AT_ONCE and self._checked <= MAX_IN_A_ROUND:
            return False
        if not self._slices.requests.enabled:
            return False  # no event loop runs slices
        if not self._running:
            self._slices.add(self._check_all())
            self._running = True
        self._due[operation] = partitions
        operation.deferred = True
        return True

    def _check_all(self) -> Iterator[None]:
        examined = 0
        try:
            while self._due:
                operation = next(iter(self._due))
                examined += self._due[operation]
                operation.deferred = False
                del self._due[operation]
                try:
                    if operation.watched:
                        operation.try_complete_now()
                except Exception as error:
                    log_failure(
                        logger,
                        error,
                        "fetch: an internal error while checking whether new data completes the waiting request %r; "
                        "the request gets its response after its max_wait_ms%s",
                        operation,
                        next_step(error),
                    )
                if examined >= MAX_AT_ONCE:
                    examined = 0
                    yield
        finally:
            self._running = False
            for operation in self._due:  # after an error, the next append starts the slices again
                operation.deferred = False
            self._due.clear()


class FetchPending(Pending):
    """Response of a parked fetch. If the connection closes, `abandon` also removes the fetch from the purgatory."""

    __slots__ = ("operation",)

    def __init__(self, api: Any, context: RequestContext, request: Any) -> None:
        super().__init__(api, context, request, parked=True)
        self.operation: DelayedFetch | None = None

    def abandon(self) -> None:
        """Removes the fetch from the purgatory without completing it."""
        super().abandon()
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.forget()


class DelayedFetch(DelayedOperation):
    """A parked fetch without enough data for its response.

    The purgatory checks the fetch when one of its partitions has new data or another change. The fetch is completed
    once: when it has enough data, when a partition has an error, or at its timeout. It then reads every partition
    again.

    Args:
        api: reads the partitions and makes the response.
        pending: the deferred response.
        items: the request's partitions.
        params: the request's limits.
        fetch_context: the request's session; None: no session.
        pending_appends: appends that the response must wait for: (partition, end offset when the request arrived).

    Attributes:
        cost: the number of partitions or, if that is larger, of the batches that the last check examined. A check takes
            about a microsecond for each.
        partitions: the watched partitions. The partitions of `items` may change, because the session's next request
            looks them up again.
    """

    __slots__ = ("api", "cost", "fetch_context", "items", "params", "partitions", "pending", "pending_appends")

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
        self.cost = len(items)

    def __repr__(self) -> str:
        return request_name(self.pending.api, self.pending.context)

    def watch(self) -> None:
        """Subscribes the fetch to progress of its partitions."""
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
        """Checks the fetch now. If it is in the purgatory and must read many partitions, a later slice checks it."""
        if self.watched and self.api.due_fetches.defer_if_costly(self, self.cost):
            return False
        return self.try_complete_now()

    def try_complete_now(self) -> bool:
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
        examined_batches = 0
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
                size, batches = available_bytes(partition, item, limit)
                missing -= size
                examined_batches += batches
                if examined_batches >= MAX_BATCHES:
                    return self.force_complete()
        self.cost = max(len(self.items), examined_batches)
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
