"""The delivery state of a share partition, for other compiled modules; share_runs.pyi documents it."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.runtime.timer_wheel cimport Timer, TimerWheel

cdef enum DeliveryState:
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    UNFETCHED = 5       # a gap in the loaded state: its records were never delivered
    NO_DATA = 6         # offsets that the log does not have (compaction); complete, but not counted

cdef enum AcknowledgeType:
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@cython.final
cdef class Lock:
    cdef ShareRuns owner
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


@cython.final
cdef class Change:
    cdef list runs
    cdef readonly list state_batches


@cython.final
cdef class Acquired:
    cdef readonly list ranges
    cdef readonly int64_t count
    cdef readonly Py_ssize_t first_batch
    cdef readonly Py_ssize_t stop_batch


cdef class ShareRuns:
    cdef list runs
    cdef readonly int64_t start_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t complete_count
    cdef int64_t candidate              # no offset below it can be acquired

    cdef Py_ssize_t find(self, int64_t offset) noexcept
    cdef Py_ssize_t cut(self, Py_ssize_t at, int64_t first, int64_t last) except -1
    cdef int64_t counted(self, Run run) noexcept
    cdef int make_available(self, Run run, int64_t max_deliveries) except -1
    cdef int unlock(self, Run run) except -1
    cdef int coalesce(self, int64_t first, int64_t last) except -1
    cdef bint advance(self) except -1
    cdef int undo(self, Change change, int64_t max_deliveries) except -1
    cdef int acknowledge_range(
        self, Change change, str member, int64_t first, int64_t last, int kind, int64_t max_deliveries, Lock renewed,
        bint allow_renew, bint divided
    ) except -2
    cdef int64_t take_tracked(self, Acquisition acquisition, Py_ssize_t at, Py_ssize_t stop) except -1
    cdef int64_t take_new(self, Acquisition acquisition, int64_t first, int64_t last) except -1
    cdef int take_gap(self, Acquisition acquisition, Py_ssize_t at) except -1
    cdef int archive_locked(self, Lock lock, Acquisition acquisition, int64_t first, int64_t last) except -1
    cdef int skip_missing(self, int64_t first, int64_t before) except -1


@cython.final
cdef class Acquisition:
    cdef Lock lock
    cdef list ranges                    # tuples (first, last, delivery count)
    cdef list bases                     # base offset of each log batch
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
