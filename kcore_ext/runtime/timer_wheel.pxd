"""The timer wheel, for other compiled modules; timer_wheel.pyx documents each part."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    SLOT_BITS = 6
    SLOTS = 64
    LEVELS = 11                # 11 * 6 bits cover every int64: no deadline is beyond the wheel
    DUE = LEVELS * SLOTS       # the list after the last slot: timers that have expired and wait for delivery

cdef struct TimerNode:
    TimerNode* next
    TimerNode* prev


@cython.final
cdef class Timer:
    # The fields that `extend` uses are adjacent: with 100,000 timers cache misses dominate its cost
    cdef readonly TimerWheel wheel
    cdef readonly int64_t deadline_ms
    cdef uint64_t sequence             # order of arming, which orders equal deadlines
    cdef TimerNode node                # links of the slot's circular list; next == NULL: not armed
    cdef public object payload


@cython.final
cdef class TimerWheel:
    cdef TimerNode slots[DUE + 1]
    cdef uint64_t occupied[LEVELS + 1]  # one bit per occupied slot; the last word belongs to DUE and is never set
    cdef uint64_t levels                # one bit per level with an occupied slot
    cdef int64_t now
    cdef uint64_t sequence
    cdef bint due_in_order
    cdef object gc_header               # always None: an object field makes Cython give the type a GC header
    cdef object __weakref__
    cdef readonly uint64_t armed_total
    cdef readonly uint64_t fired_total
    cdef readonly uint64_t cancelled_total

    cdef Timer arm(self, int64_t deadline_ms, object payload)
    cdef int64_t next_deadline(self) noexcept
    cdef int move_clock(self, int64_t now_ms) except -1
    cdef Timer pop_due(self, uint64_t armed_before)


@cython.final
cdef class ExpiredTimers:
    cdef TimerWheel wheel
    cdef uint64_t armed_before


cdef bint timer_armed(Timer timer) noexcept
cdef bint timer_cancel(Timer timer) noexcept
cdef void timer_extend(Timer timer, int64_t deadline_ms) noexcept
