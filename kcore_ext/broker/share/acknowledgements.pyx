"""Checks and counts of acknowledgement batches, which do not depend on the state of the share partition (KIP-932).

A request may have many thousand batches of one offset. `tests/reference/share_acknowledgements.py` is the reference.
"""

from libc.stdint cimport int64_t

cdef enum:
    FIRST_VERSION_WITH_RENEW = 2
    REJECT = 3
    RENEW = 4


cpdef bint valid(batches, int version, bint renews) except -1:
    cdef int64_t first, last, previous = -1
    cdef int highest = RENEW if version >= FIRST_VERSION_WITH_RENEW else REJECT
    cdef int64_t kind
    cdef Py_ssize_t count
    for batch in batches:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        count = len(kinds)
        # The difference of two 64-bit offsets may overflow. As an unsigned number it is correct.
        if first > last or first < previous or not count:
            return False
        if count > 1 and <unsigned long long>(count - 1) != <unsigned long long>last - <unsigned long long>first:
            return False
        for kind in kinds:
            if kind < 0 or kind > highest or (kind == RENEW and not renews):
                return False
        previous = last
    return True


cdef class DeliveryCounters:
    """Documented in acknowledgements.pyi."""

    def __init__(self):
        self.acknowledgements = [0] * (RENEW + 1)

    def delivered(self, list ranges not None):
        self.count_ranges(ranges)

    cdef int count_ranges(self, list ranges) except -1:
        cdef tuple one
        cdef int64_t size
        for one in ranges:
            size = <int64_t>one[1] - <int64_t>one[0] + 1
            self.deliveries += size
            if <int64_t>one[2] > 1:
                self.redeliveries += size
        return 0


def count_types(batches, list totals not None):
    count(batches, totals)


cdef int count(object batches, list totals) except -1:
    cdef int64_t first, last
    cdef Py_ssize_t size
    for batch in batches:
        kinds = batch.acknowledge_types
        size = len(kinds)
        if size == 1:
            first, last = batch.first_offset, batch.last_offset
            totals[<Py_ssize_t>kinds[0]] += 1 + (<unsigned long long>last - <unsigned long long>first)
        else:
            for kind in kinds:
                totals[<Py_ssize_t>kind] += 1
    return 0
