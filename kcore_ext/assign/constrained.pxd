# distutils: language = c++
"""Sticky with equal subscriptions (KAFKA-9987)."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front


cdef int constrained(Problem p, Front& front, vector[int]& owner, vector[int]& transferring) noexcept nogil
