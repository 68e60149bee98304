"""The encoder: executes a plan over an object's slots and writes to memory.

A message is written to scratch memory that all messages share, and copied once into its bytes object. A message that
outgrows the scratch memory continues in its own bytes object, which is truncated at the end. No large buffer
therefore outlives its message.

As in the decoder, no function raises during the walk: the Writer records the first failure, and `finish` raises it as
an EncodeError. A buffer that could not grow is freed and `at` and `start` are NULL, so after a failed call only
`finish` may be called.
"""

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kcore_ext.util.byte_order cimport wire16, wire32, wire64, write_int32
from kcore_ext.codec.plan cimport (
    ARRAY, BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID, Op, Plan,
)
from kcore_ext.codec.python_objects cimport (
    _PyBytes_Resize, Py_buffer, Py_DECREF, Py_EQ, Py_False, Py_INCREF, Py_None, Py_SIZE, Py_True, Py_TYPE,
    Py_XDECREF, PyBUF_SIMPLE, PyBuffer_Release, PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE, PyErr_Occurred, PyFloat_AsDouble, PyList_Check, PyList_GET_ITEM, PyLong_AsLongLong,
    PyLong_Check, PyObject_CheckBuffer, PyObject_GetBuffer, PyObject_RichCompareBool, PySequence_Tuple,
    PyTuple_Check, PyTuple_GET_ITEM, PyType_IsSubtype, PyUnicode_AsUTF8AndSize, PyUnicode_Check,
)
from kcore_ext.codec.write_failure cimport raise_failure_of

DEF SCRATCH = 65536
DEF OWN_SCRATCH = 512  # initial size if the scratch memory is in use
DEF LONGEST_STRING = 0x7FFF
DEF LONGEST_COUNT = 0x7FFFFFFF  # the largest int32
DEF SLACK = 16  # callers reserve a few bytes more than they write; `finish` compares exactly

cdef unsigned char _scratch[SCRATCH]
cdef bint _scratch_taken = False


# ---------------------------------------------------------------- memory
cdef int begin(Writer* writer, Py_ssize_t limit) except -1:
    """Takes the scratch memory, or new memory if an enclosing message is being encoded.

    Args:
        writer: the writer to initialise.
        limit: the maximum number of bytes.
    """
    global _scratch_taken
    writer.owner = NULL
    writer.scratch = not _scratch_taken
    writer.limit = limit
    writer.too_large = False
    writer.plan = NULL
    writer.op = NULL
    writer.reason = NULL
    writer.found = NULL
    if not writer.scratch:
        writer.owner = PyBytes_FromStringAndSize(NULL, OWN_SCRATCH)
        if writer.owner == NULL:
            return -1
        writer.start = <unsigned char*>PyBytes_AS_STRING(writer.owner)
        writer.end = writer.start + OWN_SCRATCH
    else:
        _scratch_taken = True
        writer.start = _scratch
        writer.end = writer.start + SCRATCH
    writer.at = writer.start
    return 0


cdef int _grow(Writer* writer, Py_ssize_t size) noexcept:
    """Moves the output to a larger bytes object, with room for `size` more bytes."""
    global _scratch_taken
    cdef Py_ssize_t used = writer.at - writer.start
    cdef Py_ssize_t most = writer.limit + SLACK
    cdef Py_ssize_t room
    if size > most - used:
        writer.too_large = True
        return -1
    room = used + size + (used >> 1)
    if room > most:
        room = most
    if writer.scratch:
        writer.owner = PyBytes_FromStringAndSize(NULL, room)
        if writer.owner == NULL:
            return -1
        memcpy(PyBytes_AS_STRING(writer.owner), writer.start, used)
        writer.scratch = _scratch_taken = False
    elif _PyBytes_Resize(&writer.owner, room) < 0:
        # A failed resize has also freed the old buffer.
        writer.start = writer.at = writer.end = NULL
        writer.limit = -SLACK
        return -1
    writer.start = <unsigned char*>PyBytes_AS_STRING(writer.owner)
    writer.at = writer.start + used
    writer.end = writer.start + room
    return 0


cdef inline int reserve(Writer* writer, Py_ssize_t size) noexcept:
    """Reserves `size` more bytes; returns 0, or -1 with a recorded failure."""
    if writer.end - writer.at >= size:
        return 0
    return _grow(writer, size)


