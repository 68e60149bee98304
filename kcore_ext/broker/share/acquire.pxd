"""Declarations of `AcquiringRuns` and its results, for other compiled modules. Their documentation is in acquire.pyi."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.broker.share.runs cimport Lock, Run, RunList
from kcore_ext.runtime.timer_wheel cimport TimerWheel


@cython.final
cdef class Acquired:
    cdef readonly list ranges
    cdef readonly int64_t count
    cdef readonly Py_ssize_t first_batch
    cdef readonly Py_ssize_t stop_batch


@cython.final
cdef class Acquisition:
    cdef Lock lock
    cdef list ranges                    # tuples (first, last, delivery count, origin)
    cdef list bases                     # tuples (base offset, last offset) of the log batches
    cdef int64_t first
    cdef int64_t last
    cdef int64_t most                   # offsets that may be acquired, including `taken`
    cdef int64_t taken
    cdef int64_t batch_size
    cdef bint record_limit
    cdef int64_t max_deliveries
    cdef int64_t throttled_from         # the delivery count from which records are delivered in small pieces
    cdef int64_t data_last

    cdef int64_t batch_end(self, int64_t offset) except -2
    cdef int add(self, Run run) except -1


cdef class AcquiringRuns(RunList):
    cdef Acquired take(
        self, str member, list batches, int64_t fetch_offset, TimerWheel wheel, int64_t deadline_ms,
        int64_t max_records, int64_t batch_size, bint record_limit, int64_t max_locks, int64_t max_deliveries, aborted,
    )
    cdef int take_released(self, Acquisition acquisition) except -1
    cdef int64_t take_tracked(self, Acquisition acquisition, Py_ssize_t at, Py_ssize_t stop) except -1
    cdef int64_t take_new(self, Acquisition acquisition, int64_t first, int64_t last) except -1
    cdef int take_gap(self, Acquisition acquisition, Py_ssize_t at) except -1
    cdef int archive_locked(self, Lock lock, Acquisition acquisition, int64_t first, int64_t last) except -1
    cdef int skip_missing(self, int64_t first, int64_t before) except -1
