"""Measures the time of requests for the quota `request_percentage` (KIP-124), while any client has such a quota."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.pending import Pending
from kcore.runtime.sliced import SlicedPending

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.runtime.api import Api, RequestContext
    from kcore_ext.server.api_entry import ApiEntry

EXEMPT = frozenset({ApiKey.WRITE_TXN_MARKERS})
"""APIs whose time does not count for the quota. Kafka exempts the requests that brokers send to each other."""

NS_PER_US = 1_000
"""Number of nanoseconds in a microsecond, the unit of `SlicedPending.cost`."""


class RequestMeter:
    """The meter of requests: charges their time to their clients, and sets the throttle time of responses.

    As in Kafka, the measured time is the processing time of the request, without waiting for other requests or for the
    disk. The meter charges the time when the response is complete. It does not charge a request without a response
    (Produce, acks=0).

    Args:
        quotas: receives the processing time of each request, and returns the throttle time.
        failed: makes the response to a request whose processing raised an exception (`Engine.failed`).
    """

    __slots__ = ("_failed", "_quotas")

    def __init__(
        self, quotas: ClientQuotas, failed: Callable[[Api[Any, Any], RequestContext, Any, Exception], Any]
    ) -> None:
        self._quotas = quotas
        self._failed = failed

    def __call__(self, entry: ApiEntry, context: RequestContext, request: Any) -> Any:
        """Serves a request; returns its response, a `Pending`, or None."""
        began_ns = time.perf_counter_ns()
        try:
            response = entry.decide(context, request)
        except Exception as error:
            response = self._failed(entry.api, context, request, error)
        duration_ns = time.perf_counter_ns() - began_ns
        if isinstance(response, Pending):
            if not response.done:
                return MeteredPending(self, response, duration_ns)
            response = response.response
        return self.charge(context, response, duration_ns)

    def charge(self, context: RequestContext, response: Any, duration_ns: int) -> Any:
        """Charges the time of a request; returns its response, or a copy with the throttle time."""
        if response is None:
            return None
        throttle_ms = self._quotas.charge_time(context, duration_ns)
        if not throttle_ms or not hasattr(response, "throttle_time_ms"):
            return response
        throttled = copy.copy(response)  # the API may use its response again
        throttled.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
        return throttled

    def charge_abandoned(self, context: RequestContext, duration_ns: int) -> None:
        """Charges the time of a request whose client has disconnected."""
        self._quotas.charge_time(context, duration_ns)


class MeteredPending(Pending):
    """The response of a measured request that is completed later.

    Args:
        meter: charges the processing time to the client.
        pending: the response of the API.
        duration_ns: the processing time, in ns, until the API returned `pending`.
    """

    __slots__ = ("_duration_ns", "_meter", "_of")

    def __init__(self, meter: RequestMeter, pending: Pending, duration_ns: int) -> None:
        super().__init__(pending.api, pending.context, pending.request, parked=pending.parked)
        self._meter = meter
        self._of = pending
        self._duration_ns = duration_ns
        pending.on_complete(self._completed)

    def _spent_ns(self) -> int:
        """Returns the processing time so far, including the slices that have run."""
        return self._duration_ns + (self._of.cost * NS_PER_US if isinstance(self._of, SlicedPending) else 0)

    def _completed(self, response: Any) -> None:
        self.complete(self._meter.charge(self.context, response, self._spent_ns()))

    def abandon(self) -> None:
        """Marks the client as disconnected; its request is still charged."""
        super().abandon()
        self._of.abandon()
        self._meter.charge_abandoned(self.context, self._spent_ns())
