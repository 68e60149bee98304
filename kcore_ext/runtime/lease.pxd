"""The lease of a cluster's node, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class LocalLease:
    cdef public int64_t deadline_ms
    cdef public bint ended
    cdef object _clock
    cdef bint _is_system        # whether the system's coarse clock is read, without a Python call

    cdef bint valid(self) except -1
