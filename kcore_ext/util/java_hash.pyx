"""Java's string hash, which determines the partition of an internal topic for a key in every request."""

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ
from libc.stdint cimport int32_t, uint32_t


cdef int32_t hash_of(str text) except? -1:
    cdef Py_ssize_t i, length = PyUnicode_GET_LENGTH(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef uint32_t value = 0
    cdef uint32_t unit
    for i in range(length):
        unit = <uint32_t>PyUnicode_READ(kind, data, i)
        if unit > 0xFFFF:  # two UTF-16 code units, as in a Java string
            unit -= 0x10000
            value = 31 * value + (0xD800 + (unit >> 10))
            unit = 0xDC00 + (unit & 0x3FF)
        value = 31 * value + unit
    return <int32_t> value


def java_hash(str text not None) -> int:
    """Returns Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number that wraps around."""
    return hash_of(text)


cdef int partition_of(str key, int partitions) except -1:
    cdef int32_t value = hash_of(key)
    if value == -2147483647 - 1:
        return 0
    return (-value if value < 0 else value) % partitions


def partition_for(str key not None, int partitions) -> int:
    """Returns the partition of `key`: |hash| modulo `partitions`; |-2147483648| is 0, as in Kafka's `Utils.abs`."""
    return partition_of(key, partitions)
