"""What the two sticky paths share: claims settled, and the state they work on."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.problem cimport Problem


cdef struct Front:
    int* owner                     # partitions: settled owner, -1: nobody; the result is written here too
    char* doubly                   # partitions claimed twice in one generation (NULL: none)
    int* older                     # partitions: claimant of an older generation, -1 (NULL: none)
    bint rack_aware
    bint given                     # `owner` is set and settled already


cdef int settle(Problem p, Memory* memory, Front* front) except -1 nogil
