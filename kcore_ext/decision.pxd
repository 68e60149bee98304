"""What a decision leaves behind, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Outcome:
    cdef readonly object records
    cdef readonly object reply
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch


cdef class Pending:
    cdef readonly object api
    cdef readonly object context
    cdef readonly object request
    cdef readonly object response
    cdef object callback
    cdef public bint parked
    cdef readonly bint done

    cpdef complete(self, response)
    cpdef on_complete(self, callback)
