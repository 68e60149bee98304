"""A hierarchical timer wheel in milliseconds. It is exact and needs no periodic tick.

To arm, cancel and move a timer and to find the next deadline takes O(1).

Structure
    The wheel has eleven levels of 64 slots. The level of a deadline is the highest 6-bit digit in which it differs
    from the wheel's clock. Its slot is the value of that digit (Varghese and Lauck's wheel, with tokio's placement).
    Eleven digits of 6 bits cover an int64, so there is no horizon. A slot is a circular list of nodes inside the
    timers. A 64-bit word per level has a bit for each occupied slot. The first occupied slot of the lowest occupied
    level has the earliest timers; two bit scans find it. `advance` moves the clock from one such slot to the next and
    skips empty ones. When the clock enters a slot above level 0, the wheel moves the slot's timers to lower levels. So
    no timer is ever late.

Lazy re-arm
    `Timer.extend` to a later deadline only stores the deadline. The timer stays in its slot, and moves to its new slot
    when the clock reaches the old one. If every heartbeat extends a session, its timer moves about once per session
    timeout, not once per heartbeat. `Timer.extend` to an earlier deadline moves the timer immediately.

Delivery
    `advance` moves the clock, collects the expired timers and returns an iterator that *delivers* them. A timer is
    armed until the iterator returns it. So if an action cancels or extends another expired timer, the iterator skips
    that timer. If the iteration ends early (a break, an exception), no timer is lost: the next `advance` begins with
    the rest. Timers that are armed for the past during delivery wait for the next `advance`. Otherwise an action that
    always arms its timer again would block the loop forever.

Order
    The iterator returns timers by deadline, and timers with equal deadlines in the order of arming. `extend` counts as
    arming.

A timer takes 80 bytes (header and GC 32, links 16, wheel 8, payload 8, deadline 8, arming order 8). The wheel reads no
clock, keeps armed timers alive, and is for one thread.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #define kcore_low_bit(word) __builtin_ctzll(word)
    #define kcore_high_bit(word) (63 - __builtin_clzll(word))
    """
    int low_bit "kcore_low_bit"(uint64_t word) noexcept nogil
    int high_bit "kcore_high_bit"(uint64_t word) noexcept nogil

cdef extern from "stdlib.h":
    # declared here because libc.stdlib's version requires a comparison that works without the GIL
    void qsort(void* base, size_t count, size_t size, int (*compare)(const void*, const void*) noexcept) noexcept

cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject* referent, void* arg) noexcept
    ctypedef int (*traverseproc)(PyObject* self, visitproc visit, void* arg) noexcept
    ctypedef int (*inquiry)(PyObject* self) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear


@cython.final
cdef class Timer:
    """A deadline on a wheel, made by `TimerWheel.add`. A timer can be cancelled, moved and armed again repeatedly.

    Attributes:
        payload: any object; the wheel does not use it.
        deadline_ms: the deadline; of a timer that is not armed, the last deadline.
        wheel: the timer's wheel.
    """

    def __init__(self):
        raise TypeError("a Timer is made by TimerWheel.add")

    @property
    def armed(self):
        """True while the timer is on the wheel: until the iterator of `advance` returns it, or it is cancelled."""
        return timer_armed(self)

    def cancel(self):
        """Removes the timer from the wheel. Returns False if it was not armed; O(1)."""
        return timer_cancel(self)

    def extend(self, int64_t deadline_ms):
        """Moves the deadline, or arms a fired or cancelled timer again (counted in `armed_total`); O(1).

        For a later deadline the method only stores the deadline ("Lazy re-arm" in the module's docstring). An earlier
        deadline moves the timer at once.
        """
        timer_extend(self, deadline_ms)

    def __repr__(self):
        state = "armed" if timer_armed(self) else "idle"
        return f"<Timer {state} deadline_ms={self.deadline_ms} payload={self.payload!r}>"


cdef Py_ssize_t NODE_OFFSET = 0


cdef inline Timer timer_of(TimerNode* node):
    """Returns the timer that contains a node."""
    return <Timer><PyObject*>(<char*>node - NODE_OFFSET)


cdef inline bint comes_before(TimerNode* left, TimerNode* right) noexcept:
    cdef Timer a = timer_of(left)
    cdef Timer b = timer_of(right)
    if a.deadline_ms != b.deadline_ms:
        return a.deadline_ms < b.deadline_ms
    return a.sequence < b.sequence


