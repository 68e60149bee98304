cimport cython
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t


cdef struct Entry:
    PyObject* offset            # an OffsetAndMetadata, owned
    PyObject* index             # the partition as the request's own integer, owned: a key of the store's dictionary
    int32_t partition
    int32_t topic               # its place in `topics`


cdef struct Layout:             # where the fields of a request's partition lie, if they are slots of a declared class
    PyTypeObject* type
    Py_ssize_t partition_index
    Py_ssize_t committed_offset
    Py_ssize_t committed_leader_epoch
    Py_ssize_t committed_metadata


@cython.final
cdef class CommitPlan:
    cdef readonly object request
    cdef readonly list topics
    cdef readonly bint empty


@cython.final
@cython.no_gc
cdef class OffsetBlock:
    cdef readonly str group_id
    cdef readonly Py_ssize_t size_bytes
    cdef type record_type
    cdef list topics            # the names of topics, in the order in which they were added
    cdef int64_t now_ms
    cdef int64_t expire_ms
    cdef Py_ssize_t limit
    cdef Entry* entries
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef int version

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int take(self, object asked, object index, Layout* layout, bytes topic_id, str metadata) except -1
    cdef object record(self, Py_ssize_t place)
