"""The times of an API's requests, in buckets. `RequestQueue` adds to them while `ApiEntry.times` is set."""

from collections.abc import Callable

BOUNDS_S: tuple[float, ...]
"""Upper bounds of the buckets, in seconds. An additional bucket counts longer times."""

class ApiTimes:
    """The times of an API's requests.

    Args:
        clock_ns: returns nanoseconds from any origin; None: the system's monotonic clock.

    Attributes:
        count: number of completed requests.
        total_ns: the total time of these requests in ns. It includes waiting until the response is complete.
        processing_ns: the time in ns in which the event loop worked on requests, without waiting.
    """

    count: int
    total_ns: int
    processing_ns: int

    def __init__(self, clock_ns: Callable[[], int] | None = None) -> None: ...
    def observe(self, duration_ns: int) -> None:
        """Adds the time of one request."""

    def buckets(self) -> list[int]:
        """Returns the number of requests in each bucket. The last bucket is that of the longest times."""
