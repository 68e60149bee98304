# distutils: language = c++
"""Assignments as value objects over arrays: rows become Python objects when somebody looks."""

from libcpp.vector cimport vector

from kcore_ext.assign.model cimport Topics


cdef class MemberAssignment


cdef class GroupAssignment:
    cdef readonly Topics topics
    cdef readonly bint exclusive      # a partition has one owner (all but share groups)
    cdef list ids                     # ascending
    cdef dict positions
    cdef vector[int] given_at         # where in the caller's list each member stood (empty: not known)
    cdef bint identity                # all topics, numbered as in `topics`
    cdef vector[int] local            # positions in `topics` of the topics assigned here
    cdef vector[int] first            # len(local) + 1
    cdef vector[int] owner            # exclusive: a partition's member, -1: nobody
    cdef bint rows_ready
    cdef vector[int] row_first        # members + 1
    cdef vector[int] rows
    cdef vector[int] withheld_rows

    cdef int need_rows(self) except -1
    cdef dict row(self, int member)
    cdef int position(self, str member_id) except -2
    cdef MemberAssignment member_at(self, int member)


cdef class MemberAssignment:
    cdef GroupAssignment parent       # with `member`: a row that is not built yet
    cdef int member
    cdef dict values_by_topic

    cdef dict built(self)
