"""Conversion from value objects to arrays and back."""

from cpython.ref cimport PyObject

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment

# The source of a member's earlier partitions.
cdef enum Source:
    NOTHING = 0
    OWNED = 1
    USER_DATA = 2


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
    cdef readonly list missing  # subscribed topics that do not exist
    cdef GroupAssignment before  # the previous assignment

    cdef GroupAssignment empty(self)
    cdef GroupAssignment exclusive(self)
    cdef GroupAssignment shared(self, Py_ssize_t total)


cdef Lowered lower(object members, object topics, Source source, bint racks, object previous)
cdef int take_ids(Lowered low, PyObject** ids) except -1
