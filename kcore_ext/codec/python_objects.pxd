"""Functions of Python's C API over pointers, for the encoder and the decoder.

Encoder and decoder count references themselves. Cython adds no error checks to these calls; the callers check for NULL
and -1.
"""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from "Python.h":
    ctypedef struct Py_buffer:
        void* buf
        Py_ssize_t len
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_False
    int PyBUF_SIMPLE
    int Py_EQ
    int _PyBytes_Resize(PyObject**, Py_ssize_t) noexcept
    void Py_DECREF(PyObject*) noexcept
    void Py_INCREF(PyObject*) noexcept
    Py_ssize_t Py_SIZE(PyObject*) noexcept
    PyTypeObject* Py_TYPE(PyObject*) noexcept
    void Py_XDECREF(PyObject*) noexcept
    void PyBuffer_Release(Py_buffer*) noexcept
    char* PyBytes_AS_STRING(PyObject*) noexcept
    bint PyBytes_CheckExact(PyObject*) noexcept
    PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t) noexcept
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) noexcept
    PyObject* PyErr_NoMemory() noexcept
    PyObject* PyErr_Occurred() noexcept
    double PyFloat_AsDouble(PyObject*) noexcept
    PyObject* PyFloat_FromDouble(double) noexcept
    bint PyList_Check(PyObject*) noexcept
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    long long PyLong_AsLongLong(PyObject*) noexcept
    bint PyLong_Check(PyObject*) noexcept
    PyObject* PyLong_FromLong(long) noexcept
    PyObject* PyLong_FromLongLong(long long) noexcept
    int PyObject_CheckBuffer(PyObject*) noexcept
    int PyObject_GetBuffer(PyObject*, Py_buffer*, int) noexcept
    int PyObject_RichCompareBool(PyObject*, PyObject*, int) noexcept
    PyObject* PySequence_Tuple(PyObject*) noexcept
    bint PyTuple_Check(PyObject*) noexcept
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t) noexcept
    PyObject* PyTuple_New(Py_ssize_t) noexcept
    void PyTuple_SET_ITEM(PyObject*, Py_ssize_t, PyObject*) noexcept
    int PyType_IsSubtype(PyTypeObject*, PyTypeObject*) noexcept
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*) noexcept
    bint PyUnicode_Check(PyObject*) noexcept
    const void* PyUnicode_DATA(PyObject*) noexcept
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*) noexcept
    bint PyUnicode_IS_ASCII(PyObject*) noexcept
