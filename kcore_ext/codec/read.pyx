"""The decoder: executes a plan over the bytes and fills the slots of new objects.

No function raises during the walk: the Reader records the first failure, and `read_message` raises one DecodeError. A
length or count is compared with the remaining bytes before any allocation.
"""

from cpython.buffer cimport Py_buffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

from kcore_ext.util.byte_order cimport read_int32
from kcore_ext.codec.objects cimport new_instance
from kcore_ext.codec.plan cimport ARRAY, BYTES, FLOAT64, INT32, RECORDS, STRING, STRUCT, UUID, Op, Plan
from kcore_ext.codec.python_objects cimport (
    Py_DECREF, Py_INCREF, Py_None, Py_XDECREF, PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyErr_NoMemory,
    PyErr_Occurred, PyLong_FromLong, PyTuple_New, PyTuple_SET_ITEM, PyUnicode_DATA, PyUnicode_DecodeUTF8,
    PyUnicode_GET_LENGTH, PyUnicode_IS_ASCII,
)
from kcore_ext.codec.reader cimport FAILED, NULL_LENGTH, Reader, fail, lacks_bytes, read_length, read_number, read_uvarint
from kcore_ext.codec.plan import DecodeError, TooManyElementsError

DEF LONGEST_STRING = 0x7FFF  # Kafka's limit, in compact and in other strings

cdef const char* TOO_MANY_ELEMENTS = b"more elements than allowed"

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    PyObject* PySequence_GetSlice(PyObject* sequence, Py_ssize_t start, Py_ssize_t end)

cdef enum:
    SMALLEST_PART = 8  # records of at least an eighth of their frame become views

cdef object _frame = None  # the frame of `decode_with_views` during its call

cdef bytes _ZERO_UUID = bytes(16)
cdef str _EMPTY = ""


# ---------------------------------------------------------------- cache of repeated names
# Group ids, member ids and topic names occur in every request. The cache returns the string that was made earlier from
# the same bytes. This string needs no new memory, and its hash is known. Each slot has the newest string.
DEF SHORTEST_KEPT = 2  # Python itself caches shorter ones
DEF LONGEST_KEPT = 80
DEF KEPT = 4096
DEF KEPT_UUIDS = 1024

cdef PyObject* _kept[KEPT]
cdef PyObject* _kept_uuids[KEPT_UUIDS]


cdef inline uint64_t _eight(const unsigned char* at) noexcept:
    cdef uint64_t raw
    memcpy(&raw, at, 8)
    return raw


