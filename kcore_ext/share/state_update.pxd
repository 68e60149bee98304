"""Updates of share partitions in this node's share coordinator, for other compiled modules."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kcore_ext.runtime.outcome cimport Pending
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.share.states cimport ShareState


@cython.final
cdef class StateUpdate:
    cdef ShareState state           # the ShareState that the record changes
    cdef bytes key
    cdef bytes value
    cdef tuple batches                  # the state batches of `state` after the record
    cdef int64_t start_offset
    cdef int32_t complete_count
    cdef readonly Py_ssize_t size_bytes

    cdef int apply(self) except -1


@cython.final
cdef class StateWriter:
    cdef object _api
    cdef object _coordinator
    cdef object _find_topic
    cdef object _combine
    cdef str _group_id
    cdef str _name                      # the share key, which determines the shard
    cdef bytes _record_key
    cdef bytes _topic_id
    cdef int32_t _partition
    cdef ShareState _state          # the ShareState that `ready` has found

    cdef ShardCore ready(self, int64_t state_epoch, int64_t leader_epoch)
    cdef Pending append(self, ShardCore shard, int64_t start_offset, int64_t complete_count, list batches)
    cdef StateUpdate update_of(self, int64_t start_offset, int64_t complete_count, list batches)
