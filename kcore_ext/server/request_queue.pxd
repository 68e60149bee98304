cimport cython
"""The request queue of a connection, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.plan cimport Schema
from kcore_ext.server.api_times cimport ApiTimes
from kcore_ext.server.decider cimport Decider

cdef struct CachedFrame:                # a response that may be sent again
    PyObject* response                  # owned, as is the frame
    PyObject* frame
    PyObject* walk                      # the walk that found no error in it; NULL: none ran. Only compared
    int version


cdef class ApiEntry(Decider):
    cdef readonly object api
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
    cdef public object walk
    cdef Schema _schema
    cdef tuple _header_versions
    cdef object _shorten
    cdef readonly Py_ssize_t limit_bytes    # largest frame
    cdef readonly object note           # receives the size of each long frame; None disables accounting
    cdef readonly Py_ssize_t max_request_bytes
    cdef readonly Py_ssize_t max_request_elements
    cdef readonly Py_ssize_t slice_bytes    # longer responses are encoded in slices; 0: none is
    cdef CachedFrame* _sent             # by response; NULL unless the API caches responses

    cpdef int header_version(self, int version) except -1
    cdef object _decode(self, const unsigned char* frame, Py_ssize_t size, int version, Py_ssize_t position)
    cdef bytes frame_of(self, object response, int version, int correlation_id)
    cdef bytes _frame_again(self, object response, int version, int correlation_id)
    cdef bytes _encode(self, object response, int version, int correlation_id, Py_ssize_t slice_bytes)

cdef class CachedRequest:
    """A cached request, identified by its bytes without the correlation id."""

    cdef ApiEntry route
    cdef int version
    cdef object context
    cdef object request
    cdef object response                # the last response ...
    cdef bytes frame                    # ... and its frame

cdef class ResponseSlot:
    cdef RequestQueue _queue
    cdef ResponseSlot _next
    cdef ApiEntry _route
    cdef object _pending
    cdef int _version
    cdef int _correlation_id
    cdef int64_t _began_ns              # start of the request; 0: it is not measured
    cdef readonly bytes frame

    cpdef object arrive(self, object response)
    cpdef object complete(self, bytes frame)

@cython.final
cdef class RequestQueue:
    cdef public object gate
    cdef public bint parked
    cdef public bint stopped
    cdef public bint lost               # a response is lost: the connection must be closed
    cdef public bint muted
    cdef readonly bint late
    cdef readonly Py_ssize_t held_bytes
    cdef object _owner
    cdef list _routes
    cdef object _frame_error
    cdef Py_ssize_t _max_frame_bytes
    cdef Py_ssize_t _buffer_bytes
    cdef public int64_t turn_ns         # time for the requests of one turn of the event loop
    cdef object _clock_ns
    cdef object _buffer                 # bytes, or a bytearray while a large frame arrives
    cdef Py_ssize_t _position           # number of bytes already taken
    cdef int64_t _mark_ns               # end of the last measured request of this call of `serve`; 0: none
    cdef bint _serving
    cdef bint _announced                # the owner was notified that `take` may return bytes
    cdef ResponseSlot _first            # the queued responses, in request order
    cdef ResponseSlot _last
    cdef list _out
    cdef dict _contexts
    cdef dict _known

    cpdef feed(self, bytes data)
    cpdef bint serve(self) except -1
    cpdef take(self)
    cdef inline Py_ssize_t unserved(self):
        return len(self._buffer) - self._position
    cdef const unsigned char* _start(self)
    cdef bint _is_late(self, int64_t* until_ns) except -1
    cdef bint _next(self) except -1
    cdef int _check_size(self, const unsigned char* frame, Py_ssize_t size, Py_ssize_t received) except -1
    cdef int _request(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int _unknown(self, const unsigned char* frame, Py_ssize_t size, bytes key) except -1
    cdef int _decide(self, ApiEntry route, int version, int correlation_id, object context, object request,
                     CachedRequest known) except -1
    cdef int _decided(self, ApiTimes times, ResponseSlot slot, int64_t began_ns) except -1
    cdef int _ready(self, ApiEntry route, int version, int correlation_id, bytes frame) except -1
    cdef int _write_later(self, ResponseSlot slot, object api, object context, object request, object response) except -1
    cdef object _context(self, int version, object client_id)
    cdef void _append(self, ResponseSlot slot)
    cdef void _drop_first(self)
    cdef object _arrived(self, Py_ssize_t size)
