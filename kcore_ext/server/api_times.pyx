"""The times of an API's requests, in buckets."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.util.monotonic cimport exact_now_ns

cdef int64_t[BUCKETS] bounds_ns
bounds_ns[:] = [
    10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000,
    1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000, 60_000_000_000,
]

BOUNDS_S = tuple([bounds_ns[i] / 1e9 for i in range(BUCKETS)])


@cython.final
cdef class ApiTimes:
    """Documented in api_times.pyi."""

    def __init__(self, clock_ns=None):
        self.clock_ns = clock_ns

    cdef int64_t now_ns(self) except -1:
        return exact_now_ns() if self.clock_ns is None else <int64_t>self.clock_ns()

    cdef void add(self, int64_t duration_ns) noexcept:
        cdef int first = 0
        cdef int last = BUCKETS
        cdef int middle
        while first < last:
            middle = (first + last) // 2
            if duration_ns <= bounds_ns[middle]:
                last = middle
            else:
                first = middle + 1
        self.counts[first] += 1
        self.count += 1
        self.total_ns += duration_ns

    cdef int64_t processed(self, int64_t began_ns, bint complete) except -1:
        """Records the time of a decided request.

        Returns the time of the clock, which is the start of the next request.
        """
        cdef int64_t now_ns = self.now_ns()
        self.processing_ns += now_ns - began_ns
        if complete:
            self.add(now_ns - began_ns)
        return now_ns

    def observe(self, int64_t duration_ns):
        self.add(duration_ns)

    def buckets(self):
        return [self.counts[i] for i in range(BUCKETS + 1)]
