"""The delivery state of a share partition: runs of offsets, and the locks of acquired records (KIP-932).

The runs cover every offset between the start and the end of the share partition, ascending and without gaps. A run
splits where a request concerns a part of it, and joins its neighbours again when their states are equal. One lock, with
one timer, covers all records that one request acquires.

`tests/broker/share/model.py` is the reference implementation: a dictionary of offsets.
"""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.runtime.timer_wheel cimport Timer, TimerWheel, timer_cancel
from kcore_ext.util.byte_order cimport read_int32, read_int64

cdef enum:
    LAST_OFFSET_DELTA_AT = 23
    HEADER_BYTES = 61
    MIN_THROTTLED = 2
    MAX_WRITES = 100        # of an expired lock, before the last one, which has all further state
    INVALID_REQUEST = 42
    INVALID_RECORD_STATE = 121


@cython.final
@cython.freelist(64)
cdef class Lock:
    """See share_runs.pyi."""

    def __init__(self):
        raise TypeError("an acquisition makes locks")

    def __call__(self):
        self.owner.lock_expired(self)


@cython.final
@cython.freelist(256)
cdef class Run:
    """Adjacent offsets with equal state."""


@cython.final
cdef class Change:
    """See share_runs.pyi."""

    def __init__(self):
        raise TypeError("an acknowledgement or a release makes changes")


@cython.final
@cython.freelist(16)
cdef class Acquired:
    """See share_runs.pyi."""

    def __init__(self):
        raise TypeError("an acquisition makes these")


@cython.final
cdef class Acquisition:
    """The limits of one `ShareRuns.acquire`, and what it has acquired so far."""

    cdef int64_t batch_end(self, int64_t offset) except -2:
        """Returns the last offset of the log batch that contains `offset`, or `offset` if none does."""
        cdef Py_ssize_t low = 0, high = len(self.bases), middle
        while low < high:
            middle = (low + high) >> 1
            if <int64_t>(<tuple>self.bases[middle])[0] <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0 or <int64_t>(<tuple>self.bases[low - 1])[1] < offset:
            return offset
        return <int64_t>(<tuple>self.bases[low - 1])[1]

    cdef int add(self, Run run) except -1:
        """Locks a run and adds it to the acquired ranges."""
        cdef tuple previous
        run.state = ACQUIRED
        run.count += 1
        run.lock = self.lock
        self.lock.held += run.last - run.first + 1
        if run.first < self.lock.first or self.lock.first < 0:
            self.lock.first = run.first
        if run.last > self.lock.last:
            self.lock.last = run.last
        self.ranges.append((run.first, run.last, run.count, run.origin))
        return 0


cdef Run new_run(int64_t first, int64_t last, int state, int64_t count):
    """Returns a run that is an origin of its own."""
    cdef Run run = Run.__new__(Run)
    run.first = run.origin = first
    run.last = run.origin_last = last
    run.state = state
    run.count = <int>count
    return run


cdef inline bint complete(Run run) noexcept:
    """Tests if the delivery of a run is complete: no member will get its records again."""
    return run.state == ACKNOWLEDGED or run.state == ARCHIVED or run.state == NO_DATA


cdef inline bint may_join(Run left, Run right) noexcept:
    """Tests if two adjacent runs can be one. Complete ones are never delivered again, so their origin is irrelevant."""
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


