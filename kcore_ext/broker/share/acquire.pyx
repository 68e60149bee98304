"""Acquiring records of a share partition for a member (KIP-932)."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.batch.layout cimport HEADER_BYTES, LAST_DELTA_AT
from kcore_ext.broker.share.runs cimport (
    ARCHIVED, ACQUIRED, AVAILABLE, NO_DATA, UNFETCHED, Lock, Run, RunList, copy_of, new_run
)
from kcore_ext.runtime.timer_wheel cimport TimerWheel
from kcore_ext.util.byte_order cimport read_int32, read_int64

cdef enum:
    MIN_THROTTLED = 2


@cython.final
@cython.freelist(16)
cdef class Acquired:
    """Documented in acquire.pyi."""

    def __init__(self):
        raise TypeError("an Acquired is made by AcquiringRuns.acquire")


@cython.final
cdef class Acquisition:
    """The limits of one call of `AcquiringRuns.acquire`, and the ranges that this call has acquired so far."""

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


cdef class AcquiringRuns(RunList):
    """Documented in acquire.pyi."""

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
        return self.take(
            member, batches, fetch_offset, wheel, deadline_ms, max_records, batch_size, record_limit, max_locks,
            max_deliveries, aborted,
        )

    cdef Acquired take(
        self, str member, list batches, int64_t fetch_offset, TimerWheel wheel, int64_t deadline_ms,
        int64_t max_records, int64_t batch_size, bint record_limit, int64_t max_locks, int64_t max_deliveries, aborted,
    ):
        """Acquires records; `acquire` documents the arguments."""
        cdef Acquisition acquisition = Acquisition.__new__(Acquisition)
        cdef int64_t base, room, at_end
        cdef bint was_interrupted
        cdef Acquired acquired
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
            # No new records may be tracked, but released records can be acquired again.
            if fetch_offset >= self.end_offset:
                return acquired_of(acquisition)
            acquisition.most = min(max_records, self.end_offset - fetch_offset)
            acquisition.last = min(acquisition.last, self.end_offset - 1)
        was_interrupted, self.interrupted = self.interrupted, True
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
        self.take_released(acquisition)
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
                acquisition.ranges = without(acquisition.ranges, aborted)
                self.coalesce(lock.first, lock.last)
                if self.end_offset - self.start_offset >= max_locks:
                    self.advance()  # below the limit, a later write moves the start, as in Kafka
        acquired = acquired_of(acquisition)
        self.interrupted = was_interrupted
        return acquired

    cdef int take_released(self, Acquisition acquisition) except -1:
        """Acquires the available records below the end of the runs, in order."""
        cdef Py_ssize_t at = self.find(acquisition.first)
        cdef Py_ssize_t stop
        cdef Run run
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
        return 0

    cdef int64_t take_tracked(self, Acquisition acquisition, Py_ssize_t at, Py_ssize_t stop) except -1:
        """Acquires available runs of one origin: records that were first acquired in the same range.

        The runs have the indexes from `at` to `stop - 1`. Returns the index of the run to continue with.

        The more often records were delivered, the fewer of them are acquired together. For its last delivery, each
        record is acquired alone. A record that no member can process therefore does not make other records fail. If a
        run was delivered `throttled_from` times or more, the function sets `acquisition.most` to 0, which ends the
        acquisition. If the acquisition already has records of another origin, the function acquires none of these runs.
        """
        cdef Run run
        cdef Py_ssize_t i
        cdef int64_t low, high, most, taken = 0, throttled_most = -1, highest = 0, size, halvings
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
                # A stored count may be any int16: a shift by 64 or more would be undefined.
                halvings = min(run.count - acquisition.throttled_from + 1, <int64_t>62)
                throttled_most = max(<int64_t>1, (run.origin_last - run.origin + 1) >> halvings)
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
        """Acquires offsets that were never delivered; returns the offset after the last tracked offset.

        Without a record limit, whole log batches are acquired, in ranges of about `batch_size` offsets; each range
        begins with a log batch. With a record limit, the rest of the last log batch is tracked, and stays available.
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
        """Skips offsets without records in the log: from `first` to the log batch that begins at `before`.

        These are records that compaction has removed. Available offsets among them are archived in memory only. A later
        write moves the start of the share partition after them.
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
        """Archives those aborted records from `first` to `last` that `lock` locks."""
        cdef Py_ssize_t at = self.find(first)
        cdef Run run
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
        return 0


cdef list without(list ranges, list aborted):
    """Returns acquired ranges without the offsets of aborted ranges.

    Both lists ascend, and may have thousands of elements.
    """
    cdef list kept = []
    cdef Py_ssize_t at = 0, i, count = len(aborted)
    cdef int64_t low, high, first, last
    for low, high, deliveries, origin in ranges:
        while at < count and <int64_t>(<tuple>aborted[at])[1] < low:
            at += 1
        i = at
        while i < count and low <= high:
            first, last = <tuple>aborted[i]
            if first > high:
                break
            if low < first:
                kept.append((low, first - 1, deliveries, origin))
            low = last + 1
            i += 1
        if low <= high:
            kept.append((low, high, deliveries, origin))
    return kept


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
        found.append((base, base + read_int32(<const unsigned char*>batch + LAST_DELTA_AT)))
    return found


cdef Acquired acquired_of(Acquisition acquisition):
    """Joins adjacent ranges with equal origins and delivery counts; finds the log batches with the acquired records."""
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
