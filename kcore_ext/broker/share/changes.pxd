"""Declarations of `Change` and `ShareRuns`, for other compiled modules. Their documentation is in changes.pyi."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.broker.share.acquire cimport AcquiringRuns
from kcore_ext.broker.share.runs cimport RunList
from kcore_ext.runtime.timer_wheel cimport TimerWheel

cdef enum:          # results of `ShareRuns.end`
    START_MOVED = 1
    BECAME_AVAILABLE = 2


@cython.final
cdef class Change:
    cdef RunList owner
    cdef bint ended                     # `finish` was called, or there was an error
    cdef list runs
    cdef list renewed                   # runs to be given a new lock, if the request is valid
    cdef readonly list state_batches


cdef class ShareRuns(AcquiringRuns):
    cdef object begin(
        self, str member, object batches, TimerWheel wheel, int64_t deadline_ms, int64_t max_deliveries,
        bint allow_renew,
    )
    cdef int end(self, Change change, bint written, int64_t max_deliveries) except -1
    cdef int undo(self, Change change, int64_t max_deliveries) except -1
    cdef int acknowledge_range(
        self, Change change, str member, int64_t first, int64_t last, int kind, int64_t max_deliveries, bint allow_renew,
        bint divided
    ) except -2
    cdef int renew(self, Change change, str member, TimerWheel wheel, int64_t deadline_ms) except -1
