"""Sorting of member ids in Kafka's order, which is that of Java's String.compareTo.

It is a radix sort over bytes, without calls of Python's comparison.
"""

from cpython.ref cimport PyObject
from cpython.unicode cimport (
    PyUnicode_1BYTE_DATA,
    PyUnicode_1BYTE_KIND,
    PyUnicode_GET_LENGTH,
    PyUnicode_KIND,
)
from libc.string cimport memcmp, memset

from kcore_ext.assign.containers cimport Memory, Scratch, ints, take, u64

from kcore_ext.assign.model import utf16_key

ctypedef const unsigned char* Bytes


cdef inline int _compare(Bytes a, Py_ssize_t n, Bytes b, Py_ssize_t k) noexcept nogil:
    cdef int found = memcmp(a, b, n if n < k else k)
    if found:
        return -1 if found < 0 else 1
    return -1 if n < k else (1 if n > k else 0)


cdef struct Keyed:
    u64 key
    int place


cdef Py_ssize_t _common(const Bytes* text, const Py_ssize_t* size, int n) noexcept nogil:
    """Returns the length of the common prefix, where missing bytes count as zero."""
    cdef Py_ssize_t at = 0
    cdef u64 word, differs = 0
    cdef int i
    while at < size[0]:
        word = big_endian_word(text[0], at, size[0])
        for i in range(1, n):
            differs |= word ^ big_endian_word(text[i], at, size[i])
        if differs:
            while differs >> 56 == 0:
                differs <<= 8
                at += 1
            return at
        at += 8
    return at


cdef int _radix(Memory* memory, const Bytes* text, const Py_ssize_t* size, int n, int* out) except -1 nogil:
    """Orders ids by the eight bytes after their common prefix, then by all bytes.

    Returns 0, or 1 + the index of a duplicate.
    """
    cdef int i, j, digit, shift, digits = 0, at, count
    cdef Py_ssize_t prefix = _common(text, size, n)
    cdef Keyed* from_ = <Keyed*>take(memory, n * sizeof(Keyed))
    cdef Keyed* to = <Keyed*>take(memory, n * sizeof(Keyed))
    cdef Keyed one
    cdef int shifts[8]
    cdef int bucket[8][256]
    cdef u64 differs = 0
    for i in range(n):
        from_[i].key = big_endian_word(text[i], prefix, size[i])
        from_[i].place = i
        differs |= from_[i].key ^ from_[0].key
    for shift in range(0, 64, 8):
        if (differs >> shift) & 255:
            shifts[digits] = shift
            digits += 1
    memset(bucket, 0, digits * sizeof(bucket[0]))
    for i in range(n):
        for digit in range(digits):
            bucket[digit][(from_[i].key >> shifts[digit]) & 255] += 1
    for digit in range(digits):
        at = 0
        for i in range(256):
            count = bucket[digit][i]
            bucket[digit][i] = at
            at += count
        shift = shifts[digit]
        for i in range(n):
            j = <int>((from_[i].key >> shift) & 255)
            to[bucket[digit][j]] = from_[i]
            bucket[digit][j] += 1
        from_, to = to, from_
    # Equal words are adjacent now; few ids share eight bytes, so an insertion sort orders the rest.
    for i in range(1, n):
        if from_[i].key != from_[i - 1].key:
            continue
        one = from_[i]
        j = i
        at = -1
        while j > 0 and from_[j - 1].key == one.key:
            at = _compare(text[one.place], size[one.place], text[from_[j - 1].place], size[from_[j - 1].place])
            if at >= 0:
                break
            from_[j] = from_[j - 1]
            j -= 1
        from_[j] = one
        if at == 0:
            return one.place + 1
    for i in range(n):
        out[i] = from_[i].place
    return 0


cdef int order_of_ids(PyObject** ids, int n, int* out) except -1:
    """Computes the positions of the ids in String.compareTo order. Raises ValueError for duplicates."""
    cdef int i
    cdef bint ascending = True
    cdef Scratch scratch
    cdef Bytes* text
    cdef Py_ssize_t* size
    if n == 0:
        return 0
    scratch = Scratch.__new__(Scratch)
    text = <Bytes*>take(&scratch.memory, n * sizeof(Bytes))
    size = <Py_ssize_t*>take(&scratch.memory, n * sizeof(Py_ssize_t))
    for i in range(n):
        if PyUnicode_KIND(<object>ids[i]) != PyUnicode_1BYTE_KIND:
            return _order_wide([<object>ids[i] for i in range(n)], out)
        text[i] = <Bytes>PyUnicode_1BYTE_DATA(<object>ids[i])
        size[i] = PyUnicode_GET_LENGTH(<object>ids[i])
        if ascending and i and _compare(text[i - 1], size[i - 1], text[i], size[i]) >= 0:
            ascending = False
    if ascending:
        for i in range(n):
            out[i] = i
    else:
        i = _radix(&scratch.memory, text, size, n, out)
        if i:
            raise ValueError(f"two members have the id {<object>ids[i - 1]!r}")
    return 0


cdef int _order_wide(list ids, int* out) except -1:
    """Computes the order, like `order_of_ids`, for ids with characters beyond one byte."""
    cdef int i
    keyed = sorted([(utf16_key(name), i) for i, name in enumerate(ids)])
    for i in range(1, len(keyed)):
        if keyed[i][0] == keyed[i - 1][0]:
            raise ValueError(f"two members have the id {ids[keyed[i][1]]!r}")
    for i in range(len(keyed)):
        out[i] = keyed[i][1]
    return 0


def id_order(ids):
    """Returns the positions of the ids in Kafka's order (String.compareTo), as a list."""
    cdef list given = list(ids)
    cdef int i, n = <int>len(given)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef PyObject** borrowed = <PyObject**>take(&scratch.memory, n * sizeof(PyObject*))
    cdef int* out = ints(&scratch.memory, n)
    for i in range(n):
        if type(given[i]) is not str:
            raise TypeError(f"a member id is a str, not {type(given[i]).__name__}")
        borrowed[i] = <PyObject*>given[i]
    order_of_ids(borrowed, n, out)
    return [out[i] for i in range(n)]


cdef int compare_ids(PyObject* a, PyObject* b) except -2:
    """Compares two ids like String.compareTo: returns -1, 0 or 1."""
    cdef object left = <object>a, right = <object>b
    if PyUnicode_KIND(left) == PyUnicode_1BYTE_KIND and PyUnicode_KIND(right) == PyUnicode_1BYTE_KIND:
        return _compare(<Bytes>PyUnicode_1BYTE_DATA(left), PyUnicode_GET_LENGTH(left),
                        <Bytes>PyUnicode_1BYTE_DATA(right), PyUnicode_GET_LENGTH(right))
    x = utf16_key(left)
    y = utf16_key(right)
    return (x > y) - (x < y)
