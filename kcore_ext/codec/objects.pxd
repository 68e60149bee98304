"""The memory of message objects, for other compiled modules."""

from cpython.object cimport PyObject, PyTypeObject

cdef PyObject* new_instance(PyTypeObject* cls) noexcept
cdef int adopt(PyTypeObject* cls, PyTypeObject* base) except -1
