"""An API as a server serves it, for other compiled modules."""

from cpython.object cimport PyObject

from kcore_ext.codec.plan cimport Schema
from kcore_ext.runtime.encoded cimport EncodedFastPath
from kcore_ext.runtime.lease cimport LocalLease
from kcore_ext.server.api_times cimport ApiTimes

cdef enum:
    MAX_KEPT_FRAME = 1024       # longest frame that is kept for the next equal response

cdef struct CachedFrame:                # a response that may be sent again
    PyObject* response                  # owned, as is the frame
    PyObject* frame
    PyObject* count_errors              # the function that found no error in the response; NULL: none ran. Only compared
    int version


cdef class ApiEntry:
    cdef readonly object api
    cdef object _fast                   # the fast path; None without one
    cdef EncodedFastPath _encoded       # the same fast path if it serves encoded requests; None: it does not
    cdef public object handle           # (context, request) -> response, `Pending` or None
    cdef public LocalLease lease        # the lease of a cluster's node, checked around `fast`; None: none is needed
    cdef public object checked          # (context, request, response of `fast`) -> response, if the lease may end before it
    cdef public object meter            # measures requests: (entry, context, request) -> as `handle`; or None
    cdef public ApiTimes times          # records the time of requests; None: it is not measured
    cdef readonly int key
    cdef readonly int min_version       # the lowest served and readable version ...
    cdef readonly int max_version       # ... and the highest one
    cdef readonly bint caches_requests
    cdef readonly bint small_responses
    cdef readonly bint caches_responses
    cdef public long long requests
    cdef public dict errors
    cdef public object count_errors
    cdef Schema _schema
    cdef tuple _header_versions
    cdef object _shorten
    cdef readonly Py_ssize_t limit_bytes    # largest frame
    cdef readonly object reserve_memory # receives the size of each long frame; None disables accounting
    cdef readonly Py_ssize_t max_request_bytes
    cdef readonly Py_ssize_t max_request_elements
    cdef readonly Py_ssize_t slice_bytes    # longer responses are encoded in slices; 0: none is
    cdef CachedFrame* _sent             # by response; NULL unless the API caches responses

    cpdef int header_version(self, int version) except -1
    cdef object _decide(self, object context, object request)
    cdef object _decide_encoded(
        self, object context, int version, bytes source, const unsigned char* frame, Py_ssize_t size,
        Py_ssize_t position,
    )
    cdef bint _needs_check(self, object response) except -1
    cdef object _decode(self, const unsigned char* frame, Py_ssize_t size, int version, Py_ssize_t position)
    cdef bytes frame_of(self, object response, int version, int correlation_id)
    cdef bytes _frame_again(self, object response, int version, int correlation_id)
    cdef bytes _encode(self, object response, int version, int correlation_id, Py_ssize_t slice_bytes)
