"""The public interface of the codec: the base class of every message, frames and request headers.

Messages are instances of declared classes (`kcore.protocol.schema`) with real slots. Constructing, comparing, reading
and writing them happens here and in `read` and `write`, without a Python-level call per field.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport Py_EQ, Py_NE, PyObject, PyTypeObject

from kcore_ext.codec.plan import DecodeError, EncodeError

from kcore_ext.codec.objects cimport adopt, new_instance
from kcore_ext.codec.plan cimport Plan, Schema, register, schema_of
from kcore_ext.codec.read cimport UNLIMITED, raise_failure, read_client_id, read_message, skip_tags
from kcore_ext.codec.reader cimport Reader
from kcore_ext.util.byte_order cimport write_int32
from kcore_ext.codec.write cimport (
    LONGEST_MESSAGE, Writer, begin, finish, finish_frame, put_int16, put_int32, put_raw, write_struct,
)

cdef extern from *:
    """
    static void kcore_set_vectorcall(PyObject *cls, vectorcallfunc construct) {
        ((PyTypeObject *)cls)->tp_vectorcall = construct;
    }
    /* A metaclass made in Python does not inherit the flag before Python 3.12. */
    static void kcore_let_vectorcall(PyTypeObject *metaclass) {
        metaclass->tp_vectorcall_offset = offsetof(PyTypeObject, tp_vectorcall);
        metaclass->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    }
    static inline int kcore_same_constructor(PyTypeObject *cls, PyTypeObject *base) {
        return cls->tp_init == base->tp_init && cls->tp_new == base->tp_new;
    }
    """
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) except NULL
    void kcore_set_vectorcall(object cls, vectorcallfunc construct)
    void kcore_let_vectorcall(PyTypeObject* metaclass)
    bint kcore_same_constructor(PyTypeObject* cls, PyTypeObject* base)

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)
    void Py_INCREF(PyObject*)
    void Py_DECREF(PyObject*)
    void Py_XDECREF(PyObject*)
    Py_ssize_t PyVectorcall_NARGS(size_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    bint PyTuple_CheckExact(object)
    bint PyList_CheckExact(object)
    bint PyBytes_CheckExact(object)
    char* PyBytes_AS_STRING(object)
    Py_ssize_t PyBytes_GET_SIZE(object)
    ctypedef struct Py_buffer:
        void* buf
        Py_ssize_t len
    int PyBUF_SIMPLE
    int PyObject_GetBuffer(object, Py_buffer*, int) except -1
    void PyBuffer_Release(Py_buffer*)
    ctypedef struct PyMethodDef:
        const char* ml_name
        void* ml_meth
        int ml_flags
        const char* ml_doc
    int METH_FASTCALL
    int METH_KEYWORDS
    object PyCFunction_New(PyMethodDef*, object)


cdef inline PyObject** _at(PyObject* instance, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*>instance + offset)


cdef inline void _put(PyObject** slot, PyObject* value) noexcept:
    """Stores a value in a slot; releases the slot's earlier value, if any."""
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = value
    Py_XDECREF(old)


cdef int _find(Schema schema, PyObject* keyword, int hint) except -2:
    """Returns the index of a keyword's field; -1 without such a field. The search begins at the index `hint`."""
    cdef int i
    for i in range(hint, schema.n):
        if schema.names[i] == keyword:
            return i
    for i in range(hint):
        if schema.names[i] == keyword:
            return i
    for i in range(schema.n):  # a keyword that is not interned
        if <object>schema.names[i] == <object>keyword:
            return i
    return -1


cdef int _assign(PyObject* instance, Schema schema, PyObject* const* values, PyObject* keywords) except -1:
    """Fills the slots of an instance from keyword arguments, and the empty ones with their defaults."""
    cdef int i, at, hint = 0
    cdef int given = 0 if keywords == NULL else <int>PyTuple_GET_SIZE(keywords)
    cdef PyObject** slot
    for i in range(given):
        at = _find(schema, PyTuple_GET_ITEM(keywords, i), hint)
        if at < 0:
            raise TypeError(f"{schema.cls.__name__} has no field {<object>PyTuple_GET_ITEM(keywords, i)!r}")
        hint = at + 1
        _put(_at(instance, schema.offsets[at]), values[i])
    for i in range(schema.n):
        slot = _at(instance, schema.offsets[i])
        if slot[0] == NULL and schema.defaults[i] != NULL:
            Py_INCREF(schema.defaults[i])
            slot[0] = schema.defaults[i]
    return 0


