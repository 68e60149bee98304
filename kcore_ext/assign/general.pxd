# distutils: language = c++
"""Sticky with unequal subscriptions (KIP-54, KIP-341)."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front


cdef int general(Problem p, Front& front, vector[int]& owner) noexcept nogil