cdef inline size_t _cache_slot(const unsigned char* at, Py_ssize_t length) noexcept:
    """Returns the cache slot of a string. The hash of a long string covers only its length, its ends and its middle."""
    cdef uint64_t mixed = <uint64_t>length
    cdef Py_ssize_t i
    if length >= 8:
        mixed = (mixed ^ _eight(at)) * 0x9E3779B97F4A7C15ULL
        mixed = (mixed ^ mixed >> 29 ^ _eight(at + (length - 8) // 2)) * 0xBF58476D1CE4E5B9ULL
        mixed = (mixed ^ mixed >> 32 ^ _eight(at + length - 8)) * 0x94D049BB133111EBULL
    else:
        for i in range(length):
            mixed = (mixed ^ at[i]) * 0x9E3779B97F4A7C15ULL
    return mixed >> 52


cdef const unsigned char* _surrogate(const unsigned char* at, const unsigned char* end) noexcept:
    """Finds the next encoded surrogate (ED A0..BF 80..BF); NULL if there is none. ED always begins a character."""
    while end - at > 2:
        at = <const unsigned char*>memchr(at, 0xED, end - at - 2)
        if at == NULL:
            return NULL
        if (at[1] & 0xE0) == 0xA0 and (at[2] & 0xC0) == 0x80:
            return at
        at += 1
    return NULL


cdef PyObject* _text(const unsigned char* at, Py_ssize_t length) noexcept:
    """Decodes UTF-8. Replaces invalid bytes as Java does: an encoded surrogate becomes one U+FFFD, in Python three.
    The function creates no exception, because an exception would cost a microsecond for each invalid byte.
    """
    cdef PyObject* text = PyUnicode_DecodeUTF8(<const char*>at, length, b"replace")
    cdef unsigned char* copy
    cdef unsigned char* found
    if text == NULL or PyUnicode_IS_ASCII(text) or _surrogate(at, at + length) == NULL:
        return text
    Py_DECREF(text)
    copy = <unsigned char*>PyMem_Malloc(length)
    if copy == NULL:
        return PyErr_NoMemory()
    memcpy(copy, at, length)
    found = <unsigned char*>_surrogate(copy, copy + length)
    while found != NULL:
        memcpy(found, b"\xEF\xBF\xBD", 3)  # U+FFFD
        found = <unsigned char*>_surrogate(found + 3, copy + length)
    text = PyUnicode_DecodeUTF8(<const char*>copy, length, b"replace")
    PyMem_Free(copy)
    return text


cdef PyObject* _kept_string(const unsigned char* at, Py_ssize_t length) noexcept:
    """Decodes a string; caches only ASCII strings."""
    cdef PyObject** slot = &_kept[_cache_slot(at, length)]
    cdef PyObject* text = slot[0]
    if text != NULL and PyUnicode_GET_LENGTH(text) == length and memcmp(PyUnicode_DATA(text), at, length) == 0:
        Py_INCREF(text)
        return text
    text = _text(at, length)
    cdef PyObject* old = slot[0]
    if text != NULL and PyUnicode_IS_ASCII(text):
        Py_INCREF(text)
        slot[0] = text
        Py_XDECREF(old)
    return text


# ---------------------------------------------------------------- strings, bytes and uuids
cdef inline PyObject* _none() noexcept:
    Py_INCREF(Py_None)
    return Py_None


cdef inline PyObject* _string_at(const unsigned char* at, Py_ssize_t length) noexcept:
    """Returns the string that `length` bytes encode, from the cache if it has the string."""
    cdef PyObject* text
    if length == 0:
        text = <PyObject*>_EMPTY
        Py_INCREF(text)
        return text
    if SHORTEST_KEPT <= length <= LONGEST_KEPT:
        return _kept_string(at, length)
    return _text(at, length)


cdef inline PyObject* _string(Reader* reader, bint compact, bint nullable) noexcept:
    cdef Py_ssize_t length = read_length(reader, compact, False, nullable)
    cdef PyObject* text
    if length < 0:
        return _none() if length == NULL_LENGTH else NULL
    if length > LONGEST_STRING:
        return fail(reader, b"a string is longer than 32767 bytes:", length)
    if lacks_bytes(reader, length):
        return NULL
    text = _string_at(reader.at, length)
    reader.at += length
    return text


cdef inline PyObject* _bytes(Reader* reader, bint compact, bint nullable) noexcept:
    cdef Py_ssize_t length = read_length(reader, compact, True, nullable)
    if length < 0:
        return _none() if length == NULL_LENGTH else NULL
    if lacks_bytes(reader, length):
        return NULL
    cdef PyObject* data = PyBytes_FromStringAndSize(<const char*>reader.at, length)
    reader.at += length
    return data


cdef inline PyObject* _records(Reader* reader, bint compact, bint nullable) noexcept:
    """Reads records as bytes or, within `decode_with_views`, as a view of the frame.

    Records that are a small part of their frame become bytes, because a view would keep the whole frame in memory.
    """
    cdef Py_ssize_t length, at
    cdef PyObject* data
    if _frame is None or PyMemoryView_GET_BUFFER(_frame).buf != <void*>reader.start:
        return _bytes(reader, compact, nullable)
    length = read_length(reader, compact, True, nullable)
    if length < 0:
        return _none() if length == NULL_LENGTH else NULL
    if lacks_bytes(reader, length):
        return NULL
    at = reader.at - reader.start
    if length * SMALLEST_PART < reader.end - reader.start:
        data = PyBytes_FromStringAndSize(<const char*>reader.at, length)
    else:
        data = PySequence_GetSlice(<PyObject*>_frame, at, at + length)
    reader.at += length
    return data


cdef inline PyObject* _uuid(Reader* reader) noexcept:
    if lacks_bytes(reader, 16):
        return NULL
    cdef const unsigned char* at = reader.at
    cdef PyObject* uuid
    reader.at += 16
    if _eight(at) == 0 and _eight(at + 8) == 0:
        uuid = <PyObject*>_ZERO_UUID
        Py_INCREF(uuid)
        return uuid
    # Topic ids are cached like names.
    cdef PyObject** slot = &_kept_uuids[((_eight(at) ^ _eight(at + 8)) * 0x9E3779B97F4A7C15ULL) >> 54]
    uuid = slot[0]
    if uuid == NULL or memcmp(PyBytes_AS_STRING(uuid), at, 16) != 0:
        uuid = PyBytes_FromStringAndSize(<const char*>at, 16)
        if uuid == NULL:
            return NULL
        Py_XDECREF(slot[0])
        slot[0] = uuid
    Py_INCREF(uuid)
    return uuid


# ---------------------------------------------------------------- structures
cdef inline int _charge(Reader* reader, Py_ssize_t count) noexcept:
    """Counts elements of an array or tagged fields; returns -1 and records a failure above the limit of the message."""
    if count > reader.elements_left:
        fail(reader, TOO_MANY_ELEMENTS, -1)
        return -1
    reader.elements_left -= count
    return 0


cdef PyObject* _item(Op* op, Reader* reader) noexcept:
    """Reads one element of an array of strings, structs, uuids or bytes."""
    if op.item == STRUCT:
        return _struct(op.plan, reader)
    elif op.item == STRING:
        return _string(reader, op.compact, False)
    elif op.item == UUID:
        return _uuid(reader)
    elif op.item == BYTES or op.item == RECORDS:
        return _bytes(reader, op.compact, False)
    return read_number(reader, op.item)


cdef PyObject* _array(Op* op, Reader* reader) noexcept:
    """Reads a tuple of elements. Before it allocates the tuple, checks that enough bytes remain for the elements, and
    that the message may have so many elements.
    """
    cdef Py_ssize_t count = read_length(reader, op.compact, True, op.nullable)
    cdef Py_ssize_t i
    cdef PyObject* element
    if count < 0:
        return _none() if count == NULL_LENGTH else NULL
    if count > (reader.end - reader.at) // op.min_size:
        return fail(reader, b"an array has more elements than bytes are left for:", count)
    if _charge(reader, count) < 0:
        return NULL
    cdef PyObject* elements = PyTuple_New(count)
    if elements == NULL:
        return NULL
    cdef const unsigned char* at = reader.at
    if op.item == INT32:
        for i in range(count):
            element = PyLong_FromLong(read_int32(at + 4 * i))
            if element == NULL:
                Py_DECREF(elements)
                return NULL
            PyTuple_SET_ITEM(elements, i, element)
        reader.at = at + 4 * count
        return elements
    for i in range(count):
        element = _item(op, reader)
        if element == NULL:
            Py_DECREF(elements)
            return NULL
        PyTuple_SET_ITEM(elements, i, element)
    return elements


cdef PyObject* _value(Op* op, Reader* reader) noexcept:
    """Reads the value of one field."""
    cdef unsigned int present
    if op.kind == STRING:
        return _string(reader, op.compact, op.nullable)
    elif op.kind == ARRAY:
        return _array(op, reader)
    elif op.kind == RECORDS:
        return _records(reader, op.compact, op.nullable)
    elif op.kind == BYTES:
        return _bytes(reader, op.compact, op.nullable)
    elif op.kind == UUID:
        return _uuid(reader)
    elif op.kind == STRUCT:
        if op.nullable:
            if op.tag >= 0:
                if read_uvarint(reader, &present) < 0:
                    return NULL
            else:
                if lacks_bytes(reader, 1):
                    return NULL
                present = <signed char>reader.at[0] >= 0
                reader.at += 1
            if not present:
                return _none()
        return _struct(op.plan, reader)
    return read_number(reader, op.kind)


cdef inline PyObject** _slot(PyObject* instance, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*>instance + offset)


cdef inline void _default(PyObject* instance, Op* op) noexcept:
    """Sets an empty slot to its default; a default struct is created only at the first read."""
    cdef PyObject** slot = _slot(instance, op.offset)
    if slot[0] == NULL and op.default != NULL:
        Py_INCREF(op.default)
        slot[0] = op.default


cdef int _tag_header(Reader* reader, unsigned int* tag, unsigned int* size) noexcept:
    """Reads the number and size of the next tagged field; the size is within the remaining bytes."""
    if read_uvarint(reader, tag) < 0 or read_uvarint(reader, size) < 0:
        return -1
    if <Py_ssize_t>size[0] > reader.end - reader.at:
        fail(reader, b"a tagged field needs more bytes than are left:", size[0])
        return -1
    return 0


cdef int _tag_count(Reader* reader, unsigned int* count) noexcept:
    """Reads the number of tagged fields; each takes at least two bytes."""
    if reader.at < reader.end and reader.at[0] == 0:
        count[0] = 0
        reader.at += 1
        return 0
    if read_uvarint(reader, count) < 0:
        return -1
    if <Py_ssize_t>count[0] > (reader.end - reader.at) // 2:
        fail(reader, b"a tag section has more fields than bytes are left for:", count[0])
        return -1
    return _charge(reader, count[0])


cdef int skip_tags(Reader* reader) noexcept:
    """Skips a tag section; returns 0, or -1 with a recorded failure."""
    cdef unsigned int count, tag, size
    if _tag_count(reader, &count) < 0:
        return -1
    while count:
        if _tag_header(reader, &tag, &size) < 0:
            return -1
        reader.at += size
        count -= 1
    return 0


cdef int _tagged(Plan* plan, Reader* reader, PyObject* instance) noexcept:
    """Reads a tag section: decodes known fields within their size, skips unknown ones (KIP-482)."""
    cdef unsigned int count, tag, size
    cdef const unsigned char* end
    cdef PyObject* value
    cdef PyObject* old
    cdef PyObject** slot
    cdef int i
    if _tag_count(reader, &count) < 0:
        return -1
    while count:
        count -= 1
        if _tag_header(reader, &tag, &size) < 0:
            return -1
        for i in range(plan.n_tags):
            if <unsigned int>plan.tags[i].tag != tag:
                continue
            end = reader.end
            reader.end = reader.at + size
            value = _value(&plan.tags[i], reader)
            if value == NULL:
                return -1
            reader.at = reader.end
            reader.end = end
            slot = _slot(instance, plan.tags[i].offset)
            old = slot[0]
            slot[0] = value
            Py_XDECREF(old)  # if a tag is repeated, its last value counts
            break
        else:
            reader.at += size
    return 0


cdef PyObject* _struct(Plan* plan, Reader* reader) noexcept:
    """Reads a new object with every slot filled, or returns NULL."""
    cdef PyObject* instance = new_instance(plan.type)
    cdef PyObject* value
    cdef Op* op = plan.ops
    cdef Op* end = op + plan.n_ops
    if instance == NULL:
        return NULL
    while op < end:
        if op.kind <= FLOAT64:  # the most common kinds, without a call
            value = read_number(reader, op.kind)
        elif op.kind == STRING:
            value = _string(reader, op.compact, op.nullable)
        else:
            value = _value(op, reader)
        if value == NULL:
            Py_DECREF(instance)
            return NULL
        _slot(instance, op.offset)[0] = value
        op += 1
    if plan.flexible and _tagged(plan, reader, instance) < 0:
        Py_DECREF(instance)
        return NULL
    cdef int i
    for i in range(plan.n_tags):
        _default(instance, &plan.tags[i])
    for i in range(plan.n_absent):
        _default(instance, &plan.absent[i])
    return instance


# ---------------------------------------------------------------- for other modules
cdef int raise_failure(Reader* reader) except -1:
    """Raises the error of a failed decode: the recorded failure, or an exception of Python's own (no memory)."""
    if reader.reason == NULL:
        if PyErr_Occurred() != NULL:
            return -1
        raise SystemError("reading failed without a reason")
    if reader.reason == TOO_MANY_ELEMENTS:
        raise TooManyElementsError(reader.at - reader.start, "the message has more array elements than allowed")
    reason = reader.reason.decode()
    if reader.found >= 0:
        reason = f"{reason} {reader.found}; bytes left: {reader.end - reader.at}"
    raise DecodeError(reader.at - reader.start, reason)


cdef str text_of(const unsigned char* at, Py_ssize_t size):
    cdef PyObject* raw = _string_at(at, size)
    if raw == NULL:
        raise MemoryError
    text = <object>raw
    Py_DECREF(raw)
    return <str>text


cdef object read_client_id(Reader* reader):
    """Reads a request header's client id; null becomes "", as in the member ids derived from it."""
    cdef PyObject* text = _string(reader, False, True)
    if text == NULL:
        raise_failure(reader)
    client_id = <object>text
    Py_DECREF(text)
    return "" if client_id is None else client_id


def decode_with_views(decode, frame, int version, Py_ssize_t position):
    """Decodes a message whose records may be views of its frame.

    Args:
        decode: the function `decode` of the message's class.
        frame: the frame. The caller keeps its bytes unchanged while a view of it exists.
        version: the version of the message.
        position: the start of the message in the frame.

    Raises:
        TooManyElementsError, DecodeError: see `Message.decode`.
    """
    global _frame
    _frame = memoryview(frame)
    try:
        return decode(frame, version, position)
    finally:
        _frame = None


cdef object read_message(
    Plan* plan, const unsigned char* data, Py_ssize_t size, Py_ssize_t position, Py_ssize_t max_elements=UNLIMITED
):
    """Reads one message from `data[position:size]`; ignores bytes after it.

    The time to decode a message depends mostly on the number of its array elements; `max_elements` bounds it. Elements
    of nested arrays and tagged fields also count.

    Raises:
        TooManyElementsError: the message has more than `max_elements` elements.
        DecodeError: the bytes are malformed.
    """
    cdef Reader reader
    if not 0 <= position <= size:
        raise DecodeError(position, f"the position is outside of the {size} bytes")
    reader.start = data
    reader.at = data + position
    reader.end = data + size
    reader.reason = NULL
    reader.found = -1
    reader.elements_left = max_elements
    cdef PyObject* raw = _struct(plan, &reader)
    if raw == NULL:
        raise_failure(&reader)
    message = <object>raw
    Py_DECREF(raw)
    return message
