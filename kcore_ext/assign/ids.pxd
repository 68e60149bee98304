"""Member ids in Kafka's order (String.compareTo)."""

from cpython.ref cimport PyObject

from kcore_ext.assign.containers cimport u64


cdef int order_of_ids(PyObject** ids, int n, int* out) except -1
cdef bint same_text(PyObject* a, PyObject* b) noexcept
cdef int compare_ids(PyObject* a, PyObject* b) except -2


cdef extern from * nogil:
    """
    #include <string.h>
    // The first eight bytes as a number that orders like they do; what is missing counts as zero.
    static inline unsigned long long kcore_word(const unsigned char *at, Py_ssize_t left) {
        unsigned long long word = 0;
        if (left >= 8) {
            memcpy(&word, at, 8);
            const unsigned one = 1;
            if (*(const unsigned char *)&one) word = __builtin_bswap64(word);
            return word;
        }
        for (Py_ssize_t i = 0; i < left; i++) word |= (unsigned long long)at[i] << (8 * (7 - i));
        return word;
    }
    """
    u64 big_endian_word "kcore_word"(const unsigned char* at, Py_ssize_t left)
