"""The delivery state of a share partition: acknowledging, releasing and expiry (KIP-932).

A change takes effect only after its write. Until then, its offsets can be neither acquired nor acknowledged. If the
write fails, the change is reverted.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from kcore_ext.broker.share.acquire cimport AcquiringRuns
from kcore_ext.broker.share.runs cimport (
    ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, NO_DATA, UNFETCHED, Lock, Run, RunList, add_state_batch
)
from kcore_ext.runtime.timer_wheel cimport TimerWheel, timer_cancel

cdef enum AcknowledgeType:
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4

cdef enum:
    MAX_WRITES = 100        # writes of an expired lock before the last write, which has the remaining state
    INVALID_REQUEST = 42
    INVALID_RECORD_STATE = 121


@cython.final
@cython.no_gc_clear
cdef class Change:
    """Documented in changes.pyi."""

    def __init__(self):
        raise TypeError("a Change is made by acknowledge or release")

    def __dealloc__(self):
        # The write got no result, because an exception has interrupted a callback. Without the following step, the runs
        # would stay in the change forever.
        if not self.ended and self.owner is not None and self.runs is not None and PyList_GET_SIZE(self.runs):
            self.owner.interrupted = True


cdef class ShareRuns(AcquiringRuns):
    """Documented in changes.pyi."""

    def acknowledge(
        self,
        str member not None,
        batches,
        TimerWheel wheel not None,
        int64_t deadline_ms,
        *,
        int64_t max_deliveries,
        bint allow_renew,
    ):
        return self.begin(member, batches, wheel, deadline_ms, max_deliveries, allow_renew)

    cdef object begin(
        self, str member, object batches, TimerWheel wheel, int64_t deadline_ms, int64_t max_deliveries,
        bint allow_renew,
    ):
        """Begins to acknowledge records; `acknowledge` documents arguments and result."""
        cdef bint was_interrupted
        cdef Change change = Change.__new__(Change)
        cdef int64_t first, last, low, high
        cdef int error = 0, kind
        cdef Py_ssize_t at, count
        change.owner = self
        change.runs = []
        change.state_batches = []
        change.renewed = []
        was_interrupted, self.interrupted = self.interrupted, True
        for batch in batches:
            first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
            if last < self.start_offset:
                continue
            if not self.runs:
                error = INVALID_RECORD_STATE
            elif first >= self.end_offset or last >= self.end_offset:
                error = INVALID_REQUEST
            elif len(kinds) == 1:
                error = self.acknowledge_range(
                    change, member, max(first, self.start_offset), last, kinds[0], max_deliveries, allow_renew, False
                )
            else:
                low = max(first, self.start_offset)
                count = len(kinds)
                at = low - first
                while at < count and not error:
                    kind = kinds[at]
                    low = first + at
                    while at < count and kinds[at] == kind:
                        at += 1
                    high = first + at - 1
                    error = self.acknowledge_range(
                        change, member, low, high, kind, max_deliveries, allow_renew, True
                    )
            if error:
                break
        if not error and len(change.renewed):
            self.renew(change, member, wheel, deadline_ms)
        change.renewed = None
        if error:
            self.undo(change, max_deliveries)
            self.interrupted = was_interrupted
            return error
        self.interrupted = was_interrupted
        return change

    cdef int acknowledge_range(
        self, Change change, str member, int64_t first, int64_t last, int kind, int64_t max_deliveries,
        bint allow_renew, bint divided
    ) except -2:
        """Begins the change of a range; returns 0, or the error code of the first offset that cannot change."""
        cdef Py_ssize_t at = self.find(first)
        cdef Run run
        while at < len(self.runs):
            run = <Run>self.runs[at]
            if run.first > last:
                break
            if run.state == NO_DATA or run.state == UNFETCHED:
                at += 1
                continue
            if run.state != ACQUIRED or run.lock.member != member or (kind == RENEW and not allow_renew):
                return INVALID_RECORD_STATE
            if run.first < first or run.last > last:
                at = self.cut(at, max(run.first, first), min(run.last, last))
                run = <Run>self.runs[at]
            at += 1
            if kind == RENEW:
                change.renewed.append(run)
                continue
            run.changing = True
            run.divided = run.divided or divided
            change.runs.append(run)
            if kind == ACCEPT:
                run.state = ACKNOWLEDGED
            elif kind == RELEASE and run.count < max_deliveries:
                run.state = AVAILABLE
            else:
                run.state = ARCHIVED
            self.complete_count += self.counted(run)
            add_state_batch(change.state_batches, run)
        return 0

    cdef int renew(self, Change change, str member, TimerWheel wheel, int64_t deadline_ms) except -1:
        """Replaces the locks of all runs in `change.renewed` by one new lock."""
        cdef Lock lock = Lock.__new__(Lock)
        cdef Run run
        lock.owner = self
        lock.member = member
        lock.first = lock.last = -1
        lock.timer = wheel.arm(deadline_ms, lock)
        for run in change.renewed:
            if run.changing:
                continue    # the next acknowledgement of the request concerned the same offset
            self.unlock(run)
            run.lock = lock
            lock.held += run.last - run.first + 1
            if lock.first < 0 or run.first < lock.first:
                lock.first = run.first
            lock.last = max(lock.last, run.last)
        if not lock.held:
            timer_cancel(lock.timer)
        return 0

    def release(self, str member not None, int64_t max_deliveries):
        cdef Change change = Change.__new__(Change)
        cdef Run run
        cdef bint was_interrupted = self.interrupted
        change.owner = self
        change.runs = []
        change.state_batches = []
        self.interrupted = True
        for run in self.runs:
            if run.state == ACQUIRED and run.lock.member == member:
                run.changing = True
                run.state = AVAILABLE if run.count < max_deliveries else ARCHIVED
                change.runs.append(run)
                self.complete_count += self.counted(run)
                add_state_batch(change.state_batches, run)
        self.interrupted = was_interrupted
        return change

    def finish(self, Change change not None, bint written, int64_t max_deliveries):
        cdef int news = self.end(change, written, max_deliveries)
        return bool(news & START_MOVED), bool(news & BECAME_AVAILABLE)

    cdef int end(self, Change change, bint written, int64_t max_deliveries) except -1:
        """Ends a change as `finish` does; returns START_MOVED, BECAME_AVAILABLE, both or 0."""
        cdef Run run
        cdef bint available = False, moved = False
        cdef bint was_interrupted = self.interrupted
        cdef int64_t first = -1, last = -1
        self.interrupted = True
        if not written:
            available = self.undo(change, max_deliveries) > 0
            self.interrupted = was_interrupted
            return BECAME_AVAILABLE if available else 0
        change.ended = True
        for run in change.runs:
            run.changing = False
            self.unlock(run)
            if run.state == AVAILABLE and run.last >= self.start_offset:
                available = True
                self.candidate = min(self.candidate, max(run.first, self.start_offset))
            if first < 0 or run.first < first:
                first = run.first
            last = max(last, run.last)
        change.runs = None
        moved = self.advance()
        if self.runs and last >= self.start_offset:
            self.coalesce(max(first, self.start_offset), last)
        self.interrupted = was_interrupted
        return (START_MOVED if moved else 0) | (BECAME_AVAILABLE if available else 0)

    cdef int undo(self, Change change, int64_t max_deliveries) except -1:
        """Reverts a change. Offsets whose lock has expired meanwhile are released; returns the number of runs."""
        cdef Run run
        cdef int released = 0
        cdef int64_t first = -1, last = -1
        change.ended = True
        for run in change.runs:
            run.changing = False
            if run.lock is None:
                continue    # the log's start moved past the run
            self.complete_count -= self.counted(run)
            run.state = ACQUIRED
            if run.lock.expired:
                self.make_available(run, max_deliveries)
                released += 1
            if first < 0 or run.first < first:
                first = run.first
            last = max(last, run.last)
        change.runs = None
        if self.runs and last >= self.start_offset:
            self.coalesce(max(first, self.start_offset), last)
        return released

    def expire(self, Lock lock not None, int64_t max_deliveries):
        cdef list writes = []
        cdef list rest = []
        cdef Run run
        cdef Py_ssize_t at
        cdef int64_t offset
        cdef bint was_interrupted = self.interrupted
        self.interrupted = True
        lock.expired = True
        for at in range(self.find(lock.first), len(self.runs)):
            run = <Run>self.runs[at]
            if run.first > lock.last:
                break
            if run.lock is not lock or run.changing:
                continue
            self.make_available(run, max_deliveries)
            if len(writes) + (run.last - run.first + 1 if run.divided else 1) > MAX_WRITES:
                add_state_batch(rest, run)
            elif run.divided:
                for offset in range(run.first, run.last + 1):
                    writes.append([(offset, offset, run.state, run.count)])
            else:
                writes.append([(run.first, run.last, run.state, run.count)])
        if rest:
            writes.append(rest)
        if writes:
            self.coalesce(max(lock.first, self.start_offset), lock.last)
        self.interrupted = was_interrupted
        return writes