cdef class ShareRuns:
    """See share_runs.pyi."""

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
            if first < at or last < first or state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVED):
                raise ValueError(f"the state batch {first}-{last} of state {state} does not fit behind offset {at}")
            if first > at:
                self.runs.append(new_run(at, first - 1, UNFETCHED, 0))
            run = new_run(first, last, state, count)
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
        """Returns the index of the run that contains an offset, or of the first run behind it."""
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
        """Splits a run so that one run has exactly the offsets from `first` to `last`; returns its index."""
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
        if self.end_offset - self.start_offset < max_locks:
            return True
        return self.next_fetch_offset() != self.end_offset

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
        """Moves the start behind the leading complete runs; returns True if it moved."""
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

    # ---- acquiring

    def acquire(
        self,
        str member not None,
        list batches not None,
        int64_t fetch_offset,
        TimerWheel wheel not None,
        int64_t deadline_ms,
        *,
        int64_t max_records,
        int64_t batch_size,
        bint record_limit,
        int64_t max_locks,
        int64_t max_deliveries,
        aborted=(),
    ):
        cdef Acquisition acquisition = Acquisition.__new__(Acquisition)
        cdef int64_t base, room, at_end
        cdef Py_ssize_t at, stop
        cdef Run run
        cdef Lock lock
        acquisition.bases = bounds(batches)
        acquisition.ranges = []
        if not acquisition.bases or max_records <= 0:
            return acquired_of(acquisition)
        base = (<tuple>acquisition.bases[0])[0]
        acquisition.data_last = (<tuple>acquisition.bases[len(acquisition.bases) - 1])[1]
        if acquisition.data_last < self.start_offset:
            return acquired_of(acquisition)
        acquisition.last = acquisition.data_last
        room = max_locks - (self.end_offset - self.start_offset)
        acquisition.most = min(max_records, room)
        if acquisition.most <= 0:
            # No new records may be tracked, but those that were released can be acquired again.
            if fetch_offset >= self.end_offset:
                return acquired_of(acquisition)
            acquisition.most = min(max_records, self.end_offset - fetch_offset)
            acquisition.last = min(acquisition.last, self.end_offset - 1)
        if base > fetch_offset:
            self.skip_missing(fetch_offset, base)
        acquisition.first = max(base, self.start_offset)
        acquisition.batch_size = batch_size
        acquisition.record_limit = record_limit
        acquisition.max_deliveries = max_deliveries
        acquisition.throttled_from = max(<int64_t>MIN_THROTTLED, (max_deliveries + 1) // 2)
        acquisition.lock = lock = Lock.__new__(Lock)
        lock.owner = self
        lock.member = member
        lock.first = lock.last = -1
        at = self.find(acquisition.first)
        while at < len(self.runs) and acquisition.taken < acquisition.most:
            run = <Run>self.runs[at]
            if run.first > acquisition.last:
                break
            if run.state == UNFETCHED and not run.changing:
                at = self.take_gap(acquisition, at)
                continue
            if run.state != AVAILABLE or run.changing:
                at += 1
                continue
            stop = at + 1
            while stop < len(self.runs) and (<Run>self.runs[stop]).origin == run.origin \
                    and (<Run>self.runs[stop]).first <= acquisition.last:
                stop += 1
            at = self.take_tracked(acquisition, at, stop)
        if acquisition.taken < acquisition.most and self.end_offset <= acquisition.last:
            at_end = max(self.end_offset, acquisition.first)
            if at_end > self.end_offset:
                if self.runs:
                    self.runs.append(new_run(self.end_offset, at_end - 1, NO_DATA, 0))
                    self.end_offset = at_end
                else:
                    self.start_offset = self.end_offset = self.candidate = at_end
            self.take_new(acquisition, at_end, acquisition.last)
        if lock.held:
            lock.timer = wheel.arm(deadline_ms, lock)
            for first, last in aborted:
                self.archive_locked(lock, acquisition, first, last)
            if aborted:
                self.coalesce(lock.first, lock.last)
                self.advance()
        return acquired_of(acquisition)

    cdef int64_t take_tracked(self, Acquisition acquisition, Py_ssize_t at, Py_ssize_t stop) except -1:
        """Acquires available runs of one origin, from index `at` on; returns the index of the run behind them.

        Records that were delivered often come in smaller pieces, and those before their last delivery alone, so that a
        record that no member can process does not take others with it. `acquisition.most` is 0 when nothing more may
        be acquired after such a piece.
        """
        cdef Run run
        cdef Py_ssize_t i
        cdef int64_t low, high, most, taken = 0, throttled_most = -1, highest = 0, size
        cdef int64_t remaining = acquisition.most - acquisition.taken
        cdef int64_t limit = acquisition.max_deliveries
        cdef bint throttled, alone, ended = False
        for i in range(at, stop):
            run = <Run>self.runs[i]
            if run.state == AVAILABLE and not run.changing and run.count > highest:
                highest = run.count
        throttled = highest >= acquisition.throttled_from
        if throttled and acquisition.taken:
            acquisition.most = 0
            return stop
        i = at
        while i < stop and not ended:
            run = <Run>self.runs[i]
            if run.state != AVAILABLE or run.changing:
                i += 1
                continue
            low, high = max(run.first, acquisition.first), min(run.last, acquisition.last)
            alone = limit > 2 and run.count == limit - 1
            if alone and taken:
                break
            if run.count >= acquisition.throttled_from and throttled_most < 0:
                throttled_most = max(<int64_t>1, (run.origin_last - run.origin + 1) >> (run.count - acquisition.throttled_from + 1))
            most = high - low + 1
            if acquisition.record_limit:
                most = min(most, remaining - taken)
            if throttled_most >= 0:
                most = min(most, throttled_most - taken)
            if alone:
                most = min(most, <int64_t>1)
            if most <= 0:
                break
            size = len(self.runs)
            i = self.cut(i, low, low + most - 1)
            stop += len(self.runs) - size
            acquisition.add(<Run>self.runs[i])
            taken += most
            i += 1
            ended = (
                alone
                or (acquisition.record_limit and taken == remaining)
                or (throttled_most >= 0 and taken == throttled_most)
            )
        acquisition.taken += taken
        if throttled and taken:
            acquisition.most = 0
        return stop

    cdef int take_gap(self, Acquisition acquisition, Py_ssize_t at) except -1:
        """Acquires records of a gap in the loaded state; returns the index of the run to continue with."""
        cdef Run run = <Run>self.runs[at]
        cdef int64_t first = max(run.first, acquisition.first), last = min(run.last, acquisition.last)
        at = self.cut(at, first, last)
        del self.runs[at]
        first = self.take_new(acquisition, first, last)
        if first <= last:
            self.runs.insert(self.find(first), new_run(first, last, UNFETCHED, 0))
            self.candidate = min(self.candidate, first)
        return <int>self.find(first)

    cdef int64_t take_new(self, Acquisition acquisition, int64_t first, int64_t last) except -1:
        """Acquires offsets that were never delivered; returns the offset behind the tracked ones.

        Without a record limit whole log batches are taken, and split into ranges of about `batch_size` offsets where a
        log batch begins. With a limit the rest of the last log batch is tracked, and stays available.
        """
        cdef int64_t remaining = acquisition.most - acquisition.taken
        cdef int64_t limit = last, begin = first, base, end
        cdef Run run, rest
        cdef tuple bound
        cdef Py_ssize_t at = self.find(first)
        if last - first + 1 > remaining:
            limit = min(last, acquisition.batch_end(first + remaining - 1))
        if not acquisition.record_limit and limit - first + 1 > acquisition.batch_size:
            for bound in acquisition.bases:
                base = bound[0]
                if base > limit:
                    break
                if base - begin >= acquisition.batch_size and base > begin:
                    run = new_run(begin, base - 1, AVAILABLE, 0)
                    self.runs.insert(at, run)
                    at += 1
                    acquisition.add(run)
                    begin = base
        end = limit
        if acquisition.record_limit and limit - first + 1 > remaining:
            end = first + remaining - 1
        run = new_run(begin, end, AVAILABLE, 0)
        run.origin_last = limit
        self.runs.insert(at, run)
        if end < limit:
            run.divided = True
            rest = copy_of(run)
            rest.first, rest.last = end + 1, limit
            self.runs.insert(at + 1, rest)
            self.candidate = min(self.candidate, rest.first)
        acquisition.add(run)
        acquisition.taken += end - first + 1
        if limit >= self.end_offset:
            if self.candidate == self.end_offset:
                self.candidate = limit + 1 if end == limit else end + 1
            self.end_offset = limit + 1
        return limit + 1

    cdef int skip_missing(self, int64_t first, int64_t before) except -1:
        """Takes note that the log has no records from `first` on, below the log batch that begins at `before`.

        Compaction removed them. Available ones are archived, which is not written; a later write moves the start.
        """
        cdef Py_ssize_t at = self.find(first)
        cdef Run run
        while at < len(self.runs) and (<Run>self.runs[at]).first < before:
            run = <Run>self.runs[at]
            if not run.changing and (run.state == AVAILABLE or run.state == UNFETCHED):
                at = self.cut(at, max(run.first, first), min(run.last, before - 1))
                run = <Run>self.runs[at]
                run.state = ARCHIVED if run.state == AVAILABLE else NO_DATA
                self.complete_count += self.counted(run)
            at += 1
        self.coalesce(first, before - 1)
        return 0

    cdef int archive_locked(self, Lock lock, Acquisition acquisition, int64_t first, int64_t last) except -1:
        """Archives what a lock has acquired in a range of aborted records, and removes it from the acquired ranges."""
        cdef Py_ssize_t at = self.find(first)
        cdef Run run
        cdef list ranges = []
        while at < len(self.runs) and (<Run>self.runs[at]).first <= last:
            run = <Run>self.runs[at]
            if run.lock is lock:
                at = self.cut(at, max(run.first, first), min(run.last, last))
                run = <Run>self.runs[at]
                self.unlock(run)
                run.state = ARCHIVED
                self.complete_count += self.counted(run)
                acquisition.taken -= run.last - run.first + 1
            at += 1
        for low, high, count, origin in acquisition.ranges:
            if high < first or low > last:
                ranges.append((low, high, count, origin))
                continue
            if low < first:
                ranges.append((low, first - 1, count, origin))
            if high > last:
                ranges.append((last + 1, high, count, origin))
        acquisition.ranges = ranges
        return 0

    # ---- acknowledging and releasing

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
        cdef Change change = Change.__new__(Change)
        cdef Lock renewed = Lock.__new__(Lock)
        cdef int64_t first, last, low, high
        cdef int error = 0, kind
        cdef Py_ssize_t at, count
        change.runs = []
        change.state_batches = []
        renewed.owner = self
        renewed.member = member
        renewed.first = renewed.last = -1
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
                    change, member, max(first, self.start_offset), last, kinds[0], max_deliveries, renewed, allow_renew,
                    False,
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
                        change, member, low, high, kind, max_deliveries, renewed, allow_renew, True
                    )
            if error:
                break
        if renewed.held:
            renewed.timer = wheel.arm(deadline_ms, renewed)
        if error:
            self.undo(change, max_deliveries)
            return error
        return change

    cdef int acknowledge_range(
        self, Change change, str member, int64_t first, int64_t last, int kind, int64_t max_deliveries, Lock renewed,
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
                self.unlock(run)
                run.lock = renewed
                renewed.held += run.last - run.first + 1
                if renewed.first < 0 or run.first < renewed.first:
                    renewed.first = run.first
                renewed.last = max(renewed.last, run.last)
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

    def release(self, str member not None, int64_t max_deliveries):
        cdef Change change = Change.__new__(Change)
        cdef Run run
        change.runs = []
        change.state_batches = []
        for run in self.runs:
            if run.state == ACQUIRED and run.lock.member == member:
                run.changing = True
                run.state = AVAILABLE if run.count < max_deliveries else ARCHIVED
                change.runs.append(run)
                self.complete_count += self.counted(run)
                add_state_batch(change.state_batches, run)
        return change

    def finish(self, Change change not None, bint written, int64_t max_deliveries):
        cdef Run run
        cdef bint available = False, moved = False
        cdef int64_t first = -1, last = -1
        if not written:
            return False, self.undo(change, max_deliveries) > 0
        for run in change.runs:
            run.changing = False
            self.unlock(run)
            if run.state == AVAILABLE and run.last >= self.start_offset:
                available = True
                self.candidate = min(self.candidate, max(run.first, self.start_offset))
            if first < 0 or run.first < first:
                first = run.first
            last = max(last, run.last)
        change.runs = []
        moved = self.advance()
        if self.runs and last >= self.start_offset:
            self.coalesce(max(first, self.start_offset), last)
        return moved, available

    cdef int undo(self, Change change, int64_t max_deliveries) except -1:
        """Takes a change back. Offsets whose lock has expired meanwhile are released; returns the number of runs."""
        cdef Run run
        cdef int released = 0
        cdef int64_t first = -1, last = -1
        for run in change.runs:
            run.changing = False
            if run.lock is None:
                continue    # the log's start moved past it
            self.complete_count -= self.counted(run)
            run.state = ACQUIRED
            if run.lock.expired:
                self.make_available(run, max_deliveries)
                released += 1
            if first < 0 or run.first < first:
                first = run.first
            last = max(last, run.last)
        change.runs = []
        if self.runs and last >= self.start_offset:
            self.coalesce(max(first, self.start_offset), last)
        return released

    def expire(self, Lock lock not None, int64_t max_deliveries):
        cdef list writes = []
        cdef list rest = []
        cdef Run run
        cdef Py_ssize_t at
        cdef int64_t offset
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
        return writes

    def drop_locks(self):
        cdef Run run
        for run in self.runs:
            if run.lock is not None and run.lock.timer is not None:
                timer_cancel(run.lock.timer)
        self.runs = []

    cdef int make_available(self, Run run, int64_t max_deliveries) except -1:
        """Releases a run whose lock has expired; it is archived if it was delivered often enough."""
        self.unlock(run)
        run.state = AVAILABLE if run.count < max_deliveries else ARCHIVED
        self.complete_count += self.counted(run)
        if run.state == AVAILABLE:
            self.candidate = min(self.candidate, max(run.first, self.start_offset))
        return 0

    cdef int unlock(self, Run run) except -1:
        """Removes the lock of a run; the last one that has the lock stops its timer."""
        cdef Lock lock = run.lock
        if lock is None:
            return 0
        run.lock = None
        lock.held -= run.last - run.first + 1
        if lock.held <= 0 and lock.timer is not None:
            timer_cancel(lock.timer)
        return 0


cdef Run copy_of(Run run):
    """Returns another run with the same offsets and state. The caller gives each a part of the offsets."""
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


cdef list bounds(list batches):
    """Returns the first and the last offset of each record batch."""
    cdef list found = []
    cdef bytes batch
    cdef int64_t base
    for item in batches:
        batch = <bytes?>item
        if len(batch) < HEADER_BYTES:
            raise ValueError(f"a record batch has at least {HEADER_BYTES} bytes, found {len(batch)}")
        base = read_int64(<const unsigned char*>batch)
        found.append((base, base + read_int32(<const unsigned char*>batch + LAST_OFFSET_DELTA_AT)))
    return found


cdef Acquired acquired_of(Acquisition acquisition):
    """Joins adjacent ranges of one origin and count, and finds the log batches that contain the acquired records."""
    cdef Acquired acquired = Acquired.__new__(Acquired)
    cdef list ranges = []
    cdef Py_ssize_t i
    cdef int64_t first, last
    previous_origin = None
    for low, high, count, origin in acquisition.ranges:
        if ranges and origin == previous_origin and ranges[len(ranges) - 1][1] + 1 == low \
                and ranges[len(ranges) - 1][2] == count:
            ranges[len(ranges) - 1] = (ranges[len(ranges) - 1][0], high, count)
        else:
            ranges.append((low, high, count))
        previous_origin = origin
    acquired.ranges = ranges
    acquired.count = acquisition.taken
    if ranges:
        first, last = ranges[0][0], ranges[len(ranges) - 1][1]
        for i in range(len(acquisition.bases)):
            if <int64_t>(<tuple>acquisition.bases[i])[1] < first:
                acquired.first_batch = i + 1
            if <int64_t>(<tuple>acquisition.bases[i])[0] <= last:
                acquired.stop_batch = i + 1
    return acquired
