"""Sorting of member ids in Kafka's order, which is that of Java's String.compareTo."""

from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND

from kcore_ext.assign.containers cimport u64


cdef int order_of_ids(PyObject** ids, int n, int* out) except -1
cdef int compare_ids(PyObject* a, PyObject* b) except -2


cdef extern from * nogil:
    """
    #include <string.h>
    // Returns the eight bytes from an offset on as a number with the same order; missing bytes count as zero.
    static inline unsigned long long kcore_word(const unsigned char *text, Py_ssize_t offset, Py_ssize_t size) {
        unsigned long long word = 0;
        Py_ssize_t left = size - offset;
        if (left <= 0) return 0;
        if (size < 8) {
            for (Py_ssize_t i = 0; i < left; i++) word |= (unsigned long long)text[offset + i] << (8 * (7 - i));
            return word;
        }
        memcpy(&word, text + (left < 8 ? size - 8 : offset), 8);
        const unsigned one = 1;
        if (*(const unsigned char *)&one) word = __builtin_bswap64(word);
        return left < 8 ? word << (8 * (8 - left)) : word;
    }
    static inline int kcore_same_bytes(const char *a, const char *b, Py_ssize_t n) {
        unsigned long long x, y;
        if (n < 8) {
            while (n-- > 0) if (a[n] != b[n]) return 0;
            return 1;
        }
        for (Py_ssize_t i = 0; i + 8 < n; i += 8) {
            memcpy(&x, a + i, 8);
            memcpy(&y, b + i, 8);
            if (x != y) return 0;
        }
        memcpy(&x, a + n - 8, 8);
        memcpy(&y, b + n - 8, 8);
        return x == y;
    }
    """
    bint same_bytes "kcore_same_bytes"(const void* a, const void* b, Py_ssize_t n)
    u64 big_endian_word "kcore_word"(const unsigned char* text, Py_ssize_t offset, Py_ssize_t size)


cdef inline bint same_text(PyObject* a, PyObject* b) noexcept:
    """Returns True if two ids are equal. Fast if they are one object, or if both have one byte per character."""
    cdef Py_ssize_t n
    if a == b:
        return True
    n = PyUnicode_GET_LENGTH(<object>a)
    if n != PyUnicode_GET_LENGTH(<object>b) or PyUnicode_KIND(<object>a) != PyUnicode_KIND(<object>b):
        return False
    return same_bytes(PyUnicode_DATA(<object>a), PyUnicode_DATA(<object>b), n * <Py_ssize_t>PyUnicode_KIND(<object>a))