cdef PyObject* _construct(PyObject* cls, PyObject* const* args, size_t nargsf, PyObject* keywords) except NULL:
    """Creates an object for `Class(field=value, ...)` without the argument tuple and dictionary of type.__call__."""
    if PyVectorcall_NARGS(nargsf):
        raise TypeError(f"{(<object>cls).__name__} takes keyword arguments only")
    cdef PyObject* instance = new_instance(<PyTypeObject*>cls)
    if instance == NULL:
        raise MemoryError
    try:
        _assign(instance, schema_of(<PyTypeObject*>cls), args, keywords)
    except:
        Py_DECREF(instance)
        raise
    return instance


cdef object _new_struct(PyTypeObject* cls):
    """Creates an instance with all defaults."""
    cdef PyObject* raw = _construct(<PyObject*>cls, NULL, 0, NULL)
    instance = <object>raw
    Py_DECREF(raw)
    return instance


cdef object _get(PyObject* instance, Schema schema, int at):
    """Returns the value of a field; creates the default of an empty slot."""
    cdef PyObject** slot = _at(instance, schema.offsets[at])
    if slot[0] == NULL:
        if schema.defaults[at] != NULL:
            return <object>schema.defaults[at]
        made = _new_struct(schema.structs[at])
        _put(slot, <PyObject*>made)
    return <object>slot[0]


cdef class LazySlot:
    """The descriptor of a field whose default is a struct. Reading an empty slot stores a new struct in it.

    A default needs no memory until its first read, and no two messages share a mutable default.
    """

    cdef Schema schema
    cdef int at

    def __init__(self, Schema schema, int at):
        self.schema = schema
        self.at = at

    def __get__(self, instance, owner):
        if instance is None:
            return self
        self._check(instance)
        return _get(<PyObject*>instance, self.schema, self.at)

    def __set__(self, instance, value):
        self._check(instance)
        _put(_at(<PyObject*>instance, self.schema.offsets[self.at]), <PyObject*>value)

    def _check(self, instance):
        if not isinstance(instance, self.schema.cls):
            raise TypeError(f"{type(instance).__name__} is not a {self.schema.cls.__name__}")


cdef bint _equal_values(object left, object right) except -1:
    """Compares values; a list equals a tuple with the same elements."""
    if left is right:
        return True
    if PyTuple_CheckExact(left) or PyList_CheckExact(left):
        if not (PyTuple_CheckExact(right) or PyList_CheckExact(right)) or len(left) != len(right):
            return False
        for one, other in zip(left, right):
            if not _equal_values(one, other):
                return False
        return True
    return left == right


