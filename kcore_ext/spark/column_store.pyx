"""Columns in Arrow's layout, for reading and for appending: values, validity, offsets, and child columns.

Values of an incomplete row can be removed: a struct counts only complete rows, and `truncate` shortens its child
columns to this count. `reserve` allocates room for the number of values that a caller expects, so that appending a
value is a store and an addition. Validity and booleans take one byte per value here, and one bit in a finished column.

Functions that return int return 0, or -1 if there is no memory.
"""

import struct

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from kcore_ext.codec.plan cimport (
    ARRAY, BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID, FieldSpec,
)

cdef extern from "Python.h":
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*) noexcept
    const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*) noexcept
    void Py_DECREF(PyObject*) noexcept
    void PyErr_Clear() noexcept

cdef enum:
    FIRST_CAPACITY = 64
    LARGEST = 0x7FFFFFFF    # Arrow's offsets of text, bytes and arrays are int32

# Kind -> (bytes of a value, its format); Spark has no unsigned numbers, so these are wider.
_FIXED = {
    BOOL: (1, "=b"), INT8: (1, "=b"), INT16: (2, "=h"), UINT16: (4, "=i"), INT32: (4, "=i"), UINT32: (8, "=q"),
    INT64: (8, "=q"), FLOAT64: (8, "=d"), UUID: (16, "16s"),
}


cdef class Memory:
    """A block of memory that Python can read. The memory is freed when no object refers to it any more."""

    cdef unsigned char* start
    cdef Py_ssize_t size

    def __dealloc__(self):
        PyMem_RawFree(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.size, 1, flags)


cdef Memory _hand_over(unsigned char** start, Py_ssize_t size):
    """Transfers the ownership of memory to Python. Sets `start` to NULL, unless an exception is raised."""
    cdef Memory memory = Memory.__new__(Memory)
    if start[0] == NULL:
        start[0] = <unsigned char*>PyMem_RawMalloc(1)
        if start[0] == NULL:
            raise MemoryError
    memory.start = start[0]
    memory.size = size
    start[0] = NULL
    return memory


