"""Runs of offsets of a share partition: their delivery state, and the locks of acquired records (KIP-932).

The runs cover every offset between the start and the end of the share partition, ascending and without gaps. A run
splits where a request concerns a part of it, and joins its neighbours again when their states are equal. One lock, with
one timer, covers all records that one request acquires.

`tests/reference/share_partition.py` is the reference implementation: a dictionary of offsets.
"""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.runtime.timer_wheel cimport timer_cancel

cdef int64_t MAX_OFFSET = 0x7FFFFFFFFFFFFFFF
cdef int64_t MAX_LOADED_COUNT = 0x7FFE


@cython.final
@cython.freelist(64)
cdef class Lock:
    """Documented in runs.pyi."""

    def __init__(self):
        raise TypeError("a Lock is made by AcquiringRuns.acquire")

    def __call__(self):
        if self.owner.interrupted:
            return
        self.owner.interrupted = True   # the timer does not fire again: if the expiry fails, the state is loaded again
        self.owner.lock_expired(self)
        self.owner.interrupted = False


@cython.final
@cython.freelist(256)
cdef class Run:
    """Adjacent offsets with equal state."""


cdef Run new_run(int64_t first, int64_t last, int state, int64_t count):
    """Returns a run whose range is also its origin: the range in which the offsets were first acquired."""
    cdef Run run = Run.__new__(Run)
    run.first = run.origin = first
    run.last = run.origin_last = last
    run.state = state
    run.count = <int>count
    return run

cdef bint may_join(Run left, Run right) noexcept:
    """Returns True if two adjacent runs can be merged into one.

    Their states and locks must be equal. If their records may be delivered again, the delivery counts and the origins
    (the ranges in which the records were first acquired) must be equal, too.
    """
    if left.state != right.state or left.changing or right.changing or left.lock is not right.lock:
        return False
    return complete(left) or (left.origin == right.origin and left.count == right.count)


cdef int add_state_batch(list batches, Run run) except -1:
    """Appends the state of a run as (first, last, state, count); extends the last batch if the run continues it."""
    cdef tuple last
    if batches:
        last = <tuple>batches[len(batches) - 1]
        if last[1] + 1 == run.first and last[2] == run.state and last[3] == run.count:
            batches[len(batches) - 1] = (last[0], run.last, run.state, run.count)
            return 0
    batches.append((run.first, run.last, run.state, run.count))
    return 0


