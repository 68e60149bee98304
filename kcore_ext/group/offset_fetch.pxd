"""OffsetFetch of one group: the tables of a shard, the cached responses, and the state of one request."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.runtime.clock cimport Now


cdef class OffsetCounters:
    cdef public int64_t commits
    cdef public int64_t offset_count


@cython.final
cdef class OffsetTables:
    cdef object groups      # group id -> group; an instance of a subclass of dict
    cdef dict offsets       # group id -> topic -> partition -> OffsetAndMetadata
    cdef dict pending       # group id -> topic -> partition -> producers; only of open transactions
    cdef OffsetCounters counters
    cdef Now now            # the time of the current round
    cdef Py_ssize_t metadata_max_bytes  # largest metadata of an offset


@cython.final
cdef class CachedResponse:  # a cached response, and the objects it was built from
    cdef bint old           # as in `GroupQuery`
    cdef bint by_id
    cdef bint all_topics
    cdef list topics        # of the response
    cdef list entries       # for every partition in order: its OffsetAndMetadata, None without one
    cdef object response


cdef struct GroupQuery:     # one group's part of a request; objects are borrowed from the request and the shard
    bint old                # up to version 7: one group, in the request itself
    bint by_id              # topics are named by id
    bint all_topics         # all topics are requested
    PyObject* group_id
    PyObject* topics
    PyObject* offsets       # topic -> partition -> OffsetAndMetadata; NULL without any
    PyObject* pending       # topic -> partition -> producers; NULL without any, or without `require_stable`


cdef struct Construction:   # the inputs of a response under construction
    PyObject* entries
    Py_ssize_t characters   # of names and metadata
    uint64_t print          # fingerprint of all inputs


cdef class OffsetFetchFastPath:
    cdef readonly int64_t served        # requests that the fast path has served, ...
    cdef readonly int64_t reused        # ... and those of them with a cached response
    cdef object _api
    cdef object _topics
    cdef tuple _permissions # the authorizer's `allowed` and its arguments; None: every request is allowed
    cdef list _shards       # for each partition its shard, or None
    cdef dict _cached   # group id: CachedResponse
    cdef uint64_t[4096] _seen   # by the group's hash: the fingerprint of the last response
    cdef FieldLayout _request
    cdef FieldLayout _request_group
    cdef FieldLayout _request_topic
    cdef FieldLayout _request_old_topic
    cdef FieldLayout _response
    cdef FieldLayout _group
    cdef FieldLayout _topic
    cdef FieldLayout _old_topic
    cdef FieldLayout _partition
    cdef FieldLayout _old_partition

    cdef bint _read(self, object request, GroupQuery* query, PyObject** member_id, PyObject** member_epoch,
                    bint* stable) except -1
    cdef bint _permitted(self, object context, GroupQuery* query) except -1
    cdef bint _is_same(self, CachedResponse known, GroupQuery* query) except -1
    cdef bint _is_same_topic(self, CachedResponse known, GroupQuery* query, Py_ssize_t i, PyObject* name,
                             PyObject* topic_id, PyObject* indexes, Py_ssize_t* place) except -1
    cdef bint _are_all_offsets_same(self, CachedResponse known, GroupQuery* query) except -1
    cdef PyObject* _responses_of(self, CachedResponse known, GroupQuery* query, Py_ssize_t i, PyObject* name,
                               PyObject* topic_id) except? NULL
    cdef object _build(self, GroupQuery* query)
    cdef bint _add_requested(self, GroupQuery* query, list topics, Construction* construction) except -1
    cdef list _requested_partitions(self, GroupQuery* query, PyObject* indexes, str name, bytes topic_id,
                                    Construction* construction)
    cdef int _add_all_topics(self, GroupQuery* query, list topics, Construction* construction) except -1
    cdef object _topic_of(self, GroupQuery* query, object name, object topic_id, list responses,
                          Construction* construction)
    cdef object _response_of(self, GroupQuery* query, list topics)
    cdef int _cache(self, GroupQuery* query, list topics, list entries, object response, uint64_t print) except -1
