"""New objects of named tuple classes.

This module does not call the constructors, which are Python code and take eight times as long.
"""

from cpython.object cimport PyObject, PyTypeObject

cdef extern from *:
    """
    /* CPython 3.14 stores a tuple's hash in the tuple, or -1 before it is computed. New memory has 0, a valid hash. */
    static inline void kcore_forget_hash(PyObject *made) {
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;
    #endif
        (void)made;
    }

    static inline PyObject *kcore_new_named_tuple(PyTypeObject *cls, Py_ssize_t fields) {
        PyObject *made = PyType_GenericAlloc(cls, fields);
        if (made != NULL)
            kcore_forget_hash(made);
        return made;
    }

    static inline PyObject *kcore_named_tuple_of_three(PyObject *cls, PyObject *a, PyObject *b, PyObject *c) {
        PyObject *made = kcore_new_named_tuple((PyTypeObject *)cls, 3);
        if (made != NULL) {
            PyTuple_SET_ITEM(made, 0, Py_NewRef(a));
            PyTuple_SET_ITEM(made, 1, Py_NewRef(b));
            PyTuple_SET_ITEM(made, 2, Py_NewRef(c));
        }
        return made;
    }
    """
    void forget_hash "kcore_forget_hash"(PyObject* made) noexcept
    PyObject* new_named_tuple "kcore_new_named_tuple"(PyTypeObject* cls, Py_ssize_t fields) except NULL
    object named_tuple_of_three "kcore_named_tuple_of_three"(object cls, object a, object b, object c)
