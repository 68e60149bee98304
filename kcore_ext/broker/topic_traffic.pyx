"""The counters of a topic's traffic, which cost a few additions for each batch."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.layout cimport COUNT_AT, HEADER_BYTES, LENGTH_AT, LENGTH_OVERHEAD
from kcore_ext.util.byte_order cimport read_int32


@cython.final
cdef class TopicTraffic:
    """Documented in topic_traffic.pyi."""

    cdef void sent(self, const unsigned char* records, Py_ssize_t size) noexcept:
        cdef const unsigned char* at = records
        cdef const unsigned char* end = records + size
        cdef int32_t length
        self.sent_bytes += size
        while end - at >= HEADER_BYTES:
            length = read_int32(at + LENGTH_AT)
            if length < HEADER_BYTES - LENGTH_OVERHEAD or length > end - at - LENGTH_OVERHEAD:
                return
            self.sent_records += read_int32(at + COUNT_AT)
            at += length + LENGTH_OVERHEAD

    cpdef int add(self, TopicTraffic other) except -1:
        self.received_records += other.received_records
        self.received_bytes += other.received_bytes
        self.sent_records += other.sent_records
        self.sent_bytes += other.sent_bytes
        return 0
