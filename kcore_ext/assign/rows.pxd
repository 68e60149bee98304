"""Assignments as arrays, and the comparison of rows of two assignments."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.model cimport Topics


cdef class AssignedRows:
    cdef readonly Topics topics
    cdef readonly bint exclusive      # a partition has one owner (all but share groups)
    cdef list ids                     # ascending
    cdef dict positions
    cdef tuple names                  # topics assigned here
    cdef bint identity                # all topics, numbered as in `topics`
    cdef int topic_count              # len(names)
    cdef int partitions               # of all topics assigned here
    cdef Memory memory                # of the arrays below
    cdef int* first                   # len(names) + 1
    cdef int* owner  # exclusive: a partition's member, -1: none
    cdef bint rows_ready
    cdef int* row_first               # members + 1
    cdef int* rows

    cdef int need_rows(self) except -1
    cdef int topic_at(self, int partition, int from_topic) noexcept
    cdef int position(self, str member_id) except -2


cdef int* translation(AssignedRows source, AssignedRows target, Memory* memory) except NULL
cdef bint same_row(AssignedRows a, int m, AssignedRows b, int q, const int* table) noexcept
