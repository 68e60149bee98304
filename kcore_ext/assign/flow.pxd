"""Declarations of `kcore.balanced`: the most balanced assignment, with the fewest moves and the most rack matches."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.problem cimport Problem


cdef int least_imbalance(Problem p, Memory* memory, const int* previous, bint racks, int* owner) except -1 nogil