cdef int compare_nodes(const void* left, const void* right) noexcept:
    """Compares two node pointers for qsort. No two timers are equal: each has its own sequence number."""
    return -1 if comes_before((<TimerNode**>left)[0], (<TimerNode**>right)[0]) else 1


cdef inline void link(TimerWheel wheel, Timer timer) noexcept:
    """Adds a timer to the end of the list for its deadline. Takes no reference."""
    cdef uint64_t digits
    cdef int level, slot
    cdef TimerNode* node = &timer.node
    cdef TimerNode* head
    if timer.deadline_ms <= wheel.now:
        head = &wheel.slots[DUE]
        if wheel.due_in_order and head.prev is not head and comes_before(node, head.prev):
            wheel.due_in_order = False
    else:
        # "| 63" selects level 0 for every deadline within the current span of 64 ms
        digits = <uint64_t>(timer.deadline_ms ^ wheel.now) | (SLOTS - 1)
        level = high_bit(digits) // SLOT_BITS
        slot = <int>((<uint64_t>timer.deadline_ms >> (SLOT_BITS * level)) & (SLOTS - 1))
        wheel.occupied[level] |= <uint64_t>1 << slot
        wheel.levels |= <uint64_t>1 << level
        head = &wheel.slots[level * SLOTS + slot]
    node.next = head
    node.prev = head.prev
    head.prev.next = node
    head.prev = node


cdef inline void unlink(TimerWheel wheel, Timer timer) noexcept:
    """Removes a timer from its list; the position of the list's head identifies the slot. Drops no reference."""
    cdef TimerNode* node = &timer.node
    cdef TimerNode* head = node.prev
    cdef Py_ssize_t index
    head.next = node.next
    node.next.prev = head
    if head is node.next:  # it was the only timer, so both neighbours were the head
        index = head - &wheel.slots[0]
        wheel.occupied[index >> SLOT_BITS] &= ~(<uint64_t>1 << (index & (SLOTS - 1)))
        if wheel.occupied[index >> SLOT_BITS] == 0:
            wheel.levels &= ~(<uint64_t>1 << (index >> SLOT_BITS))
    node.next = NULL


cdef bint timer_armed(Timer timer) noexcept:
    """Implements `Timer.armed`, for compiled modules too."""
    return timer.node.next is not NULL


cdef bint timer_cancel(Timer timer) noexcept:
    """Implements `Timer.cancel`, for compiled modules too."""
    if timer.node.next is NULL or timer.wheel is None:  # None: the garbage collector is clearing the wheel
        return False
    timer.wheel.cancelled_total += 1
    unlink(timer.wheel, timer)
    Py_DECREF(timer)
    return True


cdef void timer_extend(Timer timer, int64_t deadline_ms) noexcept:
    """Implements `Timer.extend`, for compiled modules too."""
    cdef TimerWheel wheel = timer.wheel
    cdef bint in_slot_until_then
    if wheel is None:  # the garbage collector is clearing the wheel
        return
    in_slot_until_then = wheel.now < timer.deadline_ms <= deadline_ms
    timer.deadline_ms = deadline_ms
    timer.sequence = wheel.sequence
    wheel.sequence += 1
    if timer.node.next is NULL:
        wheel.armed_total += 1
        Py_INCREF(timer)
    elif in_slot_until_then:
        return
    else:
        unlink(wheel, timer)
    link(wheel, timer)


