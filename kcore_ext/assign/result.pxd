"""Assignments as value objects that store arrays. They create a member's Python objects at the first access."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.rows cimport AssignedRows

cdef enum:
    # Every group keeps its last two assignments. Most groups are small.
    FIRST_RESULT_BLOCK = 256


cdef class MemberAssignment


cdef class GroupAssignment(AssignedRows):
    cdef int* given_at  # each member's position in the caller's list (NULL: not known)
    cdef int hint                     # topic of the row built last
    cdef int* withheld_rows
    cdef int withheld_count
    cdef list built  # the members' rows, with None for a row that is not built; None: no row is built
    cdef tuple all_built              # all rows; None: not all are built
    cdef GroupAssignment before  # the previous assignment, whose equal rows are reused
    cdef int* table                   # see `translation`, from `before` to this (NULL: not made yet)

    cdef MemberAssignment made_row(self, int member)
    cdef MemberAssignment row(self, int member)
    cdef MemberAssignment run(self, int topic, const int* rows, int count)
    cdef tuple all_rows(self)
    cdef MemberAssignment shared_row(self, int m, int q)
    cdef int match_rows(self, int* was, Memory* memory) except -1
    cdef bint translated(self) except -1


cdef class MemberAssignment(dict):
    pass
