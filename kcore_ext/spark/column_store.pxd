"""Columns in Arrow's layout, for reading and for appending. The functions are documented in column_store.pyx."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from kcore_ext.codec.plan cimport FieldSpec

cdef struct Column:
    int kind                    # a Kind of codec.plan
    Py_ssize_t width            # of one value in bytes; 0 for text, bytes, arrays and structs
    Py_ssize_t length           # number of values
    Py_ssize_t capacity         # number of values that fit
    Py_ssize_t size             # text and bytes: number of used bytes in `values`
    Py_ssize_t room             # text and bytes: number of bytes that fit
    unsigned char* values       # fixed-size values one after another, or the bytes of all texts
    unsigned char* validity     # one byte per value, 0 for null; NULL while no value is null
    int32_t* offsets            # text, bytes and arrays: the start of each value, and the end of the last one
    int n_children
    Column** children           # the fields of a struct, or the elements of an array
    bint default_null
    const unsigned char* default    # `width` bytes, or `default_size` of text; NULL for arrays and structs
    Py_ssize_t default_size

cdef struct Bytes:
    const unsigned char* at     # NULL for null
    Py_ssize_t size

cdef class Input:
    cdef Py_buffer views[3]     # validity, offsets, data
    cdef Py_ssize_t first
    cdef bint is_valid(self, Py_ssize_t row) noexcept
    cdef bint is_true(self, Py_ssize_t row) noexcept
    cdef void get(self, Py_ssize_t row, Bytes* found) noexcept

cdef class ColumnNode:
    cdef Column column
    cdef list children          # of ColumnNode, in the order of column.children
    cdef bytes default          # owns column.default

cdef ColumnNode field_column(FieldSpec spec)
cdef ColumnNode struct_column(list children)
cdef ColumnNode array_column(ColumnNode item)
cdef ColumnNode scalar_column(int kind)

cdef int reserve(Column* column, Py_ssize_t extra) noexcept
cdef int make_room(Column* column, Py_ssize_t size) noexcept
cdef int pad(Column* column, Py_ssize_t count, bint null) noexcept
cdef int put_default(Column* column) noexcept
cdef int put_bytes(Column* column, const unsigned char* at, Py_ssize_t size) noexcept
cdef int put_text(Column* column, const unsigned char* at, Py_ssize_t size, const char* errors) noexcept
cdef void truncate(Column* column, Py_ssize_t length) noexcept
cdef object finish(ColumnNode node)
cdef list finish_all(list nodes)
cdef void discard(ColumnNode node) noexcept


# The caller has reserved room with `reserve`.
cdef inline void put_int32(Column* column, int32_t number) noexcept:
    (<int32_t*>column.values)[column.length] = number
    column.length += 1


cdef inline void put_int64(Column* column, int64_t number) noexcept:
    (<int64_t*>column.values)[column.length] = number
    column.length += 1


cdef inline void put_flag(Column* column, bint flag) noexcept:
    column.values[column.length] = flag
    column.length += 1


cdef inline bint is_ascii(const unsigned char* at, Py_ssize_t size) noexcept:
    """True if bytes are ASCII. Checks eight bytes at a time."""
    cdef uint64_t high = 0
    cdef uint64_t eight
    cdef Py_ssize_t i = 0
    while i + 8 <= size:
        memcpy(&eight, at + i, 8)
        high |= eight
        i += 8
    while i < size:
        high |= at[i]
        i += 1
    return high & 0x8080808080808080ULL == 0