cdef bytes finish(Writer* writer, bint written, int version):
    """Ends the output that `begin` started: returns the bytes, or raises the first failure."""
    global _scratch_taken
    cdef Py_ssize_t size = writer.at - writer.start
    cdef PyObject* raw = writer.owner
    if written and size > writer.limit:
        writer.too_large = True
        written = False
    if writer.scratch:
        writer.scratch = _scratch_taken = False
        if written:
            raw = PyBytes_FromStringAndSize(<const char*>writer.start, size)
    elif written:
        _PyBytes_Resize(&raw, size)
    else:
        Py_XDECREF(raw)
    writer.owner = NULL
    if not written:
        raise_failure_of(writer, version)
    if raw == NULL:
        raise MemoryError
    result = <bytes>raw
    Py_DECREF(raw)
    return result


cdef bytes finish_frame(Writer* writer, bint written, int version):
    """Ends a frame, whose first four bytes are the length of the rest."""
    cdef Py_ssize_t size = writer.at - writer.start
    if written and size <= writer.limit:
        write_int32(writer.start, <int>(size - 4))
    return finish(writer, written, version)


cdef int fail(Writer* writer, const char* reason, PyObject* found) noexcept:
    """Records the first failure."""
    if writer.reason == NULL:
        writer.reason = reason
        writer.found = found
        if found != NULL:
            Py_INCREF(found)
    return -1


# ---------------------------------------------------------------- primitives
cdef inline void put_int16(Writer* writer, int value) noexcept:
    cdef uint16_t raw = wire16(<uint16_t>value)
    memcpy(writer.at, &raw, 2)
    writer.at += 2


cdef inline void put_int32(Writer* writer, int value) noexcept:
    cdef uint32_t raw = wire32(<uint32_t>value)
    memcpy(writer.at, &raw, 4)
    writer.at += 4


cdef inline void _put_int64(Writer* writer, int64_t value) noexcept:
    cdef uint64_t raw = wire64(<uint64_t>value)
    memcpy(writer.at, &raw, 8)
    writer.at += 8


cdef inline void _put_uvarint(Writer* writer, uint32_t value) noexcept:
    while value > 0x7F:
        writer.at[0] = <unsigned char>(value | 0x80)
        writer.at += 1
        value >>= 7
    writer.at[0] = <unsigned char>value
    writer.at += 1


cdef inline void _put_length(Writer* writer, Py_ssize_t length, bint compact, bint wide) noexcept:
    """Writes a length or count; -1 for null. The caller has reserved five bytes."""
    if compact:
        if length < 0x7F:
            writer.at[0] = <unsigned char>(length + 1)
            writer.at += 1
        else:
            _put_uvarint(writer, <uint32_t>(length + 1))
    elif wide:
        put_int32(writer, <int>length)
    else:
        put_int16(writer, <int>length)


cdef inline int _null(Writer* writer, Op* op, bint wide) noexcept:
    if not op.nullable:
        return fail(writer, b"null is not allowed in version VERSION", NULL)
    if reserve(writer, 5) < 0:
        return -1
    _put_length(writer, -1, op.compact, wide)
    return 0


cdef inline int _put_string(Writer* writer, PyObject* text, bint compact) noexcept:
    cdef Py_ssize_t length
    cdef const char* data
    if not PyUnicode_Check(text):
        return fail(writer, b"expected a string", text)
    data = PyUnicode_AsUTF8AndSize(text, &length)
    if data == NULL:
        return fail(writer, b"no UTF-8", text)
    if length > LONGEST_STRING:
        return fail(writer, b"a string has at most 32767 bytes", text)
    if reserve(writer, length + 5) < 0:
        return -1
    _put_length(writer, length, compact, False)
    memcpy(writer.at, data, length)
    writer.at += length
    return 0


cdef int _put_buffer(Writer* writer, PyObject* value, bint compact) noexcept:
    """Writes the bytes of any object with the buffer protocol."""
    cdef Py_buffer view
    cdef int status
    if not PyObject_CheckBuffer(value):
        return fail(writer, b"expected bytes", value)
    if PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0:
        return fail(writer, b"expected contiguous bytes", value)
    status = _put_raw(writer, <const char*>view.buf, view.len, compact)
    PyBuffer_Release(&view)
    return status