cdef Memory _allocated(Py_ssize_t size):
    """Allocates memory that Python owns, at least one byte, with undefined contents."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.start = <unsigned char*>PyMem_RawMalloc(max(1, size))
    if memory.start == NULL:
        raise MemoryError
    memory.size = size
    return memory


cdef class ColumnNode:
    """The owner of one column and its child columns."""

    def __dealloc__(self):
        PyMem_RawFree(self.column.values)
        PyMem_RawFree(self.column.validity)
        PyMem_RawFree(self.column.offsets)
        PyMem_RawFree(self.column.children)


# ---------------------------------------------------------------- reading
cdef class Input:
    """One Arrow column: its buffers, and the position of its first row in them."""

    def __cinit__(self, validity, offsets, data, Py_ssize_t first):
        self.first = first
        for i, buffer in enumerate((validity, offsets, data)):
            if buffer is not None:
                PyObject_GetBuffer(buffer, &self.views[<int>i], PyBUF_SIMPLE)

    def __dealloc__(self):
        cdef int i
        for i in range(3):
            PyBuffer_Release(&self.views[i])

    cdef bint is_valid(self, Py_ssize_t row) noexcept:
        cdef const unsigned char* bits = <const unsigned char*>self.views[0].buf
        row += self.first
        return bits == NULL or bits[row >> 3] >> (row & 7) & 1

    cdef bint is_true(self, Py_ssize_t row) noexcept:
        cdef const unsigned char* bits = <const unsigned char*>self.views[2].buf
        if bits == NULL or not self.is_valid(row):
            return False
        row += self.first
        return bits[row >> 3] >> (row & 7) & 1

    cdef void get(self, Py_ssize_t row, Bytes* found) noexcept:
        """Sets `found` to the bytes of a row; `found.at` is NULL only for null."""
        cdef const int32_t* offsets = <const int32_t*>self.views[1].buf + self.first
        if not self.is_valid(row):
            found.at = NULL
            found.size = 0
            return
        found.size = offsets[row + 1] - offsets[row]
        found.at = <const unsigned char*>b"" if found.size == 0 else (
            <const unsigned char*>self.views[2].buf + offsets[row])


# ---------------------------------------------------------------- creating columns
cdef ColumnNode scalar_column(int kind):
    """Returns a column of numbers, text or bytes."""
    cdef ColumnNode node = ColumnNode.__new__(ColumnNode)
    node.column.kind = kind
    node.column.width = _FIXED[kind][0] if kind in _FIXED else 0
    node.children = []
    return node


cdef ColumnNode _with_children(int kind, list children):
    cdef ColumnNode node = scalar_column(kind)
    cdef int i
    node.children = children
    node.column.n_children = len(children)
    node.column.children = <Column**>PyMem_RawMalloc(max(1, len(children)) * sizeof(Column*))
    if node.column.children == NULL:
        raise MemoryError
    for i in range(len(children)):
        node.column.children[i] = &(<ColumnNode>children[i]).column
    return node


cdef ColumnNode struct_column(list children):
    """Returns a column of structs whose fields are `children`."""
    return _with_children(STRUCT, children)


cdef ColumnNode array_column(ColumnNode item):
    """Returns a column of arrays whose elements are in the column `item`."""
    return _with_children(ARRAY, [item])


cdef ColumnNode field_column(FieldSpec spec):
    """Returns an empty column for a field of a record class. The column has the field's default."""
    cdef ColumnNode node
    if spec.kind == STRUCT:
        node = struct_column([field_column(one) for one in spec.struct.FIELDS])
    elif spec.kind == ARRAY:
        if spec.item == STRUCT:
            item = struct_column([field_column(one) for one in spec.struct.FIELDS])
        else:
            item = scalar_column(spec.item)
        node = _with_children(ARRAY, [item])
    else:
        node = scalar_column(spec.kind)
    node.column.default_null = spec.default is None and not spec.fresh
    if not node.column.default_null:
        _set_default(node, spec)
    return node


cdef int _set_default(ColumnNode node, FieldSpec spec) except -1:
    value = spec.default
    if spec.kind == ARRAY:
        if len(value):
            raise TypeError(f"{spec.name}: an array's default is empty or null, not {value!r}")
        return 0
    if spec.kind == STRUCT:
        if not spec.fresh:
            raise TypeError(f"{spec.name}: a struct's default is one of defaults or null, not {value!r}")
        return 0
    if spec.kind in _FIXED:
        node.default = struct.pack(_FIXED[spec.kind][1], value)
    else:
        node.default = value.encode() if isinstance(value, str) else bytes(value)
    node.column.default = <const unsigned char*>node.default
    node.column.default_size = len(node.default)
    return 0


# ---------------------------------------------------------------- room
cdef int reserve(Column* column, Py_ssize_t extra) noexcept:
    """Reserves room for `extra` more values.

    Also reserves room in the fields of a struct, but not for the elements of an array.
    """
    cdef Py_ssize_t capacity = column.length + extra
    cdef void* grown
    cdef int i
    if capacity > column.capacity:
        capacity = max(capacity, 2 * column.capacity, FIRST_CAPACITY)
        if column.width:
            grown = PyMem_RawRealloc(column.values, capacity * column.width)
            if grown == NULL:
                return -1
            column.values = <unsigned char*>grown
        elif column.kind != STRUCT:
            grown = PyMem_RawRealloc(column.offsets, (capacity + 1) * sizeof(int32_t))
            if grown == NULL:
                return -1
            column.offsets = <int32_t*>grown
            if column.capacity == 0:
                column.offsets[0] = 0
        if column.validity != NULL:
            grown = PyMem_RawRealloc(column.validity, capacity)
            if grown == NULL:
                return -1
            column.validity = <unsigned char*>grown
            memset(column.validity + column.capacity, 1, capacity - column.capacity)
        column.capacity = capacity
    if column.kind == STRUCT:
        for i in range(column.n_children):
            if reserve(column.children[i], extra) < 0:
                return -1
    return 0


