"""A table of texts that many objects have: topic names, client ids, client addresses.

`sys.intern` does the same, but the first releases of CPython 3.12 and free-threaded builds never free a text that was
interned (python/cpython issue 113993). Clients choose these texts, so the memory of a server would grow without bound.
"""

from cpython.dict cimport PyDict_Clear
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH, PyUnicode_KIND

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object table, object key) except? NULL

cdef Py_ssize_t MAX_CHARACTERS = 256
cdef Py_ssize_t ENTRY_BYTES = 160
"""The memory of an empty text and of its entry in the table, in bytes."""

MAX_TABLE_BYTES = 16_777_216
"""Maximum size of the texts and their entries in bytes. A full table is emptied; texts in use stay in memory."""

cdef Py_ssize_t max_table_bytes = MAX_TABLE_BYTES
cdef dict _table = {}
cdef Py_ssize_t _table_bytes = 0


cpdef object shared_text(object text):
    """Returns an equal text of an earlier call, or else `text` itself.

    Args:
        text: a str. A str of more than 256 characters is returned without a look-up.
    """
    global _table_bytes
    cdef Py_ssize_t length
    cdef PyObject *found
    if not PyUnicode_CheckExact(text):
        return text
    length = PyUnicode_GET_LENGTH(text)
    if length > MAX_CHARACTERS:
        return text
    found = PyDict_GetItemWithError(_table, text)
    if found is not NULL:
        return <object>found
    cdef Py_ssize_t size_bytes = ENTRY_BYTES + length * PyUnicode_KIND(text)
    if _table_bytes + size_bytes > max_table_bytes:
        PyDict_Clear(_table)
        _table_bytes = 0
    _table[text] = text
    _table_bytes += size_bytes
    return text


def table_size():
    """Returns the number of texts in the table, and the size of the texts and their entries in bytes."""
    return len(_table), _table_bytes
