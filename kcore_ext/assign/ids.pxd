"""Member ids in Kafka's order (String.compareTo)."""

from cpython.ref cimport PyObject


cdef int order_of_ids(PyObject** ids, int n, int* out) except -1
cdef bint same_text(PyObject* a, PyObject* b) noexcept
cdef int compare_ids(PyObject* a, PyObject* b) except -2
