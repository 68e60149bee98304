"""The lease of a cluster's node, measured by the node's own clock, for the fast paths."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport SystemClock
from kcore_ext.util.monotonic cimport coarse_now_ns


@cython.final
cdef class LocalLease:
    """Documented in lease.pyi."""

    def __init__(self, clock, int64_t deadline_ms):
        self._clock = clock
        self._is_system = type(clock) is SystemClock
        self.deadline_ms = deadline_ms

    cdef bint valid(self) except -1:
        if self.ended:
            return False
        if self._is_system:
            return coarse_now_ns() // 1_000_000 < self.deadline_ms
        return <int64_t>self._clock.monotonic_ms() < self.deadline_ms

    def is_valid(self):
        return self.valid()
