"""Reads and makes messages in compiled code that knows their class: a field is a slot at an offset.

A module makes a `FieldLayout` from a dictionary index -> name of the fields that it uses. It then reads each field by
its index.
"""

cimport cython
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE

from kcore_ext.codec.plan cimport Schema

cdef extern from "Python.h":
    PyTypeObject* type_of "Py_TYPE"(PyObject*) noexcept
    PyObject* _list_item "PyList_GET_ITEM"(PyObject*, Py_ssize_t) noexcept
    PyObject* _tuple_item "PyTuple_GET_ITEM"(PyObject*, Py_ssize_t) noexcept

cdef enum:
    MAX_FIELDS = 24


@cython.final
cdef class FieldLayout:
    cdef readonly object cls
    cdef readonly tuple names
    cdef Schema schema
    cdef PyTypeObject* type  # NULL: no class
    cdef int named, count  # number of named fields, which come first; number of all fields
    cdef Py_ssize_t at[MAX_FIELDS]  # their offsets in an object
    cdef PyObject* defaults[MAX_FIELDS]  # of the other fields; NULL: a struct, created at its first read

    cdef FieldLayout part(self, str name, dict fields)
    cdef object make(self, PyObject** values)


cdef inline PyObject* get(PyObject* message, FieldLayout layout, int field) noexcept:
    """Returns the borrowed value of a field; NULL in an object of another class, and for an empty slot."""
    if type_of(message) is not layout.type:
        return NULL
    return (<PyObject**>(<char*>message + layout.at[field]))[0]


cdef inline object read(object message, FieldLayout layout, int field):
    """Returns the value of a field of an object of any class."""
    cdef PyObject* value = get(<PyObject*>message, layout, field)
    return <object>value if value is not NULL else getattr(message, <str>layout.names[field])


cdef inline Py_ssize_t length_of(PyObject* array) noexcept:
    """Returns the number of elements of an array; -1 for an object that is neither list nor tuple."""
    if array is NULL:
        return -1
    if PyList_CheckExact(<object>array):
        return PyList_GET_SIZE(<object>array)
    if PyTuple_CheckExact(<object>array):
        return PyTuple_GET_SIZE(<object>array)
    return -1


cdef inline PyObject* item_of(PyObject* array, Py_ssize_t at) noexcept:
    """Returns the element of a list or tuple at an index, borrowed."""
    return _list_item(array, at) if PyList_CheckExact(<object>array) else _tuple_item(array, at)
