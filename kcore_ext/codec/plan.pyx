"""Schemas and the plans compiled from them; the errors of the codec, and its error handler for invalid UTF-8.

A plan is compiled at the first use of a (class, version) and stored with the class. plan.pxd describes its layout.
"""

import codecs

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport uintptr_t

from kcore_ext.util.slots cimport slot_offset


WIRE_KINDS = {
    "bool": BOOL,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "float64": FLOAT64,
    "uuid": UUID,
    "string": STRING,
    "bytes": BYTES,
    "records": RECORDS,
    "struct": STRUCT,
    "array": ARRAY,
}
globals()["STRUCT"] = STRUCT
globals()["ARRAY"] = ARRAY


class DecodeError(ValueError):
    """Malformed bytes.

    Attributes:
        position: the offset in the buffer at which reading failed.
        reason: the expected and the found value.
    """

    def __init__(self, position, reason):
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self):
        return f"at byte {self.position}: {self.reason}"


class TooManyElementsError(DecodeError):
    """A message with more array elements than its reader accepts."""


class EncodeError(ValueError):
    """A value that cannot be encoded.

    Attributes:
        field: the class and the field, as in ``"HeartbeatRequest.generation_id"``.
        reason: the expected and the found value.
    """

    def __init__(self, field, reason):
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self):
        return f"{self.field}: {self.reason}"


