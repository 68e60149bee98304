"""The offsets of one commit, for other compiled modules."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.codec.fields cimport FieldLayout


cdef struct Entry:
    PyObject* offset            # an OffsetAndMetadata, owned
    PyObject* index             # the partition as the request's own integer, owned: a key of the store's dictionary
    PyObject* topic             # the topic's name, owned
    Py_ssize_t value_bytes      # size of the record's value
    int32_t partition


cdef enum:                      # fields of a request's partition, by their indices in its layout
    PARTITION_INDEX = 0
    COMMITTED_OFFSET = 1
    COMMITTED_LEADER_EPOCH = 2
    COMMITTED_METADATA = 3


cdef FieldLayout layout_of(object requested)


@cython.final
cdef class CommitTemplate:      # the results that commits of the same partitions share, if none of these is refused
    cdef tuple topics           # the topic info of each topic of the request, ...
    cdef tuple names            # ... its name ...
    cdef tuple ids              # ... and its id
    cdef bytes key              # the topics and partitions in encoded form
    cdef object response        # the response that accepts all partitions; never changed


@cython.final
cdef class CommitPlan:
    cdef object _request        # an object or an EncodedRequest
    cdef readonly bint empty
    cdef CommitTemplate template   # None: the topics are in `listed`
    cdef list listed            # made from the template on first access

cdef CommitPlan plan_of(object request, CommitTemplate template)


@cython.final
@cython.no_gc
cdef class OffsetBlock:
    cdef readonly str group_id
    cdef readonly Py_ssize_t size_bytes
    cdef type record_type
    cdef int64_t now_ms
    cdef int64_t expire_ms
    cdef Py_ssize_t limit
    cdef Entry* entries
    cdef Entry first            # room for the entry of a commit of one partition
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef int version

    cdef int reserve(self, Py_ssize_t more) except -1
    # Adds the offset of one partition. `size` is the size of its record without the value.
    cdef int add_offset(self, str topic, bytes topic_id, Py_ssize_t size, object index, int32_t partition,
                        int64_t committed_offset, int32_t leader_epoch, str metadata) except -1
    cdef int take(self, str topic, bytes topic_id, Py_ssize_t size, object requested, object index, FieldLayout layout,
                  str metadata) except -1
    cdef object record(self, Py_ssize_t place)
    # Adds all partitions of a request's topic. Returns False if metadata is too long: the block is then unusable.
    cdef bint take_all(self, str topic, bytes topic_id, object partitions) except -1
    cdef bint take_encoded(
        self, str topic, bytes topic_id, const unsigned char** partitions, Py_ssize_t count
    ) except -1                 # the same for partitions of an `EncodedCommit`
    cdef bint write(self, BatchBuilder batch, int64_t timestamp_ms) except -1
    # Stores the offsets in the dictionary of a group, topic -> partition -> OffsetAndMetadata. Returns the number of new
    # partitions.
    cdef Py_ssize_t put(self, dict topics, int64_t first_offset) except -1

cdef OffsetBlock block_of(str group_id, int64_t now_ms, int64_t expire_ms, Py_ssize_t limit, type record_type)