cdef class StructBase:
    """The base of every declared class: keyword-only construction, equality by value, repr, pickling."""

    def __init__(self, **fields):
        cdef Schema schema = schema_of(Py_TYPE(self))
        cdef int at
        for name, given in fields.items():
            at = _find(schema, <PyObject*>name, 0)
            if at < 0:
                raise TypeError(f"{schema.cls.__name__} has no field {name!r}")
            _put(_at(<PyObject*>self, schema.offsets[at]), <PyObject*>given)
        _assign(<PyObject*>self, schema, NULL, NULL)

    def __richcmp__(self, other, int operation):
        if (operation != Py_EQ and operation != Py_NE) or type(self) is not type(other):
            return NotImplemented
        cdef Schema schema = schema_of(Py_TYPE(self))
        cdef int i
        for i in range(schema.n):
            if not _equal_values(_get(<PyObject*>self, schema, i), _get(<PyObject*>other, schema, i)):
                return operation == Py_NE
        return operation == Py_EQ

    def encode(self, int version):
        """Documented at `kcore.protocol.schema.Message.encode`."""
        return encode_message(self, version)

    def __repr__(self):
        """Formats the constructor call of an equal object; omits fields with their default value."""
        cdef Schema schema = schema_of(Py_TYPE(self))
        cdef int i
        shown = []
        for i in range(schema.n):
            value = _get(<PyObject*>self, schema, i)
            default = _new_struct(schema.structs[i]) if schema.defaults[i] == NULL else <object>schema.defaults[i]
            if not _equal_values(value, default):
                name = <object>schema.names[i]
                shown.append(f"{name}={_shown_code(value) if name.endswith('error_code') else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self):
        cdef Schema schema = schema_of(Py_TYPE(self))
        return _restore, (type(self), tuple([_get(<PyObject*>self, schema, i) for i in range(schema.n)]))


def _shown_code(value):
    """Formats an error code by its name, as `ErrorCode.INVALID_REQUEST`. Formats an unknown code as its number."""
    from kcore.protocol.error_codes import code_name  # the package imports this module

    name = code_name(value) if isinstance(value, int) else ""
    return f"ErrorCode.{name}" if name.isidentifier() else repr(value)


def _restore(cls, values):
    """Unpickles a struct from its values in the order of its fields."""
    instance = cls()
    for spec, value in zip(cls.FIELDS, values):
        setattr(instance, spec.name, value)
    return instance


def bind(cls, schema):
    """Connects a declared class with its schema. The metaclass calls it after creating the class.

    It sets the constructor, the descriptors of lazy defaults, and the decoder.

    Args:
        cls: the class.
        schema: the `Schema` of the class.
    """
    cdef Schema known = schema
    cdef int i
    adopt(<PyTypeObject*>cls, <PyTypeObject*>StructBase)
    register(<PyTypeObject*>cls, known)
    kcore_let_vectorcall(Py_TYPE(cls))
    if kcore_same_constructor(<PyTypeObject*>cls, <PyTypeObject*>StructBase):
        kcore_set_vectorcall(cls, _construct)
    if known.max_version >= 0:
        type.__setattr__(cls, "decode", PyCFunction_New(&_decode_method, known))
    if "FIELDS" in cls.__dict__:
        for i in range(known.n):
            if known.defaults[i] == NULL:
                type.__setattr__(cls, <object>known.names[i], LazySlot(known, i))


# ---------------------------------------------------------------- messages
cdef Plan* _plan(Schema schema, int version, bint writing) except NULL:
    """Returns the plan of a supported version."""
    if version < schema.min_version or version > schema.max_version:
        reason = f"unknown version {version}; valid: {schema.min_version} to {schema.max_version}"
        if writing:
            raise EncodeError(schema.cls.__name__, reason)
        raise DecodeError(0, f"{schema.cls.__name__}: {reason}")
    return schema.plan(version, version >= schema.flexible_since)


cdef bytes encode_message(object message, int version):
    """Encodes a message in a version, without any header."""
    cdef Writer writer
    cdef Plan* plan = _plan(schema_of(Py_TYPE(message)), version, True)
    begin(&writer, LONGEST_MESSAGE)
    return finish(&writer, write_struct(&writer, plan, <PyObject*>message) == 0, version)


cdef object decode_message(Schema schema, object data, int version, Py_ssize_t position, Py_ssize_t max_elements):
    """Decodes a message from any object with the buffer protocol. See `read_message` for `max_elements`."""
    cdef Plan* plan = _plan(schema, version, False)
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return read_message(
            plan, <const unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), position, max_elements
        )
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return read_message(plan, <const unsigned char*>view.buf, view.len, position, max_elements)
    finally:
        PyBuffer_Release(&view)


DECODE_ARGUMENTS = ("data", "version", "position", "max_elements")


