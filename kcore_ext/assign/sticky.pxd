"""The state of both algorithms of the sticky assignors: resolved claims and the assignment in progress."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.problem cimport Problem


cdef struct Front:
    int* owner  # partitions: owner after conflicts, -1: none; also the result
    char* doubly  # partitions claimed twice in one generation (NULL: none)
    int* older                     # partitions: claimant of an older generation, -1 (NULL: none)
    bint rack_aware
    bint given  # `owner` is set, without conflicts


cdef int settle(Problem p, Memory* memory, Front* front) except -1 nogil
