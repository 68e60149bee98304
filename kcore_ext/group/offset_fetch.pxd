"""OffsetFetch of one group: the tables of a shard, the cached responses, and the state of one request."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from kcore_ext.codec.fields cimport FieldLayout


@cython.final
cdef class OffsetTables:
    cdef object groups      # group id -> group; an instance of a subclass of dict
    cdef dict offsets       # group id -> topic -> partition -> OffsetAndMetadata
    cdef dict pending       # group id -> topic -> partition -> producers; only of open transactions


@cython.final
cdef class Remembered:      # a cached response, and the objects it was built from
    cdef bint old           # as in `Question`
    cdef bint by_id
    cdef bint everything
    cdef list topics        # of the response
    cdef list entries       # for every partition in order: its OffsetAndMetadata, None without one
    cdef object response


cdef struct Question:       # one group's part of a request; objects are borrowed from the request and the shard
    bint old                # up to version 7: one group, in the request itself
    bint by_id              # topics are named by id
    bint everything         # all topics are requested
    PyObject* group_id
    PyObject* topics
    PyObject* offsets       # topic -> partition -> OffsetAndMetadata; NULL without any
    PyObject* pending       # topic -> partition -> producers; NULL without any, or without `require_stable`


cdef struct Making:         # the inputs of a response under construction
    PyObject* entries
    Py_ssize_t characters   # of names and metadata
    uint64_t print          # fingerprint of all inputs


cdef class OffsetFetchFastPath:
    cdef readonly int64_t served        # requests that the fast path has served, ...
    cdef readonly int64_t again         # ... and those of them with a cached response
    cdef object _api
    cdef object _by_id      # topic id: topic
    cdef object _by_name
    cdef tuple _permissions # the authorizer's `allowed` and its arguments; None: everything is allowed
    cdef dict _shards       # partition: shard
    cdef int _partitions
    cdef dict _remembered   # group id: Remembered
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

    cdef bint _read(self, object request, Question* question, PyObject** member_id, PyObject** member_epoch,
                    bint* stable) except -1
    cdef bint _permitted(self, object context, Question* question) except -1
    cdef bint _is_same(self, Remembered known, Question* question) except -1
    cdef bint _is_same_topic(self, Remembered known, Question* question, Py_ssize_t i, PyObject* name,
                             PyObject* topic_id, PyObject* indexes, Py_ssize_t* place) except -1
    cdef bint _is_still_everything(self, Remembered known, Question* question) except -1
    cdef PyObject* _responses_of(self, Remembered known, Question* question, Py_ssize_t i, PyObject* name,
                               PyObject* topic_id) except? NULL
    cdef object _built(self, Question* question)
    cdef bint _add_requested(self, Question* question, list topics, Making* making) except -1
    cdef list _asked_partitions(self, Question* question, PyObject* indexes, str name, bytes topic_id, Making* making)
    cdef int _add_everything(self, Question* question, list topics, Making* making) except -1
    cdef object _topic_of(self, Question* question, object name, object topic_id, list answers, Making* making)
    cdef object _response_of(self, Question* question, list topics)
    cdef int _remember(self, Question* question, list topics, list entries, object response, uint64_t print) except -1