cdef class RunList:
    """Documented in runs.pyi."""

    def __cinit__(self, *arguments, **named):
        self.runs = []

    # ---- contents

    def reset(self, int64_t start_offset, state_batches):
        cdef Run run
        cdef int64_t at = start_offset
        self.runs = []
        self.start_offset = self.end_offset = self.candidate = start_offset
        self.complete_count = 0
        for first, last, state, count in state_batches:
            if first < at or not first <= last < MAX_OFFSET or state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED):
                raise ValueError(f"the state batch {first}-{last} of state {state} does not fit after offset {at}")
            if first > at:
                self.runs.append(new_run(at, first - 1, UNFETCHED, 0))
            # Another program may have written any count. A delivery adds one, and responses have 16 bits for it.
            run = new_run(first, last, state, max(0, min(<int64_t>count, MAX_LOADED_COUNT)))
            self.runs.append(run)
            self.complete_count += self.counted(run)
            at = last + 1
        self.end_offset = at
        self.advance()

    def snapshot(self):
        cdef Run run
        return [
            (
                run.first, run.last, run.state, run.count, run.changing,
                None if run.lock is None else run.lock.member,
            )
            for run in self.runs
        ]

    @property
    def run_count(self):
        return len(self.runs)

    @property
    def tracked(self):
        return self.end_offset - self.start_offset

    cdef Py_ssize_t find(self, int64_t offset) noexcept:
        """Returns the index of the run that contains an offset, or of the first run after it."""
        cdef Py_ssize_t low = 0, high = len(self.runs), middle
        # Most requests concern the first or the last run.
        if high and (<Run>self.runs[0]).last >= offset:
            return 0
        while low < high:
            middle = (low + high) >> 1
            if (<Run>self.runs[middle]).last < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t cut(self, Py_ssize_t at, int64_t first, int64_t last) except -1:
        """Splits a run so that one run has exactly the offsets from `first` to `last`; returns the index of this
        run.
        """
        cdef Run run = <Run>self.runs[at]
        cdef Run rest
        if run.last > last or run.first < first:
            run.divided = True
        if run.last > last:
            rest = copy_of(run)
            rest.first = last + 1
            self.runs.insert(at + 1, rest)
            run.last = last
        if run.first < first:
            rest = copy_of(run)
            rest.first = first
            self.runs.insert(at + 1, rest)
            run.last = first - 1
            at += 1
        return at

    cdef int64_t counted(self, Run run) noexcept:
        """Returns the number of offsets of a run that count as complete deliveries."""
        if run.state != ACKNOWLEDGED and run.state != ARCHIVED:
            return 0
        if run.last < self.start_offset:
            return 0
        return run.last - max(run.first, self.start_offset) + 1

    cdef int coalesce(self, int64_t first, int64_t last) except -1:
        """Joins equal neighbours among the runs that contain or touch the offsets from `first` to `last`."""
        cdef Py_ssize_t at = self.find(first - 1 if first > self.start_offset else first), kept, count
        cdef Run left, right
        cdef list runs = self.runs
        count = len(runs)
        if at >= count:
            return 0
        kept = at
        left = <Run>runs[at]
        at += 1
        while at < count:
            right = <Run>runs[at]
            if may_join(left, right):
                left.last = right.last
            else:
                kept += 1
                if kept != at:
                    runs[kept] = right
                left = right
                if right.first > last + 1:
                    at += 1
                    break
            at += 1
        if kept + 1 != at:
            del runs[kept + 1:at]
        return 0

    # ---- offsets

    def next_fetch_offset(self):
        return self.next_offset()

    cdef int64_t next_offset(self) noexcept:
        cdef Py_ssize_t at, count = len(self.runs)
        cdef Run run
        if not count:
            return self.end_offset
        if self.candidate < self.end_offset:
            for at in range(self.find(self.candidate), count):
                run = <Run>self.runs[at]
                if (run.state == AVAILABLE or run.state == UNFETCHED) and not run.changing:
                    self.candidate = max(run.first, self.candidate)
                    return self.candidate
            self.candidate = self.end_offset
        return self.end_offset

    def can_acquire(self, int64_t max_locks):
        return self.may_acquire(max_locks)

    cdef bint may_acquire(self, int64_t max_locks) noexcept:
        if self.end_offset - self.start_offset < max_locks:
            return True
        return self.next_offset() != self.end_offset

    def acquirable(self, int64_t first, int64_t last):
        cdef int64_t count = 0
        cdef Py_ssize_t at
        cdef Run run
        for at in range(self.find(first), len(self.runs)):
            run = <Run>self.runs[at]
            if run.first > last:
                return count
            if (run.state == AVAILABLE or run.state == UNFETCHED) and not run.changing:
                count += min(last, run.last) - max(first, run.first) + 1
        if last >= self.end_offset:
            count += last - max(self.end_offset, first) + 1
        return count

    cdef bint advance(self) except -1:
        """Moves the start after the leading complete runs; returns True if it moved."""
        cdef Py_ssize_t done = 0, count = len(self.runs)
        cdef Run run
        while done < count:
            run = <Run>self.runs[done]
            if run.changing or not complete(run):
                break
            self.complete_count -= self.counted(run)
            done += 1
        if not done:
            return False
        self.start_offset = self.end_offset if done == count else (<Run>self.runs[done]).first
        del self.runs[:done]
        if self.candidate < self.start_offset:
            self.candidate = self.start_offset
        return True

    def settle(self):
        return self.advance()

    def move_log_start(self, int64_t offset):
        cdef Run run
        cdef Py_ssize_t dropped = 0
        if offset <= self.start_offset:
            return False
        for run in self.runs:
            if run.first >= offset:
                break
            self.complete_count -= self.counted(run)
            if run.last >= offset:
                if run.lock is not None:
                    run.lock.held -= offset - run.first
                run.first = offset
                self.start_offset = offset
                self.complete_count += self.counted(run)
                break
            if run.lock is not None:
                self.unlock(run)
            dropped += 1
        del self.runs[:dropped]
        self.start_offset = offset
        self.candidate = max(self.candidate, offset)
        if not self.runs:
            self.end_offset = self.candidate = offset
            self.complete_count = 0
        return True
    # ---- locks

    def drop_locks(self):
        cdef Run run
        for run in self.runs:
            if run.lock is not None and run.lock.timer is not None:
                timer_cancel(run.lock.timer)
        self.runs = []

    cdef int make_available(self, Run run, int64_t max_deliveries) except -1:
        """Releases a run whose lock has expired.

        The run is archived instead if it was delivered `max_deliveries` times.
        """
        self.unlock(run)
        run.state = AVAILABLE if run.count < max_deliveries else ARCHIVED
        self.complete_count += self.counted(run)
        if run.state == AVAILABLE:
            self.candidate = min(self.candidate, max(run.first, self.start_offset))
        return 0

    cdef int unlock(self, Run run) except -1:
        """Removes the lock of a run. Stops the timer of the lock if no other run has this lock."""
        cdef Lock lock = run.lock
        if lock is None:
            return 0
        run.lock = None
        lock.held -= run.last - run.first + 1
        if lock.held <= 0 and lock.timer is not None:
            timer_cancel(lock.timer)
        return 0

cdef Run copy_of(Run run):
    """Returns another run with the same offsets and state. The caller then divides the offsets between both runs."""
    cdef Run copy = Run.__new__(Run)
    copy.first = run.first
    copy.last = run.last
    copy.origin = run.origin
    copy.origin_last = run.origin_last
    copy.state = run.state
    copy.count = run.count
    copy.divided = run.divided
    copy.changing = run.changing
    copy.lock = run.lock
    return copy
