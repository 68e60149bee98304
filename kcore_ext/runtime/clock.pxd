"""Clocks, and the time of a round, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class SystemClock:
    pass


@cython.final
cdef class Now:
    cdef object clock
    cdef bint is_system         # whether the system's clocks are read, without a Python call
    cdef public int64_t now_ms
    cdef public int64_t wall_ms
    cdef readonly int64_t resumed_ms

    cdef int64_t age_ms(self) except? -1
    cpdef int64_t update(self) except? -1


@cython.final
cdef class RoundClock:
    cdef readonly Now now
    cdef public bint read
    cdef public object open_round       # called when the time of a new round is read

    cpdef int begin(self) except -1
