"""Checks of borrowed values that should be strings, and the UTF-8 bytes of strings, for compiled modules."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH, PyUnicode_READ_CHAR, Py_UNICODE_ISSPACE

cdef extern from "Python.h":
    bint _is_compact_ascii "PyUnicode_IS_COMPACT_ASCII"(object text) noexcept
    const char* _data "PyUnicode_DATA"(object text) noexcept
    const char* _as_utf8 "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t* size) except NULL


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


cdef inline const char* utf8_of(str text, Py_ssize_t* size) except NULL:
    """Returns the UTF-8 bytes of a string, and sets `size`. For ASCII text, it calls no function of Python."""
    if text is not None and _is_compact_ascii(text):
        size[0] = PyUnicode_GET_LENGTH(text)
        return _data(text)
    return _as_utf8(text, size)