class MessageTooLargeError(EncodeError):
    """A message or frame above the size limit of its writer.

    Attributes:
        limit_bytes: the size limit in bytes.
    """

    def __init__(self, field, limit_bytes):
        super().__init__(field, f"the message would have more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes

    def __reduce__(self):
        return type(self), (self.field, self.limit_bytes)


def _as_java(error):
    """Replaces invalid UTF-8 as Java and the decoder do (`read._text`). Spark's text columns use this error handler."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    if data[start] == 0xED and start + 2 < len(data) and data[start + 1] >= 0xA0 and data[start + 1] < 0xC0 \
            and 0x80 <= data[start + 2] < 0xC0:
        return "\uFFFD", start + 3
    return "\uFFFD", error.end


codecs.register_error("kcore.java", _as_java)


cdef class FieldSpec:
    """One declared field in the form that the plan compiler reads; created by `kcore.protocol.schema`."""

    def __init__(self, str name, int kind, int item, object struct, tuple versions, tuple nullable, tuple tagged,
                 int tag, bint ignorable, bint compact, object default, bint fresh):
        self.name = name
        self.kind = kind
        self.item = item
        self.struct = struct
        self.versions = versions
        self.nullable = nullable
        self.tagged = tagged
        self.tag = tag
        self.ignorable = ignorable
        self.compact = compact
        self.default = default
        self.fresh = fresh

    def __repr__(self):
        return f"FieldSpec({self.name!r}, kind={self.kind}, versions={self.versions})"


cdef bint _within(tuple span, int version):
    return <int>span[0] <= version <= <int>span[1]


cdef Py_ssize_t _min_size(int kind, bint compact, Plan* nested, bint nullable):
    """Returns the smallest encoded size of a value of this kind."""
    if kind == BOOL or kind == INT8:
        return 1
    if kind == INT16 or kind == UINT16:
        return 2
    if kind == INT32 or kind == UINT32:
        return 4
    if kind == INT64 or kind == FLOAT64:
        return 8
    if kind == UUID:
        return 16
    if kind == STRING:
        return 1 if compact else 2
    if kind == STRUCT:
        return 1 if nullable else nested.min_size
    return 1 if compact else 4


cdef class PlanHolder:
    """The owner of the arrays of one plan. It keeps the objects alive to which the plan points."""

    def __dealloc__(self):
        PyMem_Free(self.plan.ops)
        PyMem_Free(self.plan.tags)
        PyMem_Free(self.plan.absent)


cdef class Schema:
    """The declared fields of one class, and its compiled plans by version."""

    def __cinit__(self, object cls, tuple fields):
        cdef int i
        cdef FieldSpec spec
        self.cls = cls
        self.fields = fields
        self.api_key = getattr(cls, "API_KEY", -1)
        self.min_version = getattr(cls, "MIN_VERSION", 0)
        self.max_version = getattr(cls, "MAX_VERSION", -1)  # a nested struct has no versions of its own
        self.flexible_since = getattr(cls, "FLEXIBLE_SINCE", 0)
        self.holders = {}
        self.n = len(fields)
        self.names = <PyObject**>PyMem_Calloc(self.n + 1, sizeof(PyObject*))
        self.defaults = <PyObject**>PyMem_Calloc(self.n + 1, sizeof(PyObject*))
        self.offsets = <Py_ssize_t*>PyMem_Calloc(self.n + 1, sizeof(Py_ssize_t))
        self.structs = <PyTypeObject**>PyMem_Calloc(self.n + 1, sizeof(PyTypeObject*))
        if not self.names or not self.defaults or not self.offsets or not self.structs:
            raise MemoryError
        parent = None
        if "FIELDS" not in cls.__dict__:  # a subclass without fields of its own: its slots are its parent's
            parent = next((base.__dict__["__schema__"] for base in cls.__mro__[1:] if "__schema__" in base.__dict__), None)
        for i, spec in enumerate(fields):
            self.names[i] = <PyObject*>spec.name
            self.defaults[i] = NULL if spec.fresh else <PyObject*>spec.default
            self.structs[i] = NULL if spec.struct is None else <PyTypeObject*>spec.struct
            if parent is not None:
                self.offsets[i] = (<Schema>parent).offsets[i]
            else:
                self.offsets[i] = slot_offset(cls.__dict__[spec.name])
            if self.offsets[i] < 0:
                raise TypeError(f"{cls.__name__}.{spec.name} is not a slot")

    def __dealloc__(self):
        _forget(self)
        PyMem_Free(self.names)
        PyMem_Free(self.defaults)
        PyMem_Free(self.offsets)
        PyMem_Free(self.structs)

    cdef Plan* plan(self, int version, bint flexible) except NULL:
        cdef unsigned int at = <unsigned int>version * 2 + flexible
        if at < 64 and self.recent[at] != NULL:
            return self.recent[at]
        cdef Plan* found = &self.holder(version, flexible).plan
        if at < 64:
            self.recent[at] = found
        return found

    cdef PlanHolder holder(self, int version, bint flexible):
        key = (version, flexible)
        holder = self.holders.get(key)
        if holder is None:
            holder = _compile(self, version, flexible)
            self.holders[key] = holder
        return <PlanHolder>holder


cdef PlanHolder _compile(Schema schema, int version, bint flexible):
    """Makes the plan of a version: divides its fields into fixed, tagged and absent fields."""
    cdef PlanHolder holder = PlanHolder.__new__(PlanHolder)
    cdef Plan* plan = &holder.plan
    cdef FieldSpec spec
    cdef Op* op
    cdef int i
    holder.owners = [schema]
    plan.type = <PyTypeObject*>schema.cls
    plan.flexible = flexible
    plan.min_size = 1 if flexible else 0
    plan.ops = <Op*>PyMem_Calloc(schema.n + 1, sizeof(Op))
    plan.tags = <Op*>PyMem_Calloc(schema.n + 1, sizeof(Op))
    plan.absent = <Op*>PyMem_Calloc(schema.n + 1, sizeof(Op))
    if not plan.ops or not plan.tags or not plan.absent:
        raise MemoryError
    order = sorted(range(schema.n), key=lambda at: (<FieldSpec>schema.fields[at]).tag)  # stable: untagged ones first
    for i in order:
        spec = <FieldSpec>schema.fields[i]
        if not _within(spec.versions, version):
            op = &plan.absent[plan.n_absent]
            plan.n_absent += 1
        elif flexible and _within(spec.tagged, version):
            op = &plan.tags[plan.n_tags]
            plan.n_tags += 1
        else:
            op = &plan.ops[plan.n_ops]
            plan.n_ops += 1
        _fill(op, schema, i, version, flexible, holder)
        if op == &plan.ops[plan.n_ops - 1]:
            plan.min_size += _min_size(op.kind, op.compact, op.plan, op.nullable)
    return holder


cdef int _fill(Op* op, Schema schema, int at, int version, bint flexible, PlanHolder holder) except -1:
    """Fills an operation of a plan from the declaration of its field."""
    cdef FieldSpec spec = <FieldSpec>schema.fields[at]
    cdef PlanHolder nested
    op.kind = spec.kind
    op.item = spec.item
    op.tag = spec.tag if flexible and _within(spec.tagged, version) else -1
    op.compact = flexible and spec.compact
    op.nullable = _within(spec.nullable, version)
    op.ignorable = spec.ignorable
    op.offset = schema.offsets[at]
    op.default = schema.defaults[at]
    op.name = schema.names[at]
    if spec.struct is not None:
        nested = schema_of(<PyTypeObject*>spec.struct).holder(version, flexible)
        holder.owners.append(nested)
        op.plan = &nested.plan
    if spec.kind == ARRAY:
        # Never 0: otherwise a short message could request billions of elements without any bytes.
        op.min_size = max(1, _min_size(spec.item, op.compact, op.plan, False))
    else:
        op.min_size = _min_size(spec.kind, op.compact, op.plan, op.nullable)
    return 0


# Maps classes to schemas: a small direct-mapped cache in front of the class's dictionary.
DEF CACHE = 1024
cdef PyTypeObject* _cached_class[CACHE]
cdef PyObject* _cached_schema[CACHE]


cdef inline size_t _slot(PyTypeObject* cls) noexcept:
    cdef uintptr_t address = <uintptr_t>cls
    return (address >> 5 ^ address >> 13) % CACHE


cdef Schema schema_of(PyTypeObject* cls):
    """Returns the schema of a declared class; raises TypeError for any other."""
    cdef size_t at = _slot(cls)
    if _cached_class[at] == cls:
        return <Schema>_cached_schema[at]
    schema = (<object>cls).__dict__.get("__schema__")
    if schema is None:
        raise TypeError(f"{(<object>cls).__name__} is not a declared message")
    _cached_class[at] = cls
    _cached_schema[at] = <PyObject*>schema
    return <Schema>schema


cdef void register(PyTypeObject* cls, Schema schema):
    """Sets the schema of `cls`."""
    type.__setattr__(<object>cls, "__schema__", schema)
    schema_of(cls)


cdef void _forget(Schema schema) noexcept:
    """Removes a freed schema from the cache, because a new class can get the address of the freed class."""
    for at in range(CACHE):
        if _cached_schema[at] == <PyObject*>schema:
            _cached_class[at] = NULL
            _cached_schema[at] = NULL
