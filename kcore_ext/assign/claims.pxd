"""Claims: the partitions that members report as owned, read from Python objects and user data."""

from cpython.ref cimport PyObject

from kcore_ext.assign.containers cimport Index, Memory
from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment

cdef enum:
    SEEN_TOPICS = 256
    # The shift of partition numbers of a topic that this problem does not have.
    GONE = -1073741824


cdef class ClaimReader:
    cdef Problem problem
    cdef Topics topics
    cdef Memory memory
    cdef int* local  # position in `topics` -> local number, -1: absent
    cdef GroupAssignment parent
    cdef int* table                   # parent's topic -> (shift of its partition numbers, current partition count)
    cdef int table_room               # in topics
    cdef PyObject* seen[SEEN_TOPICS]  # keys of `topics` by their address, and their local numbers
    cdef int seen_topic[SEEN_TOPICS]
    cdef PyObject* at                 # the topic whose partitions are read, borrowed
    cdef Index name_hashes  # hash of a topic's name -> position in `topics`
    cdef bint names_hashed

    cdef int add(self, object owned, str member_id) except -1
    cdef int add_all(self, dict owned) except -1
    cdef int topic(self, PyObject* name) except -2
    cdef int topic_of_utf8(self, const unsigned char* name, Py_ssize_t size) except -2
    cdef int add_numbers(self, int t, object numbers) except -1
    cdef int add_row(self, GroupAssignment parent, int member) except -1
    cdef int translate(self, GroupAssignment parent) except -1
    cdef int add_user_data(self, bytes data) except -2


cdef ClaimReader claim_reader(Problem problem, Topics topics, const int* local)


cdef inline int be32(const unsigned char* at) noexcept nogil:
    return <int>((<unsigned>at[0] << 24) | (<unsigned>at[1] << 16) | (<unsigned>at[2] << 8) | <unsigned>at[3])