cdef int make_room(Column* column, Py_ssize_t size) noexcept:
    """Reserves room for more bytes of text."""
    cdef Py_ssize_t room = column.size + size
    cdef void* grown
    if room <= column.room:
        return 0
    if room > LARGEST:
        return -1
    room = max(room, 2 * column.room, 16 * column.capacity)
    grown = PyMem_RawRealloc(column.values, room)
    if grown == NULL:
        return -1
    column.values = <unsigned char*>grown
    column.room = room
    return 0


# ---------------------------------------------------------------- values; the caller reserved room for them
cdef int pad(Column* column, Py_ssize_t count, bint null) noexcept:
    """Appends `count` nulls, or `count` empty values if `null` is False, for the fields of a null struct."""
    cdef Py_ssize_t at = column.length
    cdef Py_ssize_t i
    cdef int child
    if null:
        if column.validity == NULL:
            column.validity = <unsigned char*>PyMem_RawMalloc(max(1, column.capacity))
            if column.validity == NULL:
                return -1
            memset(column.validity, 1, column.capacity)
        memset(column.validity + at, 0, count)
    if column.width:
        memset(column.values + at * column.width, 0, count * column.width)
    elif column.kind == STRUCT:
        for child in range(column.n_children):
            if pad(column.children[child], count, False) < 0:
                return -1
    else:
        for i in range(at, at + count):
            column.offsets[i + 1] = column.offsets[at]
    column.length = at + count
    return 0


cdef int put_default(Column* column) noexcept:
    """Appends the default of a field that its record does not contain."""
    cdef int i
    if column.default_null:
        return pad(column, 1, True)
    if column.kind == STRUCT:
        for i in range(column.n_children):
            if put_default(column.children[i]) < 0:
                return -1
        column.length += 1
        return 0
    if column.width:
        memcpy(column.values + column.length * column.width, column.default, column.width)
    else:
        if column.default_size:
            if make_room(column, column.default_size) < 0:
                return -1
            memcpy(column.values + column.size, column.default, column.default_size)
            column.size += column.default_size
        column.offsets[column.length + 1] = column.offsets[column.length] + <int32_t>column.default_size
    column.length += 1
    return 0


cdef int put_bytes(Column* column, const unsigned char* at, Py_ssize_t size) noexcept:
    """Appends bytes to a column of text or bytes."""
    if column.size + size > column.room and make_room(column, size) < 0:
        return -1
    if size:
        memcpy(column.values + column.size, at, size)
    column.size += size
    column.length += 1
    column.offsets[column.length] = <int32_t>column.size
    return 0


cdef int put_text(Column* column, const unsigned char* at, Py_ssize_t size, const char* errors) noexcept:
    """Appends text; a Python error handler replaces invalid UTF-8."""
    cdef PyObject* text
    cdef const char* encoded = NULL
    cdef Py_ssize_t length = 0
    cdef int status = -1
    if is_ascii(at, size):
        return put_bytes(column, at, size)
    text = PyUnicode_DecodeUTF8(<const char*>at, size, errors)
    if text != NULL:
        encoded = PyUnicode_AsUTF8AndSize(text, &length)
    if encoded != NULL:
        status = put_bytes(column, <const unsigned char*>encoded, length)
    else:
        PyErr_Clear()
    if text != NULL:
        Py_DECREF(text)
    return status


