"""From value objects to arrays and back."""

from cpython.ref cimport PyObject

from kcore_ext.assign.containers cimport Index, Memory
from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment

# Where a member's earlier partitions are read from.
cdef enum Source:
    NOTHING = 0
    OWNED = 1
    USER_DATA = 2


cdef enum:
    SEEN_TOPICS = 256


cdef class Lowered:
    cdef readonly Problem problem
    cdef readonly Topics topics
    cdef list ids
    cdef list given                   # keeps the members alive
    cdef Memory memory
    cdef PyObject** members           # in id order, borrowed from `given`
    cdef int* where                   # position in id order -> position in `given`
    cdef int* local                   # the problem's topics -> positions in `topics`
    cdef bint identity
    cdef readonly list missing        # subscribed topics that are not known
    cdef GroupAssignment before       # the assignment that this one follows

    cdef GroupAssignment empty(self)
    cdef GroupAssignment exclusive(self)
    cdef GroupAssignment shared(self, Py_ssize_t total)


cdef class Rows:
    cdef Lowered low
    cdef int* local                   # position in `topics` -> local number, -1: not here
    cdef GroupAssignment parent
    cdef int* table                   # parent's topic -> (shift of its partition numbers, partitions now)
    cdef int table_room               # in topics
    cdef PyObject* seen[SEEN_TOPICS]  # keys of `topics` by their address, and their local numbers
    cdef int seen_topic[SEEN_TOPICS]
    cdef PyObject* at                 # the topic whose partitions are read, borrowed
    cdef Index spellings              # hash of a topic's name -> position in `topics`
    cdef bint spellings_read

    cdef int add(self, object owned, str member_id) except -1
    cdef int add_all(self, dict owned) except -1
    cdef int topic(self, PyObject* name) except -2
    cdef int spelled(self, const unsigned char* name, Py_ssize_t size) except -2
    cdef int add_numbers(self, int t, object numbers) except -1
    cdef int add_row(self, GroupAssignment parent, int member) except -1
    cdef int translate(self, GroupAssignment parent) except -1
    cdef int add_user_data(self, bytes data) except -2


cdef Lowered lower(object members, object topics, Source source, bint racks, object previous)
cdef int take_ids(Lowered low, PyObject** ids) except -1
