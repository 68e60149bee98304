"""Runs of offsets of a share partition, for other compiled modules. Their documentation is in runs.pyi."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kcore_ext.runtime.timer_wheel cimport Timer

cdef enum DeliveryState:
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    UNFETCHED = 5       # a gap in the loaded state: its records were never delivered
    NO_DATA = 6         # offsets that the log does not have (compaction); complete, but not counted


@cython.final
cdef class Lock:
    cdef RunList owner
    cdef readonly str member
    cdef int64_t first
    cdef int64_t last
    cdef int64_t held                   # offsets that are locked, or whose acknowledgement is being written
    cdef readonly bint expired
    cdef Timer timer


@cython.final
cdef class Run:
    cdef int64_t first
    cdef int64_t last
    cdef int64_t origin                 # the range in which the offsets were first acquired
    cdef int64_t origin_last
    cdef int32_t state
    cdef int32_t count                  # deliveries
    cdef bint divided                   # a request concerned a part of the origin: see `ShareRuns.expire`
    cdef bint changing                  # the change from ACQUIRED to `state` is being written
    cdef Lock lock                      # of offsets that are ACQUIRED, or were before the change


cdef class RunList:
    cdef list runs
    cdef readonly int64_t start_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t complete_count
    cdef int64_t candidate              # no offset below it can be acquired
    cdef public bint interrupted        # set during each change of the runs; an exception leaves it set

    cdef int64_t next_offset(self) noexcept
    cdef bint may_acquire(self, int64_t max_locks) noexcept
    cdef Py_ssize_t find(self, int64_t offset) noexcept
    cdef Py_ssize_t cut(self, Py_ssize_t at, int64_t first, int64_t last) except -1
    cdef int64_t counted(self, Run run) noexcept
    cdef int coalesce(self, int64_t first, int64_t last) except -1
    cdef bint advance(self) except -1
    cdef int make_available(self, Run run, int64_t max_deliveries) except -1
    cdef int unlock(self, Run run) except -1


cdef Run new_run(int64_t first, int64_t last, int state, int64_t count)
cdef Run copy_of(Run run)
cdef int add_state_batch(list batches, Run run) except -1


cdef inline bint complete(Run run) noexcept:
    """Returns True if the delivery of a run is complete, so that no member receives its records again."""
    return run.state == ACKNOWLEDGED or run.state == ARCHIVED or run.state == NO_DATA