cdef inline int _put_raw(Writer* writer, const char* data, Py_ssize_t length, bint compact) noexcept:
    if length >= LONGEST_COUNT:
        return fail(writer, b"the bytes exceed 2 GiB", NULL)
    if reserve(writer, length + 5) < 0:
        return -1
    _put_length(writer, length, compact, True)
    memcpy(writer.at, data, length)
    writer.at += length
    return 0


cdef int put_raw(Writer* writer, const char* data, Py_ssize_t length) noexcept:
    """Writes bytes without a length, and reserves one more byte."""
    if reserve(writer, length + 1) < 0:
        return -1
    memcpy(writer.at, data, length)
    writer.at += length
    return 0


cdef inline int _put_bytes(Writer* writer, PyObject* value, bint compact) noexcept:
    if PyBytes_CheckExact(value):
        return _put_raw(writer, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), compact)
    return _put_buffer(writer, value, compact)


cdef inline int _put_uuid(Writer* writer, PyObject* value) noexcept:
    if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != 16:
        return fail(writer, b"expected a uuid of 16 bytes", value)
    if reserve(writer, 16) < 0:
        return -1
    memcpy(writer.at, PyBytes_AS_STRING(value), 16)
    writer.at += 16
    return 0


cdef int _put_real(Writer* writer, PyObject* value) noexcept:
    cdef double real = PyFloat_AsDouble(value)
    cdef int64_t bits
    if real == -1.0 and PyErr_Occurred() != NULL:
        return fail(writer, b"expected a number", value)
    memcpy(&bits, &real, 8)
    _put_int64(writer, bits)
    return 0


cdef inline int _put_number(Writer* writer, int kind, PyObject* value) noexcept:
    """Writes a number or a bool, within the bounds of its type."""
    cdef long long number
    if reserve(writer, 8) < 0:
        return -1
    if kind == BOOL:
        if value != Py_True and value != Py_False:
            return fail(writer, b"expected True or False", value)
        writer.at[0] = value == Py_True
        writer.at += 1
        return 0
    if kind == FLOAT64:
        return _put_real(writer, value)
    if not PyLong_Check(value):
        return fail(writer, b"expected an int", value)
    number = PyLong_AsLongLong(value)
    if number == -1 and PyErr_Occurred() != NULL:
        return fail(writer, b"expected an int64", value)
    if kind == INT32:
        if number != <int>number:
            return fail(writer, b"expected an int32", value)
        put_int32(writer, <int>number)
    elif kind == INT16:
        if number != <short>number:
            return fail(writer, b"expected an int16", value)
        put_int16(writer, <int>number)
    elif kind == INT64:
        _put_int64(writer, number)
    elif kind == INT8:
        if number != <signed char>number:
            return fail(writer, b"expected an int8", value)
        writer.at[0] = <unsigned char>number
        writer.at += 1
    elif kind == UINT16:
        if number != <uint16_t>number:
            return fail(writer, b"expected a uint16", value)
        put_int16(writer, <int>number)
    else:
        if number != <uint32_t>number:
            return fail(writer, b"expected a uint32", value)
        put_int32(writer, <int>number)
    return 0


# ---------------------------------------------------------------- structures
cdef inline PyObject* _read(PyObject* instance, Op* op) noexcept:
    """Returns the value of a slot. For an empty slot returns the default, or NULL for a struct with defaults only."""
    cdef PyObject* value
    if instance == NULL:
        return op.default
    value = (<PyObject**>(<char*>instance + op.offset))[0]
    return op.default if value == NULL else value


cdef int _put_item(Writer* writer, Op* op, PyObject* value) noexcept:
    """Writes one element of an array."""
    if op.item == STRUCT:
        if Py_TYPE(value) != op.plan.type and not PyType_IsSubtype(Py_TYPE(value), op.plan.type):
            return fail(writer, b"an element is of another class", value)
        return write_struct(writer, op.plan, value)
    elif op.item == STRING:
        return _put_string(writer, value, op.compact)
    elif op.item == UUID:
        return _put_uuid(writer, value)
    elif op.item == BYTES or op.item == RECORDS:
        return _put_bytes(writer, value, op.compact)
    return _put_number(writer, op.item, value)


cdef int write_count(Writer* writer, Op* op, Py_ssize_t count) noexcept:
    """Writes the number of elements of an array."""
    if count >= LONGEST_COUNT:
        return fail(writer, b"an array has at most 2147483646 elements", NULL)
    if reserve(writer, 5) < 0:
        return -1
    _put_length(writer, count, op.compact, True)
    return 0


