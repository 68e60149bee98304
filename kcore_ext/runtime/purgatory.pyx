"""Operations that wait for a condition or a timeout, after Kafka's DelayedOperationPurgatory, for one thread.

An operation is completed exactly once: by its condition (a call of `check_and_complete` for one of its keys, or of
`force_complete`), or by expiry. `on_complete` runs once in either case; `on_expiration` runs after it, and only after
an expiry.

Differences from Kafka, because one thread needs no locks:
    * An operation is tried once before it is watched, not twice: no event can happen between the try and the watch.
    * Each (operation, key) pair is a node in an intrusive list, so a completed operation leaves the lists of all its
      keys at once. No purge is needed, and the gauges count live operations only.
    * `cancel_for_key` also removes an operation from the lists of its other keys. Kafka leaves the operation in these
      lists without a timeout, possibly forever.

Expiry goes through the timer wheel: the payload of the timer is the operation, and calling an operation expires it. So
the code that advances the wheel is `for timer in wheel.advance(now_ms): timer.payload()`.

Re-entrancy: `try_complete`, `on_complete` and `on_expiration` may watch, complete and cancel any operation, including
their own. An iteration over a key's operations continues safely, and skips those watched after it began.

Ownership: the timer keeps a watched operation alive, the lists of the keys do not. If `TimerWheel.clear` removes the
timer of an operation without other references, the operation is garbage, and leaves its lists when it is collected.
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
    """The operations watched under one key, in order of arrival. Not for use outside this module."""

    def __cinit__(self):
        self.head.next = &self.head
        self.head.prev = &self.head

    def __dealloc__(self):
        # Only the garbage collector frees a list that is not empty. Its operations must no longer refer to the list.
        cdef Watch* watch = self.head.next
        while watch is not &self.head:
            watch.watchers = NULL
            watch = watch.next


@cython.no_gc_clear  # an operation needs its purgatory to leave its lists; the timer or the wheel breaks cycles
cdef class DelayedOperation:
    """A waiting operation. Subclasses override methods as needed.

    The methods to override:
        try_complete() -> bool: if the condition holds, `return self.force_complete()`, else return False.
        on_complete(): the action at completion; runs exactly once, after the condition or the expiry.
        on_expiration(): an additional action at expiry; runs after on_complete.
    By default the condition never holds, and the other two methods do nothing. Exceptions go to the caller of the
    purgatory; the operation keeps its state (`completed` is set before `on_complete` runs).

    Attributes:
        completed: True after completion, by condition or by expiry.
        deferred: True while the code that created the operation intends to try it later. The purgatory does not try it
            meanwhile.
    """

    def __dealloc__(self):
        if self.watches is not NULL:
            self.purgatory.cancelled_total += 1
            leave(self)

    cpdef bint try_complete(self) except -1:
        """Completes the operation if its condition holds. Returns True if this call has completed the operation."""
        return False

    cpdef on_complete(self):
        """Runs at completion."""

    cpdef on_expiration(self):
        """Runs at expiry, after `on_complete`."""

    def force_complete(self):
        """Completes the operation now, without its condition. Returns False if it was completed before.

        The operation leaves the lists of its keys, its timeout is cancelled, then `on_complete` runs.
        """
        return self.finish(False)

    def cancel(self):
        """Ends the wait without completion: removes the operation from its keys and cancels its timeout. Returns False
        if the operation was not watched.

        A cancelled operation may be completed with `force_complete` or watched again.
        """
        cdef Purgatory purgatory = self.purgatory
        if not leave(self):
            return False
        purgatory.cancelled_total += 1
        return True

    @property
    def watched(self):
        """True while the operation waits in a purgatory."""
        return self.purgatory is not None

    def __call__(self):
        """Expires the operation, unless it is completed. The user of the timer wheel calls it as a timer's payload."""
        if self.finish(True):
            self.on_expiration()

    cdef bint finish(self, bint expired) except -1:
        """Completes the operation unless it is completed; `expired` selects the counter."""
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
    """Removes an operation from the lists of its keys and from the wheel. Returns True if the operation was watched."""
    cdef Purgatory purgatory = operation.purgatory
    cdef Watch* watches = operation.watches
    cdef Watchers watchers
    cdef Py_ssize_t index
    if watches is NULL:
        return False
    # Marked as unwatched first: dropping a key below may run arbitrary code, which may call this function again
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
    """Drops the empty list of a key."""
    try:
        del watchers_of[watchers.key]
    except Exception:  # the key's __eq__ or __hash__ raises now: its empty list stays until the key is used again
        pass


