"""The sticky assignor for unequal subscriptions (KIP-54, KIP-341)."""

from kcore_ext.assign.containers cimport Memory
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front


cdef int general(Problem p, Memory* memory, Front* front) except -1 nogil
