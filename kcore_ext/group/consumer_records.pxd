"""Compiled records of consumer groups, which refer to the group's own objects instead of copies."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kcore_ext.util.buffer cimport Buffer


@cython.final
cdef class ConsumerRecord:
    cdef readonly int record_type
    cdef readonly str group_id
    cdef readonly str member_id     # None for a record of the group
    cdef readonly object content       # a member's metadata, target or current assignment; None for an epoch
    cdef readonly int32_t epoch
    cdef readonly int64_t number    # the second value of an epoch record

    cdef object as_record(self)


@cython.final
cdef class ConsumerRecords:
    cdef readonly list records
    cdef readonly Py_ssize_t size_bytes
    cdef Buffer buffer              # keys and values, one after the other
    cdef Py_ssize_t* ends           # end of each key and each value in `buffer`

    cdef int key(self, ConsumerRecord record) except -1
    cdef int value(self, ConsumerRecord record) except -1
    cdef int number(self, int64_t value, int size) except -1
    cdef int count(self, Py_ssize_t value) except -1
    cdef int text(self, object content) except -1
    cdef int numbers(self, object listed) except -1
    cdef int member(self, object metadata) except -1
    cdef int target(self, dict target) except -1
    cdef int owned(self, dict owned) except -1
    cdef int owned_partitions(self, dict partitions) except -1
    cdef int repeat(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int topic_id(self, object topic_id) except -1