cdef int _put_list(Writer* writer, Op* op, PyObject* elements) noexcept:
    """Writes a list.

    Other code may change the list meanwhile, so each element is looked up and referenced while it is written.
    """
    cdef Py_ssize_t count = Py_SIZE(elements)
    cdef Py_ssize_t i
    cdef PyObject* element
    cdef int status
    if write_count(writer, op, count) < 0:
        return -1
    for i in range(count):
        if Py_SIZE(elements) != count:
            return fail(writer, b"the list changed while it was written", NULL)
        element = PyList_GET_ITEM(elements, i)
        Py_INCREF(element)
        status = _put_item(writer, op, element)
        Py_DECREF(element)
        if status < 0:
            return -1
    return 0


cdef int _put_tuple(Writer* writer, Op* op, PyObject* elements) noexcept:
    cdef Py_ssize_t count = Py_SIZE(elements)
    cdef Py_ssize_t i
    if write_count(writer, op, count) < 0:
        return -1
    for i in range(count):
        if _put_item(writer, op, PyTuple_GET_ITEM(elements, i)) < 0:
            return -1
    return 0


cdef int _put_array(Writer* writer, Op* op, PyObject* value) noexcept:
    """Writes any sequence as an array."""
    cdef PyObject* copied
    cdef int status
    if PyTuple_Check(value):
        return _put_tuple(writer, op, value)
    if PyList_Check(value):
        return _put_list(writer, op, value)
    if PyUnicode_Check(value) or PyBytes_CheckExact(value):
        return fail(writer, b"expected a sequence of elements", value)
    copied = PySequence_Tuple(value)
    if copied == NULL:
        return fail(writer, b"expected a sequence", value)
    status = _put_tuple(writer, op, copied)
    Py_DECREF(copied)
    return status


cdef int _put_nested(Writer* writer, Op* op, PyObject* value) noexcept:
    """Writes a struct; `value` is NULL for a struct with defaults only."""
    if op.nullable:
        if reserve(writer, 1) < 0:
            return -1
        if op.tag >= 0:
            writer.at[0] = 0 if value == Py_None else 1
        else:
            writer.at[0] = 0xFF if value == Py_None else 1
        writer.at += 1
        if value == Py_None:
            return 0
    if value != NULL and Py_TYPE(value) != op.plan.type and not PyType_IsSubtype(Py_TYPE(value), op.plan.type):
        return fail(writer, b"expected a struct of the declared class", value)
    return write_struct(writer, op.plan, value)


cdef inline int _put_value(Writer* writer, Op* op, PyObject* value) noexcept:
    """Writes the value of one field."""
    if op.kind == STRUCT:
        return _put_nested(writer, op, value)
    elif value == Py_None:
        if op.kind == STRING or op.kind == BYTES or op.kind == RECORDS or op.kind == ARRAY:
            return _null(writer, op, op.kind != STRING)
        return fail(writer, b"null is not allowed", NULL)
    elif op.kind == STRING:
        return _put_string(writer, value, op.compact)
    elif op.kind == ARRAY:
        return _put_array(writer, op, value)
    elif op.kind == BYTES or op.kind == RECORDS:
        return _put_bytes(writer, value, op.compact)
    elif op.kind == UUID:
        return _put_uuid(writer, value)
    return _put_number(writer, op.kind, value)


cdef int _is_default(Op* op, PyObject* value) noexcept:
    """Returns 1 if a value is the field's default, 0 if not, -1 if the comparison failed."""
    cdef Plan* plan = op.plan
    cdef int i, status
    if value == op.default:
        return 1
    if value == Py_None or op.default == Py_None:
        return 0
    if op.kind == ARRAY:
        return Py_SIZE(value) == 0 if PyTuple_Check(value) or PyList_Check(value) else 0
    if op.kind == STRUCT:
        if Py_TYPE(value) != plan.type and not PyType_IsSubtype(Py_TYPE(value), plan.type):
            return 0
        for i in range(plan.n_ops + plan.n_tags + plan.n_absent):
            if i < plan.n_ops:
                op = &plan.ops[i]
            elif i < plan.n_ops + plan.n_tags:
                op = &plan.tags[i - plan.n_ops]
            else:
                op = &plan.absent[i - plan.n_ops - plan.n_tags]
            status = _is_default(op, _read(value, op))
            if status <= 0:
                return status
        return 1
    return PyObject_RichCompareBool(value, op.default, Py_EQ)


