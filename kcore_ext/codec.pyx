"""The public face of the codec: the base class of every message, frames and request headers.

Messages are instances of declared classes (`kcore.protocol.schema`) with real slots. Constructing, comparing, reading
and writing them happens here and in the two modules below without a Python-level call per field.
"""

from cpython.object cimport Py_EQ, Py_NE, PyObject, PyTypeObject

from kcore_ext.codec_plan cimport Plan, Schema, register, schema_of

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
    static inline PyObject *kcore_alloc(PyTypeObject *cls) { return cls->tp_alloc(cls, 0); }
    static inline int kcore_same_constructor(PyTypeObject *cls, PyTypeObject *base) {
        return cls->tp_init == base->tp_init && cls->tp_new == base->tp_new;
    }
    """
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject* const*, size_t, PyObject*) except NULL
    void kcore_set_vectorcall(object cls, vectorcallfunc construct)
    void kcore_let_vectorcall(PyTypeObject* metaclass)
    PyObject* kcore_alloc(PyTypeObject* cls) except NULL
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


cdef inline PyObject** _at(PyObject* instance, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*>instance + offset)


cdef inline void _put(PyObject** slot, PyObject* value) noexcept:
    """Stores a value in a slot, which may hold another."""
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = value
    Py_XDECREF(old)


cdef int _find(Schema schema, PyObject* keyword, int hint) except -2:
    """The index of a keyword's field, looking behind the previous one first; -1 when there is none."""
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
    """`Class(field=value, ...)` without the argument tuple and dictionary that type.__call__ would make."""
    if PyVectorcall_NARGS(nargsf):
        raise TypeError(f"{(<object>cls).__name__} takes keyword arguments only")
    cdef PyObject* instance = kcore_alloc(<PyTypeObject*>cls)
    try:
        _assign(instance, schema_of(<PyTypeObject*>cls), args, keywords)
    except:
        Py_DECREF(instance)
        raise
    return instance


cdef object _new_struct(PyTypeObject* cls):
    """An instance with all defaults."""
    cdef PyObject* raw = _construct(<PyObject*>cls, NULL, 0, NULL)
    instance = <object>raw
    Py_DECREF(raw)
    return instance


cdef object _get(PyObject* instance, Schema schema, int at):
    """The value of a field, making the default that an empty slot stands for."""
    cdef PyObject** slot = _at(instance, schema.offsets[at])
    if slot[0] == NULL:
        if schema.defaults[at] != NULL:
            return <object>schema.defaults[at]
        made = _new_struct(schema.structs[at])
        _put(slot, <PyObject*>made)
    return <object>slot[0]


cdef class LazySlot:
    """The attribute of a field whose default is a struct: an empty slot gets a struct of its own when first read.

    So a default costs nothing until somebody looks, and no two messages share one that can be changed.
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
            raise TypeError(f"{type(instance).__name__} is no {self.schema.cls.__name__}")


cdef bint _equal_values(object left, object right) except -1:
    """Equality in which a list equals a tuple with the same elements."""
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
    """What every declared class inherits: keyword-only construction, equality by value, repr, pickling."""

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

    def __repr__(self):
        """The constructor call that makes an equal object; fields with their default value are left out."""
        cdef Schema schema = schema_of(Py_TYPE(self))
        cdef int i
        shown = []
        for i in range(schema.n):
            value = _get(<PyObject*>self, schema, i)
            default = _new_struct(schema.structs[i]) if schema.defaults[i] == NULL else <object>schema.defaults[i]
            if not _equal_values(value, default):
                shown.append(f"{<object>schema.names[i]}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self):
        cdef Schema schema = schema_of(Py_TYPE(self))
        return _restore, (type(self), tuple([_get(<PyObject*>self, schema, i) for i in range(schema.n)]))


def _restore(cls, values):
    """Unpickles a struct from its values in the order of its fields."""
    instance = cls()
    for spec, value in zip(cls.FIELDS, values):
        setattr(instance, spec.name, value)
    return instance


def bind(cls, schema):
    """Connects a declared class with its schema: construction, lazy defaults, reading.

    Args:
        cls: the class, just made by its metaclass.
        schema: its `Schema`.
    """
    cdef Schema known = schema
    cdef int i
    register(<PyTypeObject*>cls, known)
    kcore_let_vectorcall(Py_TYPE(cls))
    if kcore_same_constructor(<PyTypeObject*>cls, <PyTypeObject*>StructBase):
        kcore_set_vectorcall(cls, _construct)
    if "FIELDS" in cls.__dict__:
        for i in range(known.n):
            if known.defaults[i] == NULL:
                type.__setattr__(cls, <object>known.names[i], LazySlot(known, i))
