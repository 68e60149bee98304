"""The sticky assignor for equal subscriptions (KAFKA-9987)."""

from kcore_ext.assign.containers cimport IntVec, Memory
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front


cdef int constrained(Problem p, Memory* memory, Front* front, IntVec* transferring) except -1 nogil
