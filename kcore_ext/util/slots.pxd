"""Access to the slots of Python objects by their offsets, for compiled code.

A module defines an enum with an index for each slot that it uses, and makes a `SlotLayout` from a dictionary
index -> name of the slots.
"""

cimport cython
from cpython.dict cimport PyDict_Check, PyDict_GetItemWithError
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t kcore_slot_offset(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    """
    Py_ssize_t slot_offset "kcore_slot_offset"(object descriptor)   # -1: not the descriptor of a slot

cdef extern from "Python.h":
    PyTypeObject* _type_of "Py_TYPE"(PyObject*) noexcept
    long long _long_long "PyLong_AsLongLongAndOverflow"(PyObject*, int* overflow)

cdef enum:
    MAX_SLOTS = 8


cpdef tuple names_by_index(dict names)


@cython.final
cdef class SlotLayout:
    cdef readonly object cls
    cdef readonly tuple names
    cdef PyTypeObject* type
    cdef Py_ssize_t at[MAX_SLOTS]


cdef inline PyObject* slot(PyObject* instance, SlotLayout slots, int name) noexcept:
    """Returns the value of a slot, borrowed; NULL for an object of another class or an unset slot."""
    if _type_of(instance) is not slots.type:
        return NULL
    return (<PyObject**>(<char*>instance + slots.at[name]))[0]


cdef inline bint number(PyObject* value, int64_t* to) noexcept:
    """Converts an int to a C number; returns False if it is not an int or does not fit into 64 bits."""
    cdef int overflow = 0
    if value is NULL or not PyLong_CheckExact(<object>value):
        return False
    to[0] = _long_long(value, &overflow)
    return overflow == 0


cdef inline PyObject* item(PyObject* table, PyObject* name) except? NULL:
    """Returns the value of a name in a dictionary, borrowed.

    Returns NULL if the name is missing, or if `table` or `name` has another type.
    """
    if table is NULL or name is NULL or not PyDict_Check(<object>table) or not PyUnicode_CheckExact(<object>name):
        return NULL
    return PyDict_GetItemWithError(<object>table, <object>name)
