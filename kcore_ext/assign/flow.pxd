# distutils: language = c++
"""The least unbalanced assignment with the fewest moves and the most rack matches."""

from libcpp.vector cimport vector

from kcore_ext.assign.problem cimport Problem


cdef int least_imbalance(Problem p, vector[int]& previous, bint racks, vector[int]& owner) noexcept nogil
