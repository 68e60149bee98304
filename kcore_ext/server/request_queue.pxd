"""The request queue of a connection, for other compiled modules."""

cimport cython

from libc.stdint cimport int64_t

from kcore_ext.codec.frames cimport RequestHead
from kcore_ext.server.api_entry cimport ApiEntry
from kcore_ext.server.api_times cimport ApiTimes
from kcore_ext.server.request_cache cimport CachedRequest, RequestCache

cdef class ResponseSlot:
    cdef RequestQueue _queue
    cdef ResponseSlot _next
    cdef ApiEntry _route
    cdef object _pending
    cdef int _version
    cdef int _correlation_id
    cdef int64_t _began_ns              # start of the request; 0: it is not measured
    cdef Py_ssize_t _waiting_bytes      # size that the request counts while it waits
    cdef readonly bytes frame

    cpdef object respond(self, object response)

cdef class QueueOwner:
    cdef int flush_later(self) except -1    # `schedule_flush`

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
    cdef RequestCache _cache
    cdef Py_ssize_t _request_bytes      # size of the last request
    cdef Py_ssize_t _waiting_bytes      # size of the requests that wait for a commit or another event

    cpdef feed(self, bytes data)
    cpdef bint serve(self) except -1
    cpdef take(self)
    cdef inline Py_ssize_t unserved(self):
        return len(self._buffer) - self._position
    cdef const unsigned char* _start(self)
    cdef bint _is_late(self, int64_t* until_ns) except -1
    cdef int _check_size(self, const unsigned char* frame, Py_ssize_t size, Py_ssize_t received) except -1
    cdef int _request(self, bytes source, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int _decide(self, ApiEntry route, int version, int correlation_id, object context, object request,
                     CachedRequest cached) except -1
    cdef int _decided(self, ApiEntry route, int version, int correlation_id, object context, object request,
                      object response, CachedRequest cached, int64_t began_ns) except -1
    cdef int _serve_encoded(
        self, ApiEntry route, object context, bytes source, const unsigned char* frame, Py_ssize_t size,
        RequestHead* head,
    ) except -1
    cdef int _record_time(self, ApiTimes times, ResponseSlot slot, int64_t began_ns) except -1
    cdef int _ready(self, ApiEntry route, int version, int correlation_id, bytes frame) except -1
    cdef int _write_later(self, ResponseSlot slot, object api, object context, object request, object response) except -1
    cdef void _append(self, ResponseSlot slot)
    cdef void _drop_first(self)
    cdef int _complete(self, ResponseSlot slot, bytes frame) except -1
