"""Share fetches that wait in the purgatory for records, an error or their timeout (KIP-932)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kcore.broker.data.after_commit import complete_with
from kcore.broker.share.states import SharePartitionState
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import request_name
from kcore.runtime.pending import Pending
from kcore_ext.runtime.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.delayed_fetch import DueFetches
    from kcore.broker.share.share_partition import SharePartition
    from kcore.runtime.api import RequestContext
    from kcore_ext.broker.share.share_fetch import ShareFetchPending
    from kcore_ext.runtime.timer_wheel import TimerWheel


WAITS = frozenset({ErrorCode.OFFSET_NOT_AVAILABLE})
"""Errors that a fetch reports only at its timeout.

The broker returns OFFSET_NOT_AVAILABLE if the reset policy `by_duration` found no record. A producer may write a
matching record before the timeout.
"""


class RefusedLater(Pending):
    """An error response that is sent at a deadline, unless the connection is closed earlier.

    Args:
        api: makes the error response.
        context: the client and the API version of the request.
        request: the refused request.
        code: the error.
        wheel: the node's timers.
        deadline_ms: the monotonic time of the response, in ms.
    """

    __slots__ = ("_timer",)

    def __init__(
        self, api: Any, context: RequestContext, request: Any, code: ErrorCode, wheel: TimerWheel, deadline_ms: int
    ) -> None:
        super().__init__(api, context, request, parked=True)
        self._timer = wheel.add(deadline_ms, partial(self.fail, code))

    def abandon(self) -> None:
        """Ends the wait, because the connection is closed.

        Otherwise the timer would keep the request in memory until it fires.
        """
        super().abandon()
        self._timer.cancel()


class DelayedShareFetch(DelayedOperation):
    """A share fetch that found no records.

    The purgatory checks the fetch when one of its partitions has new data. It also checks the fetch when one of its
    share partitions has released records or has been loaded.

    Args:
        pending: the deferred response.
        share_partitions: the share partitions of the fetch.
        min_bytes: the size of the records for which the fetch waits.
        respond: acquires records and makes the response.
        due_fetches: checks the fetch in a slice if many share partitions must be read.
    """

    __slots__ = ("_due_fetches", "_min_bytes", "_respond", "_share_partitions", "_watched", "pending")

    def __init__(
        self,
        pending: ShareFetchPending,
        share_partitions: list[SharePartition],
        min_bytes: int,
        respond: Callable[[], Any],
        due_fetches: DueFetches,
    ) -> None:
        super().__init__()
        self.pending = pending
        self._share_partitions = share_partitions
        self._min_bytes = min_bytes
        self._respond = respond
        self._due_fetches = due_fetches
        self._watched = False

    def __repr__(self) -> str:
        return request_name(self.pending.api, self.pending.context)

    def watch(self) -> None:
        """Subscribes the fetch to new records of its partitions."""
        for share_partition in self._share_partitions:
            share_partition.partition.watched += 1
        self._watched = True

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            for share_partition in self._share_partitions:
                share_partition.partition.watched -= 1

    def forget(self) -> None:
        """Ends the wait without a response."""
        if self.cancel():
            self._unwatch()

    def try_complete(self) -> bool:
        """Checks the fetch now; or in a slice, if it is in the purgatory and many share partitions must be read."""
        if self.watched and self._due_fetches.defer_if_costly(self, len(self._share_partitions)):
            return False
        return self.try_complete_now()

    def try_complete_now(self) -> bool:
        """Completes the fetch if a share partition has failed, if its log no longer exists, or if there are enough
        records."""
        return enough(self._share_partitions, self._min_bytes) and self.force_complete()

    def on_complete(self) -> None:
        """Acquires records and completes the response."""
        self.pending.operation = None
        self._unwatch()
        complete_with(self.pending, self._respond)


def enough(share_partitions: list[SharePartition], min_bytes: int) -> bool:
    """Returns True if a fetch need not wait: there are enough records, or a share partition has an error."""
    missing = min_bytes
    for share_partition in share_partitions:
        state = share_partition.state
        if state is SharePartitionState.ACTIVE and not share_partition.partition.closed:
            if share_partition.has_records():
                if missing <= 1:
                    return True
                missing -= share_partition.available_bytes(missing)
                if missing <= 0:
                    return True
        elif state is not SharePartitionState.INITIALIZING and share_partition.error not in WAITS:
            return True
    return False