cdef PyObject* _decode(PyObject* schema, PyObject* const* args, Py_ssize_t count, PyObject* keywords) except NULL:
    """Implements `Class.decode(data, version, position=0, max_elements=UNLIMITED)`; the interpreter calls it without an
    argument tuple."""
    cdef PyObject* given[4]
    cdef Py_ssize_t i, named = 0 if keywords == NULL else PyTuple_GET_SIZE(keywords)
    cls = (<Schema>schema).cls
    given[0] = given[1] = given[2] = given[3] = NULL
    if count > 4:
        raise TypeError(f"{cls.__name__}.decode takes at most 4 arguments, {count} were given")
    for i in range(count):
        given[i] = args[i]
    for i in range(named):
        name = <object>PyTuple_GET_ITEM(keywords, i)
        at = DECODE_ARGUMENTS.index(name) if name in DECODE_ARGUMENTS else -1
        if at < 0 or given[<int>at] != NULL:
            raise TypeError(f"{cls.__name__}.decode: unexpected argument {name!r}")
        given[<int>at] = args[count + i]
    if given[0] == NULL or given[1] == NULL:
        raise TypeError(f"{cls.__name__}.decode needs data and a version")
    message = decode_message(<Schema>schema, <object>given[0], <object>given[1],
                             0 if given[2] == NULL else <object>given[2],
                             UNLIMITED if given[3] == NULL else <object>given[3])
    Py_INCREF(<PyObject*>message)
    return <PyObject*>message


cdef PyMethodDef _decode_method
_decode_method.ml_name = b"decode"
_decode_method.ml_meth = <void*>_decode
_decode_method.ml_flags = METH_FASTCALL | METH_KEYWORDS
_decode_method.ml_doc = b"decode(data, version, position=0, max_elements=UNLIMITED): see kcore.protocol.schema.Message.decode"


# ---------------------------------------------------------------- frames and headers
cdef enum:
    FRAME_LENGTH_BYTES = 4

cdef Py_ssize_t LONGEST_FRAME = <Py_ssize_t>LONGEST_MESSAGE + FRAME_LENGTH_BYTES


def encode_response(response, int version, int correlation_id, int header_version, *, limit_bytes=None):
    """Builds the whole frame of a response: length, header, body.

    Args:
        response: the message.
        version: the version of the request that it responds to.
        correlation_id: the correlation id of the request.
        header_version: 1 for a header with a tag section, 0 without (see `response_header_version`).
        limit_bytes: the maximum size of the frame, its length included; None: the range of an int32.

    Returns:
        The bytes to send.

    Raises:
        MessageTooLargeError: the frame would be larger; encoding stops as soon as that is known.
        EncodeError: see `Message.encode`.
    """
    cdef Py_ssize_t limit = LONGEST_FRAME if limit_bytes is None else limit_bytes
    return encode_response_frame(response, version, correlation_id, header_version, limit)


cdef bytes encode_response_frame(
    object response, int version, int correlation_id, int header_version, Py_ssize_t limit_bytes=LONGEST_FRAME
):
    cdef Writer writer
    cdef Plan* plan = _plan(schema_of(Py_TYPE(response)), version, True)
    begin(&writer, min(limit_bytes, LONGEST_FRAME))
    writer.at += FRAME_LENGTH_BYTES  # `finish_frame` fills it
    put_int32(&writer, correlation_id)
    if header_version:
        writer.at[0] = 0
        writer.at += 1
    return finish_frame(&writer, write_struct(&writer, plan, <PyObject*>response) == 0, version)


