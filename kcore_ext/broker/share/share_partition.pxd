"""A share partition's work for every fetch and acknowledgement, for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.broker.partition cimport PartitionCore
from kcore_ext.broker.share.acknowledgements cimport DeliveryCounters
from kcore_ext.broker.share.acquire cimport Acquired
from kcore_ext.broker.share.changes cimport ShareRuns
from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.purgatory cimport Purgatory
from kcore_ext.runtime.timer_wheel cimport TimerWheel
from kcore_ext.share.state_update cimport StateWriter


@cython.final
cdef class Delivery:
    cdef readonly bytes records
    cdef readonly list ranges
    cdef readonly int64_t acquired


cdef class SharePartitionCore(ShareRuns):
    cdef public str group_id
    cdef public PartitionCore partition
    cdef public object state
    cdef public object error
    cdef public StateWriter writer
    cdef public object _services
    cdef public int64_t _state_epoch
    cdef int64_t looked_at              # the number of the last request that the fast path checked
    cdef readonly int64_t examined_bytes  # the work of the last fetch, in bytes that it has read
    cdef readonly TimerWheel _wheel
    cdef readonly Now _now
    cdef readonly DeliveryCounters _counters
    cdef Purgatory _purgatory

    cdef int64_t end_of(self, object settings) except -1
    cdef bint has(self, object settings) except -1
    cdef Delivery deliver(
        self, str member, int64_t batch_size, bint record_limit, int64_t max_records, int64_t max_bytes, object settings
    )
    cdef list first_batches(self, int64_t offset, int64_t end, int64_t max_records, int64_t max_bytes)