@cython.final
@cython.no_gc_clear  # the operations need the purgatory while they leave it; the wheel's hook breaks the cycle
cdef class Purgatory:
    """The waiting operations by key, with their timeouts on a timer wheel.

    Args:
        wheel: the timer wheel; its user calls the payload of every timer that fires.

    Attributes:
        num_delayed: the number of waiting operations (Kafka's NumDelayedOperations).
        num_watched: the number of (operation, key) pairs (Kafka's PurgatorySize).
        delayed_total: the number of operations that have ever waited. It is always equal to completed_total +
            expired_total + cancelled_total + num_delayed.
    """

    def __cinit__(self, TimerWheel wheel not None):
        self.wheel = wheel
        self.watchers_of = {}

    def __len__(self):
        """Returns the number of waiting operations."""
        return self.num_delayed

    def __bool__(self):
        """Returns True, also for an empty purgatory."""
        return True

    def try_complete_else_watch(self, DelayedOperation operation not None, keys, int64_t deadline_ms):
        """Tries an operation; if its condition does not hold yet, watches it under the keys until its deadline.

        Args:
            keys: one or more hashable keys.
            deadline_ms: absolute, on the wheel's clock. If it is in the past, the operation expires at the wheel's next
                advance.

        Returns:
            True if the operation is completed (by this call or before).

        Raises:
            ValueError: there are no keys, or the operation is already watched.
            TypeError: a key is not hashable; the operation is then not watched.
        """
        return self.watch_or_complete(operation, keys, deadline_ms)

    def check_and_complete(self, key):
        """Tries every operation that is watched under a key and not deferred, in order of arrival. If an operation
        raises, later operations are not tried.

        Returns:
            The number of operations that completed.
        """
        return self.complete_watched(key)

    def cancel_for_key(self, key):
        """Cancels every operation that is watched under a key. The operations are removed from all their keys and not
        completed.

        Returns:
            The cancelled operations, in order of arrival.
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
        """Returns the number of operations that wait under a key."""
        cdef Watchers watchers = self.find(key)
        return 0 if watchers is None else watchers.count

    def watched_keys(self):
        """Returns the keys under which operations wait, as a list."""
        return list(self.watchers_of)

    def operations(self):
        """Returns a list of the waiting operations, each once, for example to complete all of them when a shard is
        unloaded.
        """
        cdef list found = []
        cdef Watchers watchers
        cdef Watch* watch
        cdef DelayedOperation operation
        for watchers in self.watchers_of.values():
            watch = watchers.head.next
            while watch is not &watchers.head:
                if watch.operation is not NULL:
                    operation = <DelayedOperation>watch.operation
                    if watch is operation.watches:  # each operation is listed once, under its first key
                        found.append(operation)
                watch = watch.next
        return found

    def __repr__(self):
        return f"<Purgatory num_delayed={self.num_delayed} num_watched={self.num_watched}>"

    cdef Watchers find(self, object key):
        """Returns the list of a key, or None."""
        cdef PyObject* found = PyDict_GetItemWithError(self.watchers_of, key)
        if found is NULL:
            return None
        return <Watchers>found

    cdef bint watch_or_complete(self, DelayedOperation operation, object keys, int64_t deadline_ms) except -1:
        """Implements `try_complete_else_watch`, for compiled modules too."""
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
            leave(operation)  # without a deadline, the operation could wait forever
            raise
        self.delayed_total += 1
        return False

    cdef Py_ssize_t complete_watched(self, object key) except -1:
        """Implements `check_and_complete`, for compiled modules too."""
        cdef Watchers watchers = self.find(key)
        cdef Watch* watch
        cdef DelayedOperation operation
        if watchers is None:
            return 0
        if watchers.count != 1:
            return complete_many(watchers)
        watch = watchers.head.next
        while watch.operation is NULL:  # skips the cursors of outer iterations
            watch = watch.next
        operation = <DelayedOperation>watch.operation
        return 0 if operation.deferred else operation.try_complete()


cdef int watch_all(Purgatory purgatory, DelayedOperation operation, tuple keys) except -1:
    """Adds an operation to the list of each key, or to none if the look-up of a key raises."""
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
    """Tries the operations of a list that may change during the iteration.

    Two nodes of the list serve as cursors: one after the operation that is being tried, and one after the operation
    that was last at the start. The cursors are not on the C stack, because a switch of coroutines in the embedding
    program may move the stack.
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
            if not operation.deferred:
                count += operation.try_complete()
    finally:
        unlink(cursor)
        unlink(last)
        PyMem_Free(cursor)
    return count
