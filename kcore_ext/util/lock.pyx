"""Locks that stay usable when memory runs out.

CPython calls `__exit__` of `threading.Lock` with a new tuple of three arguments. If the allocation of that tuple fails,
the lock stays locked, and the next `with` waits forever.
"""

import threading

cimport cython


@cython.internal
cdef class _WithStatement:
    """The methods `__enter__` and `__exit__` of a lock. Neither allocates memory after the lock is acquired."""

    cdef readonly object acquire
    cdef readonly object release

    def __enter__(self):
        return self.acquire()

    def __exit__(self, error_type, error, traceback):
        self.release()


@cython.final
cdef class Lock(_WithStatement):
    """Documented in lock.pyi."""

    cdef readonly object locked

    def __cinit__(self):
        lock = threading.Lock()
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked


@cython.final
cdef class RLock(_WithStatement):
    """Documented in lock.pyi."""

    cdef readonly object is_owned

    def __cinit__(self):
        lock = threading.RLock()
        self.acquire, self.release, self.is_owned = lock.acquire, lock.release, lock._is_owned
