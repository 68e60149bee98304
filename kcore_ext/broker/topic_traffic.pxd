"""The counters of a topic's traffic, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class TopicTraffic:
    cdef readonly int64_t received_records  # documented in the .pyi file, as are the others
    cdef readonly int64_t received_bytes
    cdef readonly int64_t sent_records
    cdef readonly int64_t sent_bytes

    cdef void sent(self, const unsigned char* records, Py_ssize_t size) noexcept
    cpdef int add(self, TopicTraffic other) except -1
