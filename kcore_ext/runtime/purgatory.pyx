"""Operations that wait for a condition or a timeout, after Kafka's DelayedOperationPurgatory, for one thread.

An operation is completed exactly once: by its condition (somebody called `check_and_complete` for one of its keys, or
`force_complete`), or by expiry, never both. `on_complete` runs once in either case; `on_expiration` runs after it, and
only if the timeout won.

What differs from Kafka, because one thread needs no locks
    * An operation is tried once before it is watched, not twice: nothing can happen between the try and the watch.
    * Each (operation, key) pair is a node in an intrusive list, so a completed operation leaves the lists of all its
      keys at once. There is nothing to purge, and the gauges count live operations only.
    * `cancel_for_key` takes an operation out of the lists of its other keys as well. Kafka leaves it there without a
      timeout, where it may stay for ever.

Expiry goes through the timer wheel: the payload of the timer is the operation, and calling an operation expires it. So
whoever advances the wheel needs one line, `for timer in wheel.advance(now_ms): timer.payload()`.

Re-entrancy: `try_complete`, `on_complete` and `on_expiration` may watch, complete and cancel any operation, this one
included. An iteration over a key's operations goes on safely, and does not visit those watched after it began.

Ownership: the timer keeps a watched operation alive, the lists of the keys do not. An operation whose timer was taken
away with `TimerWheel.clear` and that nobody else holds is garbage, and leaves its lists when it is collected.
"""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kcore_ext.runtime.timer_wheel cimport Timer, TimerWheel, timer_cancel


cdef inline void link_before(Watch* position, Watch* watch) noexcept:
    watch.next = position
    watch.prev = position.prev
    position.prev.next = watch
    position.prev = watch


cdef inline void unlink(Watch* watch) noexcept:
    watch.prev.next = watch.next
    watch.next.prev = watch.prev


@cython.final
@cython.freelist(64)
cdef class Watchers:
    """The operations watched under one key, in the order they came. Not for use outside this module."""

    def __cinit__(self):
        self.head.next = &self.head
        self.head.prev = &self.head

    def __dealloc__(self):
        # Only the garbage collector drops a list that is not empty; its operations must not come back to it
        cdef Watch* watch = self.head.next
        while watch is not &self.head:
            watch.watchers = NULL
            watch = watch.next


@cython.no_gc_clear  # it must find its purgatory to leave it; cycles through it are broken at the timer or the wheel
cdef class DelayedOperation:
    """An operation that waits; subclass it and override what is needed.

    The overridable parts:
        try_complete() -> bool: if the condition holds, `return self.force_complete()`, else return False.
        on_complete(): what completion does; runs exactly once, by condition or by expiry.
        on_expiration(): what expiry does in addition; runs after on_complete, only if the timeout won.
    The defaults never complete by condition and do nothing. What they raise goes to the caller of the purgatory; the
    operation keeps the state it has by then (`completed` is set before `on_complete` runs).

    Attributes:
        completed: whether it was completed, by condition or by expiry.
    """

    def __dealloc__(self):
        if self.watches is not NULL:
            self.purgatory.cancelled_total += 1
            leave(self)

    cpdef bint try_complete(self) except -1:
        """Complete the operation if its condition holds. Returns whether this call completed it."""
        return False

    cpdef on_complete(self):
        """What completion does."""

    cpdef on_expiration(self):
        """What expiry does, after on_complete."""

    def force_complete(self):
        """Complete it now, whatever its condition says. Returns False if it was completed before.

        It leaves the lists of its keys and its timeout is cancelled, then `on_complete` runs.
        """
        return self.finish(False)

    def cancel(self):
        """Stop waiting without completing: it leaves its keys and its timeout. Returns False if it was not watched.

        A cancelled operation may be completed with `force_complete` or watched again.
        """
        cdef Purgatory purgatory = self.purgatory
        if not leave(self):
            return False
        purgatory.cancelled_total += 1
        return True

    @property
    def watched(self):
        """Whether it waits in a purgatory."""
        return self.purgatory is not None

    def __call__(self):
        """Expire it: what the timer wheel's user does with the payload of a fired timer. Too late, it does nothing."""
        if self.finish(True):
            self.on_expiration()

    cdef bint finish(self, bint expired) except -1:
        """Complete it unless it is completed; `expired` says who won, for the counters."""
        cdef Purgatory purgatory = self.purgatory
        if self.completed:
            return False
        self.completed = True
        if leave(self):
            if expired:
                purgatory.expired_total += 1
            else:
                purgatory.completed_total += 1
        self.on_complete()
        return True


