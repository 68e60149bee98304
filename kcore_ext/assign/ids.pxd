# distutils: language = c++
"""Member ids in Kafka's order (String.compareTo)."""

from cpython.ref cimport PyObject
from libcpp.vector cimport vector


cdef int order_of_ids(vector[PyObject*]& ids, vector[int]& out) except -1
cdef bint same_text(PyObject* a, PyObject* b) noexcept
cdef int compare_ids(PyObject* a, PyObject* b) except -2
