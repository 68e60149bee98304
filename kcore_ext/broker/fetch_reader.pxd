"""Declarations of the fetch reader for other compiled modules."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout


cdef class FetchItem:
    cdef public object topic                # the topic's name; None for an unknown id
    cdef public bytes topic_id
    cdef public int64_t index
    cdef public int64_t current_leader_epoch
    cdef public int64_t fetch_offset
    cdef public int64_t last_fetched_epoch
    cdef public int64_t partition_max_bytes
    cdef public object partition
    cdef public object error

    cpdef set_request(self, requested)


@cython.final
cdef class SessionPartition(FetchItem):
    cdef public int64_t high_watermark
    cdef public int64_t local_log_start_offset
    cdef readonly tuple name

    cpdef bint update(self, data) except -1


@cython.final
cdef class FetchParams:
    cdef readonly int version
    cdef readonly bint read_committed
    cdef public int64_t max_bytes
    cdef readonly int64_t min_bytes
    cdef readonly int64_t max_wait_ms
    cdef readonly int node_id


@cython.final
cdef class Reading:
    cdef readonly list results                 # the PartitionData of each item; None: no changes for the session
    cdef readonly int64_t size_bytes
    cdef readonly bint failed
    cdef readonly bint dirty                # a partition has appends that are not durable
    cdef Py_ssize_t reads                   # of logs
    cdef Py_ssize_t batches                 # in the results
    cdef Py_ssize_t aborted                 # transactions in the results
    cdef Py_ssize_t failures                # reads with an error or a diverging epoch
    cdef Py_ssize_t news                    # results of a session that have no records

    cdef bint is_long(self) noexcept


@cython.final
cdef class FetchReader:
    cdef object _read
    cdef object _refused
    cdef object _none
    cdef object _unknown_id
    cdef object _unknown_partition
    cdef object _denied
    cdef FieldLayout _data
    cdef FieldLayout _topic

    cdef object _read_generic(self, FetchItem item, FetchParams params, int64_t budget, bint first, bint sparse,
                            Reading reading)
