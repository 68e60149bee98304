"""Results of a decision, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Outcome:
    cdef readonly object records
    cdef readonly object reply
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch


ctypedef object (*Arrival)(object waiter, object response)


cdef class Pending:
    cdef readonly object api
    cdef readonly object context
    cdef object _request        # the request as an object or an EncodedRequest
    cdef readonly object response
    cdef readonly object after_commit   # the response for the time when the awaited commit is durable
    cdef object callback        # called at completion, or passed to `arrival`; None: none is set
    cdef public bint parked
    cdef readonly bint done
    cdef Arrival arrival        # the C function that gets `callback` and the response; NULL: `callback` is called

    cpdef complete(self, response)
    cpdef on_complete(self, callback)
    cdef int tell(self, object waiter, Arrival arrival) except -1   # like `on_complete`, but calls a C function

cdef Pending pending_of(object api, object context, object request)