cdef void truncate(Column* column, Py_ssize_t length) noexcept:
    """Removes the values after `length`, also in child columns, which may be longer than this column."""
    cdef int i
    if column.validity != NULL and column.length > length:
        memset(column.validity + length, 1, column.length - length)
    if column.kind == STRUCT:
        for i in range(column.n_children):
            truncate(column.children[i], length)
    elif column.offsets != NULL:
        if column.kind == ARRAY:
            truncate(column.children[0], column.offsets[length])
        else:
            column.size = column.offsets[length]
    column.length = min(column.length, length)


# ---------------------------------------------------------------- finishing columns
cdef Memory _packed(const unsigned char* flags, Py_ssize_t count):
    """Packs bytes to bits, least significant bit first."""
    cdef Memory memory = _allocated((count + 7) // 8)
    cdef unsigned char* bits = memory.start
    cdef Py_ssize_t i
    memset(bits, 0, memory.size)
    for i in range(count):
        bits[i >> 3] |= <unsigned char>((flags[i] != 0) << (i & 7))
    return memory


cdef Memory _multiples(Py_ssize_t count, int32_t width):
    """Returns the offsets of values that are all `width` bytes long."""
    cdef Memory memory
    cdef int32_t* offsets
    cdef Py_ssize_t i
    if count * width > LARGEST:
        raise OverflowError(f"{count} values of {width} bytes are more than a column can hold")
    memory = _allocated((count + 1) * sizeof(int32_t))
    offsets = <int32_t*>memory.start
    for i in range(count + 1):
        offsets[i] = <int32_t>(i * width)
    return memory


cdef void discard(ColumnNode node) noexcept:
    """Removes all values of a column and of its children."""
    cdef Column* column = &node.column
    PyMem_RawFree(column.values)
    PyMem_RawFree(column.validity)
    PyMem_RawFree(column.offsets)
    column.values = column.validity = NULL
    column.offsets = NULL
    column.length = column.size = column.capacity = column.room = 0
    for child in node.children:
        discard(<ColumnNode>child)


cdef object finish(ColumnNode node):
    """Returns a column's (length, null count, buffers, child columns) in Arrow's order, and clears the column.

    The column is cleared even if there is no memory for the result. After a partial transfer, the length of the column
    would differ from the lengths of its children.
    """
    try:
        return _finished(node)
    except:
        discard(node)
        raise


cdef list finish_all(list nodes):
    """Finishes the columns of one table. On an error all columns are cleared, so that their lengths agree."""
    try:
        return [_finished(<ColumnNode>node) for node in nodes]
    except:
        for node in nodes:
            discard(<ColumnNode>node)
        raise


cdef object _finished(ColumnNode node):
    """Finishes a column without clearing it on an error, unlike `finish`."""
    cdef Column* column = &node.column
    cdef Py_ssize_t length = column.length
    cdef Py_ssize_t nulls = 0
    cdef Py_ssize_t i
    children = [_finished(child) for child in node.children]
    validity = None
    if column.validity != NULL:
        for i in range(length):
            nulls += column.validity[i] == 0
        if nulls:
            validity = _packed(column.validity, length)
        PyMem_RawFree(column.validity)
        column.validity = NULL
    if column.kind == STRUCT:
        buffers = [validity]
    elif column.kind == BOOL:
        buffers = [validity, _packed(column.values, length)]
    elif column.kind == UUID:  # as offsets and values, because Spark's binary has variable length
        buffers = [validity, _multiples(length, 16), _hand_over(&column.values, length * 16)]
    elif column.width:
        buffers = [validity, _hand_over(&column.values, length * column.width)]
    else:
        if column.offsets == NULL:
            buffers = [validity, _multiples(0, 0)]
        else:
            buffers = [validity, _hand_over(<unsigned char**>&column.offsets, (length + 1) * sizeof(int32_t))]
        if column.kind != ARRAY:
            buffers.append(_hand_over(&column.values, column.size))
    column.length = column.size = 0
    if column.values == NULL:
        column.capacity = column.room = 0
    return length, nulls, buffers, children
