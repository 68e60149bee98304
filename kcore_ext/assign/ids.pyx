"""Member ids in Kafka's order (String.compareTo): a radix sort over bytes, without a Python comparison."""

from cpython.ref cimport PyObject
from cpython.unicode cimport (
    PyUnicode_1BYTE_DATA,
    PyUnicode_1BYTE_KIND,
    PyUnicode_DATA,
    PyUnicode_GET_LENGTH,
    PyUnicode_KIND,
)
from libc.string cimport memcmp, memcpy, memset

from kcore_ext.assign.containers cimport Memory, Scratch, ints, take, u64

from kcore_ext.assign.model import utf16_key

ctypedef const unsigned char* Bytes


cdef inline int _compare(Bytes a, Py_ssize_t n, Bytes b, Py_ssize_t k) noexcept nogil:
    cdef int found = memcmp(a, b, n if n < k else k)
    if found:
        return -1 if found < 0 else 1
    return -1 if n < k else (1 if n > k else 0)


cdef int _radix(Memory* memory, const Bytes* text, const Py_ssize_t* size, int n, int* out) except -1 nogil:
    """Orders by the eight bytes after the common prefix, then by all bytes. Returns 1 when two are equal."""
    cdef int i, j, shift, previous
    cdef Py_ssize_t prefix = size[0], k
    cdef u64* key = <u64*>take(memory, n * sizeof(u64))
    cdef u64* key_next = <u64*>take(memory, n * sizeof(u64))
    cdef int* place = out
    cdef int* place_next = ints(memory, n)
    cdef int bucket[257]
    cdef u64 differs = 0, word
    for i in range(1, n):
        if size[i] >= prefix and memcmp(text[i], text[0], prefix) == 0:
            continue
        if size[i] < prefix:
            prefix = size[i]
        k = 0
        while k < prefix and text[i][k] == text[0][k]:
            k += 1
        prefix = k
    for i in range(n):
        word = big_endian_word(text[i] + prefix, size[i] - prefix)
        key[i] = word
        place[i] = i
        differs |= word ^ key[0]
    for shift in range(0, 64, 8):
        if (differs >> shift) & 255 == 0:
            continue
        memset(bucket, 0, sizeof(bucket))
        for i in range(n):
            bucket[((key[i] >> shift) & 255) + 1] += 1
        for i in range(256):
            bucket[i + 1] += bucket[i]
        for i in range(n):
            j = <int>((key[i] >> shift) & 255)
            key_next[bucket[j]] = key[i]
            place_next[bucket[j]] = place[i]
            bucket[j] += 1
        key, key_next = key_next, key
        place, place_next = place_next, place
    if place != out:
        memcpy(out, place, n * sizeof(int))
    # Equal words are neighbours now; few share eight bytes, so insertion sort settles the rest.
    for i in range(1, n):
        if key[i] == key[i - 1]:
            previous = out[i]
            j = i
            while j > 0 and key[j - 1] == key[i] and _compare(
                    text[previous], size[previous], text[out[j - 1]], size[out[j - 1]]) < 0:
                out[j] = out[j - 1]
                j -= 1
            out[j] = previous
            if j > 0 and key[j - 1] == key[i] and _compare(
                    text[previous], size[previous], text[out[j - 1]], size[out[j - 1]]) == 0:
                return 1
    return 0


cdef int order_of_ids(PyObject** ids, int n, int* out) except -1:
    """Positions of the ids in String.compareTo order. Raises ValueError when two are the same."""
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
    elif _radix(&scratch.memory, text, size, n, out):
        raise ValueError("two members have the same id")
    return 0


cdef int _order_wide(list ids, int* out) except -1:
    """The same for ids with characters beyond one byte."""
    cdef int i
    keyed = sorted([(utf16_key(name), i) for i, name in enumerate(ids)])
    for i in range(1, len(keyed)):
        if keyed[i][0] == keyed[i - 1][0]:
            raise ValueError(f"two members have the id {ids[keyed[i][1]]!r}")
    for i in range(len(keyed)):
        out[i] = keyed[i][1]
    return 0


cdef bint same_text(PyObject* a, PyObject* b) noexcept:
    """Equal ids; nearly always the same object or both of one byte a character."""
    cdef Py_ssize_t n
    if a == b:
        return True
    n = PyUnicode_GET_LENGTH(<object>a)
    if n != PyUnicode_GET_LENGTH(<object>b) or PyUnicode_KIND(<object>a) != PyUnicode_KIND(<object>b):
        return False
    return memcmp(PyUnicode_DATA(<object>a), PyUnicode_DATA(<object>b), n * <Py_ssize_t>PyUnicode_KIND(<object>a)) == 0


def id_order(ids):
    """Positions of the ids in Kafka's order (String.compareTo), as a list."""
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
    """String.compareTo of two ids as -1, 0 or 1."""
    cdef object left = <object>a, right = <object>b
    if PyUnicode_KIND(left) == PyUnicode_1BYTE_KIND and PyUnicode_KIND(right) == PyUnicode_1BYTE_KIND:
        return _compare(<Bytes>PyUnicode_1BYTE_DATA(left), PyUnicode_GET_LENGTH(left),
                        <Bytes>PyUnicode_1BYTE_DATA(right), PyUnicode_GET_LENGTH(right))
    x = utf16_key(left)
    y = utf16_key(right)
    return (x > y) - (x < y)
