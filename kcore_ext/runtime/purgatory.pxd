"""The purgatory, for other compiled modules; purgatory.pyx documents each part."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kcore_ext.runtime.timer_wheel cimport Timer, TimerWheel

cdef struct Watch:
    Watch* next
    Watch* prev
    PyObject* operation  # borrowed; NULL: the head of a list, or a cursor of an iteration
    PyObject* watchers   # borrowed: its list; NULL: none


@cython.final
cdef class Watchers:
    cdef object key
    cdef Watch head
    cdef Py_ssize_t count


cdef class DelayedOperation:
    cdef Watch* watches            # one for each key; NULL: not watched
    cdef Py_ssize_t watch_count
    cdef Purgatory purgatory       # None: not watched
    cdef Timer timer
    cdef readonly bint completed
    cdef public bint deferred
    cdef object __weakref__

    cpdef bint try_complete(self) except -1
    cpdef on_complete(self)
    cpdef on_expiration(self)
    cdef bint finish(self, bint expired) except -1


@cython.final
cdef class Purgatory:
    cdef readonly TimerWheel wheel
    cdef dict watchers_of
    cdef readonly Py_ssize_t num_delayed
    cdef readonly Py_ssize_t num_watched
    cdef readonly uint64_t delayed_total
    cdef readonly uint64_t completed_total
    cdef readonly uint64_t expired_total
    cdef readonly uint64_t cancelled_total

    cdef Watchers find(self, object key)
    cdef bint watch_or_complete(self, DelayedOperation operation, object keys, int64_t deadline_ms) except -1
    cdef Py_ssize_t complete_watched(self, object key) except -1