cdef bint leave(DelayedOperation operation) noexcept:
    """Take an operation out of the lists of its keys and off the wheel. Returns whether it was watched."""
    cdef Purgatory purgatory = operation.purgatory
    cdef Watch* watches = operation.watches
    cdef Watchers watchers
    cdef Py_ssize_t index
    if watches is NULL:
        return False
    # First of all it counts as unwatched: dropping a key below may run anybody's code, even code that comes back here
    operation.watches = NULL
    operation.purgatory = None
    purgatory.num_delayed -= 1
    purgatory.num_watched -= operation.watch_count
    if operation.timer is not None:
        timer_cancel(operation.timer)
        operation.timer = None
    for index in range(operation.watch_count):
        if watches[index].watchers is NULL:
            continue
        watchers = <Watchers>watches[index].watchers
        unlink(&watches[index])
        watchers.count -= 1
        if watchers.count == 0:
            forget(purgatory.watchers_of, watchers)
    PyMem_Free(watches)
    return True


cdef void forget(dict watchers_of, Watchers watchers) noexcept:
    """Drop the empty list of a key."""
    try:
        del watchers_of[watchers.key]
    except Exception:  # a key whose __eq__ or __hash__ raises now: its empty list stays until the key comes again
        pass


@cython.final
@cython.no_gc_clear  # its operations still need it while they leave; the wheel's own hook breaks the cycle
cdef class Purgatory:
    """Delayed operations by key, with their timeouts on a timer wheel.

    Args:
        wheel: the timer wheel; its user calls the payload of every timer that fires.

    Attributes:
        num_delayed: operations that wait (Kafka's NumDelayedOperations). num_watched: (operation, key) pairs (Kafka's
            PurgatorySize). delayed_total: operations that ever had to wait; always equal to
            completed_total + expired_total + cancelled_total + num_delayed.
    """

    def __cinit__(self, TimerWheel wheel not None):
        self.wheel = wheel
        self.watchers_of = {}

    def __len__(self):
        """How many operations wait."""
        return self.num_delayed

    def __bool__(self):
        """Always True: an empty purgatory is still a purgatory."""
        return True

    def try_complete_else_watch(self, DelayedOperation operation not None, keys, int64_t deadline_ms):
        """Try an operation; if its condition does not hold yet, watch it under the keys until its deadline.

        Args:
            keys: one or more hashable keys.
            deadline_ms: absolute, on the wheel's clock. In the past: it expires at the wheel's next advance.

        Returns:
            Whether the operation is completed (now, or before the call).

        Raises:
            ValueError: no keys, or the operation is watched already.
            TypeError: a key is not hashable; the operation is then not watched.
        """
        return self.watch_or_complete(operation, keys, deadline_ms)

    def check_and_complete(self, key):
        """Try every operation watched under a key, in the order they came.

        Returns:
            How many said that they completed. If one raises, those behind it are not tried.
        """
        return self.complete_watched(key)

    def cancel_for_key(self, key):
        """Cancel every operation watched under a key: they leave all their keys and are not completed.

        Returns:
            The cancelled operations, in the order they came.
        """
        cdef Watchers watchers = self.find(key)
        cdef Watch* watch
        cdef list cancelled = []
        if watchers is None:
            return cancelled
        watch = watchers.head.next
        while watch is not &watchers.head:
            if watch.operation is not NULL:
                cancelled.append(<DelayedOperation>watch.operation)
            watch = watch.next
        return [operation for operation in cancelled if operation.cancel()]

    def watched(self, key):
        """How many operations wait under a key."""
        cdef Watchers watchers = self.find(key)
        return 0 if watchers is None else watchers.count

    def watched_keys(self):
        """The keys under which operations wait, as a list."""
        return list(self.watchers_of)

    def operations(self):
        """The operations that wait, each once, as a list (to complete all of them when a shard is given up)."""
        cdef list found = []
        cdef Watchers watchers
        cdef Watch* watch
        cdef DelayedOperation operation
        for watchers in self.watchers_of.values():
            watch = watchers.head.next
            while watch is not &watchers.head:
                if watch.operation is not NULL:
                    operation = <DelayedOperation>watch.operation
                    if watch is operation.watches:  # its first key stands for all
                        found.append(operation)
                watch = watch.next
        return found

    def __repr__(self):
        return f"<Purgatory num_delayed={self.num_delayed} num_watched={self.num_watched}>"

    cdef Watchers find(self, object key):
        """The list of a key, or None."""
        cdef PyObject* found = PyDict_GetItemWithError(self.watchers_of, key)
        if found is NULL:
            return None
        return <Watchers>found

    cdef bint watch_or_complete(self, DelayedOperation operation, object keys, int64_t deadline_ms) except -1:
        """`try_complete_else_watch` at C level."""
        cdef tuple given = keys if type(keys) is tuple else tuple(keys)
        if not given:
            raise ValueError("an operation is watched under at least one key")
        if operation.watches is not NULL:
            raise ValueError(f"{operation!r} is watched already")
        if operation.completed:
            return True
        operation.try_complete()
        if operation.completed:
            return True
        if operation.watches is not NULL:
            raise ValueError(f"{operation!r} is watched already")
        watch_all(self, operation, given)
        try:
            operation.timer = self.wheel.arm(deadline_ms, operation)
        except:
            leave(operation)  # without a deadline it could wait forever
            raise
        self.delayed_total += 1
        return False

    cdef Py_ssize_t complete_watched(self, object key) except -1:
        """`check_and_complete` at C level."""
        cdef Watchers watchers = self.find(key)
        cdef Watch* watch
        cdef DelayedOperation operation
        if watchers is None:
            return 0
        if watchers.count != 1:
            return complete_many(watchers)
        watch = watchers.head.next
        while watch.operation is NULL:  # cursors of iterations that led here
            watch = watch.next
        operation = <DelayedOperation>watch.operation
        return operation.try_complete()


