"""Assignments as value objects over arrays: rows become Python objects when somebody looks."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.model cimport Topics


cdef class MemberAssignment


cdef class GroupAssignment:
    cdef readonly Topics topics
    cdef readonly bint exclusive      # a partition has one owner (all but share groups)
    cdef list ids                     # ascending
    cdef dict positions
    cdef tuple names                  # topics assigned here
    cdef bint identity                # all topics, numbered as in `topics`
    cdef int topic_count              # len(names)
    cdef int partitions               # of all topics assigned here
    cdef Memory memory                # of the arrays below
    cdef int* given_at                # where in the caller's list each member stood (NULL: not known)
    cdef int* first                   # len(names) + 1
    cdef int* owner                   # exclusive: a partition's member, -1: nobody
    cdef bint rows_ready
    cdef int* row_first               # members + 1
    cdef int* rows
    cdef int hint                     # topic of the row built last
    cdef int* withheld_rows
    cdef int withheld_count
    cdef list built                   # the members' rows, None: not built yet; None: not one is
    cdef tuple all_built              # all rows; None: not all are built
    cdef GroupAssignment before       # whose rows are shared where they are the same
    cdef int* table                   # see _translation, from `before` to this (NULL: not made yet)

    cdef int need_rows(self) except -1
    cdef int topic_at(self, int partition, int from_topic) noexcept
    cdef MemberAssignment made_row(self, int member)
    cdef MemberAssignment row(self, int member)
    cdef MemberAssignment run(self, int topic, const int* rows, int count)
    cdef tuple all_rows(self)
    cdef MemberAssignment shared_row(self, int m, int q)
    cdef int meet(self, int* was, Memory* memory) except -1
    cdef bint translated(self) except -1
    cdef int position(self, str member_id) except -2


cdef class MemberAssignment(dict):
    pass
