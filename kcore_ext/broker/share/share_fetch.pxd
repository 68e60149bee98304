"""The fast path of ShareFetch, for other compiled modules. Its documentation is in share_fetch.pyi."""

cimport cython
from libc.stdint cimport int64_t

from kcore_ext.broker.share.changes cimport Change
from kcore_ext.broker.share.share_partition cimport SharePartitionCore
from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.runtime.outcome cimport Pending
from kcore_ext.runtime.shard cimport ShardCore


cdef class SessionCore:
    cdef public int64_t epoch
    cdef public dict partitions

    cdef int move(self) except -1


@cython.final
cdef class ShareFetchPending(Pending):
    cdef public object operation
    cdef public bint gone


@cython.final
cdef class FetchRun:
    cdef ShareFetchFastPath path
    cdef object context
    cdef object request
    cdef str group_id
    cdef str member_id
    cdef SessionCore session
    cdef object settings
    cdef ShareFetchPending pending  # the deferred response; None: the request has no acknowledgements
    cdef list acknowledged          # an Acknowledgement for each partition that has any
    cdef list keys                  # the session's partitions in the order in which they are served ...
    cdef list share_partitions      # ... and their share partitions
    cdef Py_ssize_t outstanding     # acknowledgements that are not durable yet

    cdef int arrived(self) except -1


@cython.final
cdef class Acknowledgement:
    cdef FetchRun run
    cdef tuple key
    cdef SharePartitionCore share_partition
    cdef ShardCore shard
    cdef object batches
    cdef Change change
    cdef object error               # the ErrorCode
    cdef bint waits                 # for the result of the write

    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int written(self, object code) except -1


cdef class ShareFetchFastPath:
    cdef readonly int64_t served    # requests that the fast path has served
    cdef object _api
    cdef dict _sessions
    cdef dict _groups
    cdef dict _settings
    cdef dict _ids
    cdef object _room
    cdef object _authorizer
    cdef object _read
    cdef object _group_resource
    cdef object _topic_resource
    cdef object _active
    cdef object _codes
    cdef object _failure
    cdef int64_t _round
    cdef FieldLayout _request
    cdef FieldLayout _topic
    cdef FieldLayout _partition
    cdef FieldLayout _response
    cdef FieldLayout _topic_response
    cdef FieldLayout _data
    cdef FieldLayout _range

    cdef bint collect(self, FetchRun run) except -1
    cdef Acknowledgement checked(self, FetchRun run, dict group, tuple key, object batches)
    cdef SharePartitionCore ready(self, object context, dict group, tuple key)
    cdef bint find(self, FetchRun run) except -1
    cdef object acquire(self, FetchRun run)
    cdef object respond(self, FetchRun run)
    cdef int add(self, dict topics, tuple key, int error, Acknowledgement acknowledgement, object records, list ranges) except -1