def encode_request(request, int version, int correlation_id, str client_id=None):
    """Builds the whole frame of a request: length, header, body.

    Args:
        request: the message.
        version: its API version.
        correlation_id: the number that the response will carry.
        client_id: the sender's name, None for null.

    Returns:
        The bytes to send.

    Raises:
        MessageTooLargeError: the frame would exceed the range of an int32.
        EncodeError: see `Message.encode`; or the client id has more than 32767 bytes.
    """
    cdef Writer writer
    cdef Schema schema = schema_of(Py_TYPE(request))
    cdef Plan* plan = _plan(schema, version, True)
    cdef bytes name = b"" if client_id is None else client_id.encode()
    if len(name) > 0x7FFF:
        raise EncodeError("RequestHeader.client_id", f"a string has at most 32767 bytes, found {len(name)}")
    begin(&writer, LONGEST_FRAME)
    writer.at += FRAME_LENGTH_BYTES  # `finish_frame` fills it
    put_int16(&writer, schema.api_key)
    put_int16(&writer, version)
    put_int32(&writer, correlation_id)
    put_int16(&writer, -1 if client_id is None else <int>len(name))
    cdef bint written = put_raw(&writer, <const char*>PyBytes_AS_STRING(name), len(name)) == 0
    if written and plan.flexible:
        writer.at[0] = 0
        writer.at += 1
    written = written and write_struct(&writer, plan, <PyObject*>request) == 0
    return finish_frame(&writer, written, version)


DEF UNKNOWN = -1
DEF API_KEYS = 256
cdef int _flexible_since[API_KEYS]
for _key in range(API_KEYS):
    _flexible_since[_key] = UNKNOWN
cdef object _resolve = None


def set_flexible_versions(resolve):
    """Sets the function that returns the first flexible version of an API.

    `decode_request_header` calls the function at the first request of each API.

    Args:
        resolve: a function from an API key to a version; KeyError for a key that is not served.
    """
    global _resolve
    _resolve = resolve


cdef int _first_flexible(int api_key) except -2:
    """Returns the first flexible version of an API; UNKNOWN for a key without messages."""
    if not 0 <= api_key < API_KEYS:
        return UNKNOWN
    if _flexible_since[api_key] == UNKNOWN:
        try:
            _flexible_since[api_key] = _resolve(api_key)
        except KeyError:
            pass
    return _flexible_since[api_key]


cdef enum:
    MAX_HEADER_TAGS = 1000  # today's headers have no tagged fields


cdef object read_request_header(const unsigned char* data, Py_ssize_t size, Py_ssize_t position, RequestHead* head):
    """Fills `head` and returns the client id, like `decode_request_header` without Python objects."""
    cdef Reader reader
    cdef int flexible_since
    if position < 0 or size - position < 8:
        raise DecodeError(position, f"a request header needs 8 bytes, found {max(0, size - position)}")
    reader.start = data
    reader.at = data + position + 8
    reader.end = data + size
    reader.reason = NULL
    reader.found = -1
    reader.elements_left = MAX_HEADER_TAGS
    data += position
    head.api_key = <short>(data[0] << 8 | data[1])
    head.api_version = <short>(data[2] << 8 | data[3])
    head.correlation_id = <int>(<unsigned int>data[4] << 24 | data[5] << 16 | data[6] << 8 | data[7])
    flexible_since = _first_flexible(head.api_key)
    if flexible_since == UNKNOWN:
        raise DecodeError(position, f"API key {head.api_key} is unknown")
    client_id = read_client_id(&reader)
    if head.api_version >= flexible_since and skip_tags(&reader) < 0:
        raise_failure(&reader)
    head.body = reader.at - reader.start
    return client_id


def decode_request_header(data, Py_ssize_t position=0):
    """Reads the header in front of a request.

    The header has a tag section in all flexible versions of the API, even if this module does not know the version. So
    an ApiVersions request of a future version can get a response (KIP-511).

    Args:
        data: the frame without its length.
        position: the start of the header.

    Returns:
        The tuple (api_key, api_version, correlation_id, client_id, position of the body); a null client id becomes "".

    Raises:
        DecodeError: the header is truncated or malformed, or the API key has no messages.
    """
    cdef RequestHead head
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        client_id = read_request_header(<const unsigned char*>view.buf, view.len, position, &head)
    finally:
        PyBuffer_Release(&view)
    return head.api_key, head.api_version, head.correlation_id, client_id, head.body


cdef bytes frame_with_id(bytes frame, int correlation_id):
    """Copies the frame of a response, with the correlation id of another request."""
    cdef bytes copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
    write_int32(<unsigned char*>PyBytes_AS_STRING(copy) + FRAME_LENGTH_BYTES, correlation_id)
    return copy