cdef int _put_tagged(Writer* writer, Op* op, PyObject* value) noexcept:
    """Writes a tagged field: number, size, value. The size is filled in afterwards and mostly takes one byte."""
    cdef Py_ssize_t begin, size
    cdef int wider = 0
    if reserve(writer, 10) < 0:
        return -1
    _put_uvarint(writer, <uint32_t>op.tag)
    writer.at += 1
    begin = writer.at - writer.start
    if _put_value(writer, op, value) < 0 or reserve(writer, 5) < 0:
        return -1
    size = writer.at - writer.start - begin
    while size >> (7 * (wider + 1)):
        wider += 1
    if wider:
        memmove(writer.start + begin + wider, writer.start + begin, size)
    writer.at = writer.start + begin - 1
    _put_uvarint(writer, <uint32_t>size)
    writer.at += size
    return 0


cdef int _put_tags(Writer* writer, Plan* plan, PyObject* instance) noexcept:
    """Writes the tag section: fields that differ from their default, in ascending order (KIP-482)."""
    cdef int i, same
    cdef uint32_t count = 0
    cdef uint64_t present = 0
    for i in range(plan.n_tags):
        same = _is_default(&plan.tags[i], _read(instance, &plan.tags[i]))
        if same < 0:
            writer.plan = plan
            writer.op = &plan.tags[i]
            return fail(writer, b"the value cannot be compared with its default", NULL)
        if not same:
            count += 1
            present |= <uint64_t>1 << i
    if reserve(writer, 5) < 0:
        return -1
    _put_uvarint(writer, count)
    for i in range(plan.n_tags):
        if present >> i & 1 and _put_tagged(writer, &plan.tags[i], _read(instance, &plan.tags[i])) < 0:
            if writer.plan == NULL:
                writer.plan = plan
                writer.op = &plan.tags[i]
            return -1
    return 0


cdef int _check_absent(Writer* writer, Plan* plan, PyObject* instance) noexcept:
    """Refuses values that this version would drop, unless their fields are ignorable."""
    cdef Op* op
    cdef PyObject* value
    cdef int i
    for i in range(plan.n_absent):
        op = &plan.absent[i]
        if op.ignorable:
            continue
        value = _read(instance, op)
        if value != op.default and _is_default(op, value) != 1:
            writer.plan = plan
            writer.op = op
            return fail(writer, b"version VERSION does not have the field", value)
    return 0


cdef int begin_own(Writer* writer, Py_ssize_t limit) except -1:
    """Takes new memory instead of the scratch memory, for a message that is written in steps between other messages."""
    global _scratch_taken
    cdef bint taken = _scratch_taken
    _scratch_taken = True
    try:
        begin(writer, limit)
    finally:
        _scratch_taken = taken
    return 0


cdef int write_field(Writer* writer, Plan* plan, Op* op, PyObject* instance) noexcept:
    """Writes one field of the fixed part of a struct."""
    if _put_value(writer, op, _read(instance, op)) < 0:
        if writer.plan == NULL:  # the error names the innermost struct
            writer.plan = plan
            writer.op = op
        return -1
    return 0


cdef int write_element(Writer* writer, Plan* plan, Op* op, PyObject* value) noexcept:
    """Writes one element of the array `op` of a struct."""
    if _put_item(writer, op, value) < 0:
        if writer.plan == NULL:
            writer.plan = plan
            writer.op = op
        return -1
    return 0


cdef int write_end(Writer* writer, Plan* plan, PyObject* instance) noexcept:
    """Ends a struct whose fixed part is written."""
    if plan.n_absent and instance != NULL and _check_absent(writer, plan, instance) < 0:
        return -1
    if not plan.flexible:
        return 0
    if plan.n_tags:
        return _put_tags(writer, plan, instance)
    if reserve(writer, 1) < 0:
        return -1
    writer.at[0] = 0
    writer.at += 1
    return 0


cdef int write_struct(Writer* writer, Plan* plan, PyObject* instance) noexcept:
    """Writes an object of the plan's class. If `instance` is NULL, writes the default value of every field."""
    cdef Op* op = plan.ops
    cdef Op* end = op + plan.n_ops
    while op < end:
        if write_field(writer, plan, op, instance) < 0:
            return -1
        op += 1
    return write_end(writer, plan, instance)