cdef int watch_all(Purgatory purgatory, DelayedOperation operation, tuple keys) except -1:
    """Put an operation in the list of each key; in none if a key cannot be looked up."""
    cdef Py_ssize_t count = len(keys)
    cdef Watchers watchers
    cdef Watch* watch
    operation.watches = <Watch*>PyMem_Malloc(count * sizeof(Watch))
    if operation.watches is NULL:
        raise MemoryError
    operation.watch_count = 0
    operation.purgatory = purgatory
    purgatory.num_delayed += 1
    try:
        for key in keys:
            watchers = purgatory.find(key)
            if watchers is None:
                watchers = Watchers.__new__(Watchers)
                watchers.key = key
                purgatory.watchers_of[key] = watchers
            elif watchers.head.prev.operation is <PyObject*>operation:  # a key given twice
                continue
            watch = &operation.watches[operation.watch_count]
            watch.operation = <PyObject*>operation
            watch.watchers = <PyObject*>watchers
            link_before(&watchers.head, watch)
            watchers.count += 1
            purgatory.num_watched += 1
            operation.watch_count += 1
    except BaseException:
        leave(operation)
        raise
    return 0


cdef Py_ssize_t complete_many(Watchers watchers) except -1:
    """Try the operations of a list that may change under way in any manner.

    Two cursors stand in the list itself: one behind the operation being tried, one behind the last of those that were
    there at the start. They are not on the C stack, which an embedder's coroutine switch may move.
    """
    cdef Watch* cursor = <Watch*>PyMem_Malloc(2 * sizeof(Watch))
    cdef Watch* last = cursor + 1
    cdef Watch* watch
    cdef DelayedOperation operation
    cdef Py_ssize_t count = 0
    if cursor is NULL:
        raise MemoryError
    cursor.operation = NULL
    last.operation = NULL
    link_before(watchers.head.next, cursor)
    link_before(&watchers.head, last)
    try:
        while cursor.next is not last:
            watch = cursor.next
            unlink(cursor)
            link_before(watch.next, cursor)
            if watch.operation is NULL:  # the cursor of another iteration
                continue
            operation = <DelayedOperation>watch.operation
            count += operation.try_complete()
    finally:
        unlink(cursor)
        unlink(last)
        PyMem_Free(cursor)
    return count
