"""Messages read and made by compiled code that knows their class: a field is a slot at an offset."""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from kcore_ext.codec_plan cimport Schema


@cython.final
cdef class Shape:
    cdef readonly object cls
    cdef Schema schema
    cdef PyTypeObject* type

    cdef Py_ssize_t at(self, str name) except -1
    cdef Shape part(self, str name)
    cdef object make(self)


cdef inline PyObject* get_slot(PyObject* message, Py_ssize_t at) noexcept:
    """What stands in a field, borrowed; NULL for a struct that nobody has read yet."""
    return (<PyObject**>(<char*>message + at))[0]


cdef inline void put_slot(object message, Py_ssize_t at, object value) noexcept:
    """Gives a field its value."""
    cdef PyObject** slot = <PyObject**>(<char*><PyObject*>message + at)
    cdef PyObject* before = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(before)
