# distutils: language = c++
"""From value objects to arrays and back."""

from cpython.ref cimport PyObject
from libcpp.vector cimport vector

from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment

# Where a member's earlier partitions are read from.
cdef enum Source:
    NOTHING = 0
    OWNED = 1
    USER_DATA = 2


cdef class Lowered:
    cdef readonly Problem problem
    cdef readonly Topics topics
    cdef list ids
    cdef list given                   # keeps the members alive
    cdef vector[PyObject*] members    # in id order, borrowed from `given`
    cdef vector[int] where            # position in id order -> position in `given`
    cdef vector[int] local
    cdef bint identity
    cdef readonly list missing        # subscribed topics that are not known

    cdef GroupAssignment exclusive(self, vector[int]& owner)
    cdef GroupAssignment shared(self, vector[int]& row_first, vector[int]& rows)


cdef class Rows:
    cdef Lowered low
    cdef dict where                   # topic key or alias -> local number
    cdef GroupAssignment parent
    cdef vector[int] table            # parent's topic -> (shift of its partition numbers, partitions now)

    cdef int add(self, object owned) except -1
    cdef int add_row(self, GroupAssignment parent, int member) except -1
    cdef int translate(self, GroupAssignment parent) except -1
    cdef int add_user_data(self, bytes data) except -2


cdef Lowered lower(object members, object topics, Source source, bint racks, object previous)
cdef int take_ids(Lowered low, vector[PyObject*]& ids, vector[int]& where) except -1
