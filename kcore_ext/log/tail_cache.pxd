"""The tail of the log in memory, for other compiled modules."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t


@cython.final
cdef class PartitionTail:
    cdef list batches               # None in place of a released batch
    cdef Py_ssize_t head            # the index of the first batch that was not released
    cdef Py_ssize_t entries         # the number of entries in the cache's ring, also of released batches

    cdef int evict_one(self) except -1
    cdef int release_one(self) except -1
    cdef int trim(self) except -1
    cdef int release_all(self) noexcept
    cdef int64_t end_of(self, Py_ssize_t place) except -1
    cdef list find(self, int64_t offset, int64_t limit, Py_ssize_t max_bytes, bint at_least_one)


cdef struct TailEntry:
    PyObject* tail
    Py_ssize_t size


@cython.final
cdef class TailCache:
    cdef Py_ssize_t max_bytes
    cdef readonly Py_ssize_t size_bytes
    cdef TailEntry* order                # a ring of tails and batch sizes, oldest first
    cdef Py_ssize_t room            # of the ring, a power of two
    cdef Py_ssize_t first
    cdef Py_ssize_t count

    cdef int take(self, PartitionTail tail, list batches) except -1
    cdef int remember(self, PartitionTail tail, Py_ssize_t size) except -1
