"""A buffer that grows while a record is encoded into it."""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport uint8_t, uint32_t

from kcore_ext.util.record_limits cimport MAX_STRING

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    FIRST_ROOM = 1024
    TOPIC_ID_BYTES = 16


cdef struct Buffer:
    uint8_t* start      # NULL: nothing was reserved yet; freed with PyMem_Free
    Py_ssize_t used
    Py_ssize_t room


cdef inline int reserve(Buffer* buffer, Py_ssize_t size) except -1:
    """Makes room for more bytes. If this raises, the buffer is unchanged."""
    cdef uint8_t* larger
    cdef Py_ssize_t room
    if buffer.used + size <= buffer.room:
        return 0
    room = max(FIRST_ROOM, 2 * buffer.room, buffer.used + size)
    larger = <uint8_t*>PyMem_Realloc(buffer.start, room)
    if larger is NULL:
        raise MemoryError
    buffer.start = larger
    buffer.room = room
    return 0


cdef inline void put_count(Buffer* buffer, Py_ssize_t value) noexcept:
    """Writes the length of an array or text, increased by one, as a varint. The caller has reserved five bytes."""
    cdef uint32_t left = <uint32_t>(value + 1)
    while left > 0x7F:
        buffer.start[buffer.used] = <uint8_t>(left | 0x80)
        buffer.used += 1
        left >>= 7
    buffer.start[buffer.used] = <uint8_t>left
    buffer.used += 1


cdef inline const char* utf8(object content, Py_ssize_t* size) except NULL:
    """Returns the UTF-8 bytes of a str. Raises ValueError if there are too many bytes for a record."""
    cdef const char* text = PyUnicode_AsUTF8AndSize(content, size)
    if size[0] > MAX_STRING:
        raise ValueError(f"a text of {size[0]} bytes is too long for a record")
    return text
