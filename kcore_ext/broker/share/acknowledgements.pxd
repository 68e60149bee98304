"""Checks and counts of acknowledgement batches, for other compiled modules.

Their documentation is in acknowledgements.pyi.
"""

from libc.stdint cimport int64_t


cdef class DeliveryCounters:
    cdef public int64_t deliveries
    cdef public int64_t redeliveries
    cdef readonly list acknowledgements

    cdef int count_ranges(self, list ranges) except -1


cpdef bint valid(batches, int version, bint renews) except -1
cdef int count(object batches, list totals) except -1       # implements `count_types`