@cython.final
cdef class TimerWheel:
    """Timers by deadline. The module's docstring describes structure, order and delivery.

    Args:
        now_ms: the present time in ms, at least 0, on the clock that the caller uses for deadlines.

    Attributes:
        armed_total: the number of timers armed so far, by `add` or by `extend` of an idle timer.
        fired_total: the number of delivered timers.
        cancelled_total: the number of cancelled timers. `armed_total` is always `fired_total + cancelled_total +
            len(wheel)`.

    Raises:
        ValueError: now_ms is negative.
    """

    def __cinit__(self, int64_t now_ms=0):
        cdef int index
        for index in range(DUE + 1):
            self.slots[index].next = &self.slots[index]
            self.slots[index].prev = &self.slots[index]
        if now_ms < 0:
            raise ValueError(f"now_ms must be >= 0, not {now_ms}")
        self.now = now_ms
        self.due_in_order = True

    def __dealloc__(self):
        release_all(self)

    @property
    def now_ms(self):
        """The time of the wheel's clock: the highest `now_ms` so far."""
        return self.now

    def __len__(self):
        """Returns the number of armed timers, including expired ones that were not delivered yet."""
        return self.armed_total - self.fired_total - self.cancelled_total

    def __bool__(self):
        """Returns True, also for a wheel without timers."""
        return True

    def add(self, int64_t deadline_ms, object payload):
        """Arms a new timer; O(1).

        Args:
            deadline_ms: absolute, on the wheel's clock. If it is at or before `now_ms`, the timer expires at the next
                `advance`.
            payload: an object for the caller, available when the timer expires.

        Returns:
            The timer. The wheel keeps it alive while it is armed.
        """
        return self.arm(deadline_ms, payload)

    def advance(self, int64_t now_ms):
        """Moves the clock, and returns an iterator that delivers the expired timers.

        Args:
            now_ms: the current time. A time before `now_ms` of the wheel does not move the clock back.

        Returns:
            An iterator over the timers with `deadline_ms <= now_ms`, in order of deadline, then of arming. A timer
            stays armed until the iterator returns it. The iterator skips a timer that was cancelled or extended after
            this call.
        """
        cdef ExpiredTimers expired
        self.move_clock(now_ms)
        expired = ExpiredTimers.__new__(ExpiredTimers)
        expired.wheel = self
        expired.armed_before = self.sequence
        return expired

    def next_deadline_ms(self):
        """Returns the time for the next call of `advance`, or -1 if no timer is armed; O(1).

        The result is a lower bound of the earliest deadline. The clock must enter a slot with far deadlines before its
        timers are due, and an extended timer can still be in its old slot. So it is possible that `advance` delivers no
        timer at this time. The next result is then higher.
        """
        return self.next_deadline()

    def clear(self):
        """Cancels every armed timer, including expired ones that were not delivered yet. Returns their number."""
        cdef Py_ssize_t count = len(self)
        release_all(self)
        return count

    def __repr__(self):
        return f"<TimerWheel now_ms={self.now} armed={len(self)}>"

    cdef Timer arm(self, int64_t deadline_ms, object payload):
        """Implements `add`, for compiled modules too."""
        cdef Timer timer = Timer.__new__(Timer)
        timer.wheel = self
        timer.payload = payload
        timer.deadline_ms = deadline_ms
        timer.sequence = self.sequence
        self.sequence += 1
        self.armed_total += 1
        Py_INCREF(timer)  # the wheel's reference
        link(self, timer)
        return timer

    cdef int64_t next_deadline(self) noexcept:
        """Implements `next_deadline_ms`, for compiled modules too."""
        if self.slots[DUE].next is not &self.slots[DUE]:
            return self.now
        if self.levels == 0:
            return -1
        return first_slot_start(self)

    cdef int move_clock(self, int64_t now_ms) except -1:
        """Sets the clock and moves expired timers to the list of due timers, in order of delivery."""
        cdef int64_t start
        while self.levels != 0:
            start = first_slot_start(self)
            if start > now_ms:
                break
            self.now = start
            deal_out_first_slot(self)
        if now_ms > self.now:
            self.now = now_ms
        if not self.due_in_order:
            sort_due(self)
        return 0

    cdef Timer pop_due(self, uint64_t armed_before):
        """Removes and returns the next due timer with a sequence number below `armed_before`, or returns None."""
        cdef TimerNode* node = self.slots[DUE].next
        cdef Timer timer
        if node is &self.slots[DUE]:
            return None
        timer = timer_of(node)
        if timer.sequence >= armed_before:
            return None
        unlink(self, timer)
        self.fired_total += 1
        Py_DECREF(timer)  # the wheel's reference; `timer` keeps the object alive
        return timer


cdef inline int64_t first_slot_start(TimerWheel wheel) noexcept:
    """Returns the time at which the first occupied slot begins; `levels` must not be 0."""
    cdef int level = low_bit(wheel.levels)
    cdef uint64_t slot = low_bit(wheel.occupied[level])
    cdef int shift = SLOT_BITS * level
    cdef uint64_t higher = 0
    if shift + SLOT_BITS < 64:  # the topmost level has no digits above it
        higher = <uint64_t>wheel.now >> (shift + SLOT_BITS) << (shift + SLOT_BITS)
    return <int64_t>(higher | slot << shift)


