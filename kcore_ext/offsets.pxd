cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class OffsetAndMetadata:
    cdef readonly int64_t record_offset         # where its record stands in the shard's log: later records win
    cdef readonly int64_t committed_offset
    cdef readonly int64_t commit_timestamp_ms
    cdef readonly int64_t expire_timestamp_ms   # -1: ages with its group (KIP-211)
    cdef readonly str metadata
    cdef readonly int32_t leader_epoch          # -1: unknown
    cdef char[16] topic_uuid                    # zeroes: unknown
