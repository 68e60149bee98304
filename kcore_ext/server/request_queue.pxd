"""A connection's requests and answers, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.plan cimport Schema

cdef struct CachedFrame:                # an answer that may be given out again
    PyObject* response                  # owned, as the frame
    PyObject* frame
    PyObject* walk                      # who found no error in it; NULL: nobody did. Only compared
    int version


cdef class ApiEntry:
    cdef readonly object api
    cdef public object fast             # the API's fast path: the same arguments; None: it has none, or declines
    cdef public object handle           # (context, request) -> response, pending or None
    cdef readonly int key
    cdef readonly int min_version       # that is served, and can be read ...
    cdef readonly int max_version       # ... and the highest one
    cdef readonly bint caches_requests
    cdef readonly bint small_responses
    cdef readonly bint caches_responses
    cdef public long long requests
    cdef public dict errors
    cdef public object walk
    cdef Schema _schema
    cdef tuple _header_versions
    cdef object _shorten
    cdef readonly Py_ssize_t limit_bytes    # of the longest frame
    cdef readonly object note           # gets the size of each long frame; None: nobody counts
    cdef CachedFrame* _sent             # by response; NULL if it does not share any

    cpdef int header_version(self, int version) except -1
    cdef object _decode(self, const unsigned char* frame, Py_ssize_t size, int version, Py_ssize_t position)
    cdef bytes frame_of(self, object response, int version, int correlation_id)
    cdef bytes _frame_again(self, object response, int version, int correlation_id)
    cdef bytes _encode(self, object response, int version, int correlation_id)

cdef class CachedRequest:
    """A request that came before, byte for byte but for its correlation id."""

    cdef ApiEntry route
    cdef int version
    cdef object context
    cdef object request
    cdef object response                # the last answer ...
    cdef bytes frame                    # ... and its frame

cdef class ResponseSlot:
    cdef RequestQueue _queue
    cdef ResponseSlot _next
    cdef ApiEntry _route
    cdef object _pending
    cdef int _version
    cdef int _correlation_id
    cdef readonly bytes frame

    cpdef object arrive(self, object response)
    cpdef object complete(self, bytes frame)

cdef class RequestQueue:
    cdef public object gate
    cdef public bint parked
    cdef public bint stopped
    cdef readonly bint late
    cdef readonly Py_ssize_t held_bytes
    cdef object _owner
    cdef list _routes
    cdef object _frame_error
    cdef Py_ssize_t _max_frame_bytes
    cdef Py_ssize_t _buffer_bytes
    cdef int64_t _turn_ns
    cdef object _clock_ns
    cdef object _buffer                 # bytes, or a bytearray while a large frame arrives
    cdef Py_ssize_t _position           # what was taken of it
    cdef bint _serving
    cdef bint _announced                # the owner knows that there may be something to take
    cdef ResponseSlot _first            # the row of answers, in the order of their requests
    cdef ResponseSlot _last
    cdef list _out
    cdef dict _contexts
    cdef dict _known

    cdef const unsigned char* _start(self)
    cdef bint _is_late(self, int64_t* until_ns) except -1
    cdef bint _next(self) except -1
    cdef int _request(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int _unknown(self, const unsigned char* frame, Py_ssize_t size, bytes key) except -1
    cdef int _decide(self, ApiEntry route, int version, int correlation_id, object context, object request,
                     CachedRequest known) except -1
    cdef int _ready(self, ApiEntry route, int version, int correlation_id, bytes frame) except -1
    cdef object _context(self, int version, object client_id)
    cdef void _append(self, ResponseSlot answer)
    cdef void _drop_first(self)
    cdef object _arrived(self, Py_ssize_t size)