cdef void deal_out_first_slot(TimerWheel wheel) noexcept:
    """Empties the first occupied slot: its timers become due, or move to the slots of their deadlines."""
    cdef int level = low_bit(wheel.levels)
    cdef int slot = low_bit(wheel.occupied[level])
    cdef TimerNode* head = &wheel.slots[level * SLOTS + slot]
    cdef TimerNode* node = head.next
    cdef TimerNode* following
    # The list is detached first: no timer returns to this slot, since the clock has reached its digits at this level
    head.next = head
    head.prev = head
    wheel.occupied[level] &= ~(<uint64_t>1 << slot)
    if wheel.occupied[level] == 0:
        wheel.levels &= ~(<uint64_t>1 << level)
    while node is not head:
        following = node.next
        link(wheel, timer_of(node))
        node = following


cdef int sort_due(TimerWheel wheel) except -1:
    """Sorts the due timers. They can be out of order only after lazy re-arms within one slot, or after arming for the
    past.
    """
    cdef TimerNode* head = &wheel.slots[DUE]
    cdef TimerNode* node = head.next
    cdef TimerNode** nodes
    cdef size_t count = 0, index
    while node is not head:
        count += 1
        node = node.next
    nodes = <TimerNode**>malloc((count + 1) * sizeof(TimerNode*))
    if nodes is NULL:
        raise MemoryError
    node = head.next
    for index in range(count):
        nodes[index] = node
        node = node.next
    qsort(nodes, count, sizeof(TimerNode*), &compare_nodes)
    nodes[count] = head
    node = head
    for index in range(count + 1):
        node.next = nodes[index]
        nodes[index].prev = node
        node = nodes[index]
    free(nodes)
    wheel.due_in_order = True
    return 0


cdef void release_all(TimerWheel wheel) noexcept:
    """Cancels every timer."""
    cdef int index
    cdef TimerNode* head
    cdef Timer timer
    for index in range(DUE + 1):
        head = &wheel.slots[index]
        while head.next is not head:
            timer = timer_of(head.next)
            wheel.cancelled_total += 1
            unlink(wheel, timer)
            Py_DECREF(timer)


@cython.final
cdef class ExpiredTimers:
    """An iterator over the expired timers of one `TimerWheel.advance`. Each timer fires when it is returned."""

    def __init__(self):
        raise TypeError("ExpiredTimers are made by TimerWheel.advance")

    def __iter__(self):
        return self

    def __next__(self):
        cdef Timer timer
        if self.wheel is None:  # created by __new__ alone, or being cleared by the garbage collector
            raise StopIteration
        timer = self.wheel.pop_due(self.armed_before)
        if timer is None:
            raise StopIteration
        return timer


# The references from a wheel to its armed timers are C pointers, which the garbage collector cannot see by itself.
# Without these two hooks a cycle through an armed timer (engine -> wheel -> timer -> callback -> engine) would leak.
cdef traverseproc cython_traverse = (<PyTypeObject*>TimerWheel).tp_traverse


cdef int wheel_traverse(PyObject* self, visitproc visit, void* arg) noexcept:
    cdef TimerWheel wheel = <TimerWheel>self
    cdef int index, found
    cdef TimerNode* node
    for index in range(DUE + 1):
        node = wheel.slots[index].next
        while node is not NULL and node is not &wheel.slots[index]:
            found = visit(<PyObject*>(<char*>node - NODE_OFFSET), arg)
            if found:
                return found
            node = node.next
    return cython_traverse(self, visit, arg)


cdef int wheel_clear(PyObject* self) noexcept:
    release_all(<TimerWheel>self)
    return 0


cdef void install_hooks():
    global NODE_OFFSET
    cdef Timer probe = Timer.__new__(Timer)
    NODE_OFFSET = <char*>&probe.node - <char*><PyObject*>probe
    (<PyTypeObject*>TimerWheel).tp_traverse = &wheel_traverse
    (<PyTypeObject*>TimerWheel).tp_clear = &wheel_clear


install_hooks()
