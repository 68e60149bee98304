"""The steps of a connection for every read of the socket, for other compiled modules."""

from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport RoundClock
from kcore_ext.server.request_queue cimport QueueOwner, RequestQueue


cdef class Traffic:
    cdef public int64_t received_bytes
    cdef public int64_t sent_bytes


cdef class FlushQueue:
    cdef dict _connections                  # in the order in which their responses were completed; the values are None
    cdef object _schedule_round_end
    cdef bint _scheduled                    # the end of the round is scheduled
    cdef int64_t _until_ns                  # from this time on, further connections wait for a later turn
    cdef public int64_t time_budget_ns

    cpdef void renew_time_budget(self) noexcept
    cdef int put(self, object connection) except -1


cdef class TurnsCore:
    cdef public int64_t turn_ns
    cdef public dict waiting


cdef class ConnectionCore(QueueOwner):
    cdef readonly object server
    cdef public object transport
    cdef readonly RequestQueue _queue
    cdef readonly TurnsCore _turns
    cdef readonly Py_ssize_t _row_bytes
    cdef public object _write               # sends bytes
    cdef public bint _closing
    cdef public bint _refused               # a request was malformed: the bytes after it are discarded
    cdef public bint _eof
    cdef public bint _unread                # the peer does not read its responses: serve no more until it does
    cdef public bint _continues             # further requests wait for a later turn of the event loop
    cdef public bint _reading
    cdef public double _last_byte_s
    cdef public int64_t _sent_bytes
    cdef public int64_t _look_at_bytes
    cdef object _memory                     # the server's `RequestMemory`; None without a limit
    cdef object _unserved                   # the server's `UnservedMemory`
    cdef bint _claims                       # this connection counts in `_unserved`
    cdef object _loop_time
    cdef Traffic _traffic
    cdef FlushQueue _flushes
    cdef RoundClock _round_clock

    cpdef int flush_and_serve(self, bint shares_time=*) except -1
    cdef int serve(self) except -1
    cdef int share_time(self) except -1
    cdef int flush(self) except -1
    cdef int pace(self) except -1
