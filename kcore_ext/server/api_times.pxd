"""The times of an API's requests, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    BUCKETS = 20


@cython.final
cdef class ApiTimes:
    cdef readonly int64_t count             # documented in the .pyi file, as are the others
    cdef readonly int64_t total_ns
    cdef readonly int64_t processing_ns
    cdef int64_t counts[BUCKETS + 1]
    cdef object clock_ns

    cdef int64_t now_ns(self) except -1
    cdef int64_t processed(self, int64_t began_ns, bint complete) except -1
    cdef void add(self, int64_t duration_ns) noexcept
