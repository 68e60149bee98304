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

    cpdef int64_t update(self) except? -1
