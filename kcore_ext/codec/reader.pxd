"""A cursor over received bytes, and inline functions that read its numbers and lengths.

No function raises. The Reader records the first failure, and every caller returns its error value.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kcore_ext.codec.plan cimport BOOL, INT8, INT16, INT32, INT64, UINT16, UINT32
from kcore_ext.codec.python_objects cimport (
    Py_False, Py_INCREF, Py_True, PyFloat_FromDouble, PyLong_FromLong, PyLong_FromLongLong,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64

cdef enum:
    NULL_LENGTH = -1
    FAILED = -2

cdef struct Reader:
    const unsigned char* start
    const unsigned char* at
    const unsigned char* end
    const char* reason      # set by the first failure, a static text
    Py_ssize_t found        # the length or count that the reason refers to; -1 for none
    Py_ssize_t elements_left    # number of array elements and tagged fields that may follow


cdef inline PyObject* fail(Reader* reader, const char* reason, Py_ssize_t found) noexcept:
    """Records the first failure and its position."""
    if reader.reason == NULL:
        reader.reason = reason
        reader.found = found
    return NULL


cdef inline bint lacks_bytes(Reader* reader, Py_ssize_t size) noexcept:
    """Returns True and records a failure if fewer than `size` bytes are left."""
    if reader.end - reader.at < size:
        fail(reader, b"a value needs more bytes than are left:", size)
        return True
    return False


cdef inline int read_uvarint(Reader* reader, unsigned int* value) noexcept:
    """Reads an unsigned varint; returns 0, or -1 and a failure. Like Kafka, it ignores the bits of a fifth byte that do
    not fit into 32 bits.
    """
    cdef uint32_t result = 0
    cdef int shift = 0
    cdef unsigned char byte
    while shift < 35:
        if reader.at >= reader.end:
            fail(reader, b"the bytes end inside of a varint", -1)
            return -1
        byte = reader.at[0]
        reader.at += 1
        result |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = result
            return 0
        shift += 7
    fail(reader, b"a varint is longer than five bytes", -1)
    return -1


cdef inline Py_ssize_t read_length(Reader* reader, bint compact, bint wide, bint nullable) noexcept:
    """Reads a length or count: NULL_LENGTH for an allowed null, FAILED for an invalid one."""
    cdef unsigned int raw
    cdef Py_ssize_t length
    if compact:
        if reader.at < reader.end and reader.at[0] < 0x80:
            raw = reader.at[0]
            reader.at += 1
        elif read_uvarint(reader, &raw) < 0:
            return FAILED
        length = <Py_ssize_t>raw - 1
    elif wide:
        if lacks_bytes(reader, 4):
            return FAILED
        length = read_int32(reader.at)
        reader.at += 4
    else:
        if lacks_bytes(reader, 2):
            return FAILED
        length = read_int16(reader.at)
        reader.at += 2
    if length >= 0:
        return length
    if nullable:
        return NULL_LENGTH
    fail(reader, b"null where null is not allowed", -1)
    return FAILED


cdef inline PyObject* read_number(Reader* reader, int kind) noexcept:
    """Reads a number or a bool."""
    cdef const unsigned char* at = reader.at
    cdef PyObject* truth
    cdef int64_t bits
    cdef double real
    if kind == INT32:
        if lacks_bytes(reader, 4):
            return NULL
        reader.at = at + 4
        return PyLong_FromLong(read_int32(at))
    elif kind == INT16:
        if lacks_bytes(reader, 2):
            return NULL
        reader.at = at + 2
        return PyLong_FromLong(read_int16(at))
    elif kind == INT64:
        if lacks_bytes(reader, 8):
            return NULL
        reader.at = at + 8
        return PyLong_FromLongLong(read_int64(at))
    elif kind == INT8:
        if lacks_bytes(reader, 1):
            return NULL
        reader.at = at + 1
        return PyLong_FromLong(<signed char>at[0])
    elif kind == BOOL:
        if lacks_bytes(reader, 1):
            return NULL
        reader.at = at + 1
        truth = Py_True if at[0] else Py_False
        Py_INCREF(truth)
        return truth
    elif kind == UINT16:
        if lacks_bytes(reader, 2):
            return NULL
        reader.at = at + 2
        return PyLong_FromLong(<uint16_t>read_int16(at))
    elif kind == UINT32:
        if lacks_bytes(reader, 4):
            return NULL
        reader.at = at + 4
        return PyLong_FromLongLong(<uint32_t>read_int32(at))
    if lacks_bytes(reader, 8):
        return NULL
    reader.at = at + 8
    bits = read_int64(at)
    memcpy(&real, &bits, 8)
    return PyFloat_FromDouble(real)
