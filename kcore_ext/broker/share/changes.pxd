"""Acknowledging records of a share partition, for other compiled modules; changes.pyi documents it."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.broker.share.acquire cimport AcquiringRuns
from kcore_ext.broker.share.runs cimport Lock


@cython.final
cdef class Change:
    cdef list runs
    cdef readonly list state_batches


cdef class ShareRuns(AcquiringRuns):
    cdef int undo(self, Change change, int64_t max_deliveries) except -1
    cdef int acknowledge_range(
        self, Change change, str member, int64_t first, int64_t last, int kind, int64_t max_deliveries, Lock renewed,
        bint allow_renew, bint divided
    ) except -2
