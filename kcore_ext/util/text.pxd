"""Checks of borrowed values that should be strings, for compiled modules."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH, PyUnicode_READ_CHAR, Py_UNICODE_ISSPACE


cdef inline bint is_text(PyObject* value) noexcept:
    """Returns True if a value is a string that does not begin with white space, and so is not blank."""
    return (
        value is not NULL
        and PyUnicode_CheckExact(<object>value)
        and PyUnicode_GET_LENGTH(<object>value) > 0
        and not Py_UNICODE_ISSPACE(PyUnicode_READ_CHAR(<object>value, 0))
    )


cdef inline bint is_same(PyObject* left, PyObject* right) except -1:
    """Returns True if both values are strings, and equal."""
    if left is NULL or right is NULL:
        return False
    if not PyUnicode_CheckExact(<object>left) or not PyUnicode_CheckExact(<object>right):
        return False
    return left is right or <str>left == <str>right
