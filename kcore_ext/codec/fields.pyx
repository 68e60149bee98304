"""Creates messages in compiled code without calling their class. Such a call would look up arguments by name."""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from kcore_ext.codec.objects cimport new_instance
from kcore_ext.codec.plan cimport FieldSpec, schema_of
from kcore_ext.util.slots cimport names_by_index

cdef extern from *:
    """
    static inline PyObject *kcore_taken(PyObject *made) { return made; }
    """
    object taken "kcore_taken"(PyObject*)   # takes over the reference

cdef extern from "Python.h":
    void Py_INCREF(PyObject*) noexcept
    void Py_XINCREF(PyObject*) noexcept


@cython.final
cdef class FieldLayout:
    """Documented in fields.pyi."""

    def __cinit__(self, cls, dict fields not None):
        cdef int i
        cdef tuple names = names_by_index(fields)
        self.names = names
        self.named = len(names)
        if cls is None:
            return
        if not isinstance(cls, type):
            raise TypeError(f"{cls!r} is not a class")
        self.cls = cls
        self.schema = schema_of(<PyTypeObject*>cls)
        if self.schema.n > MAX_FIELDS:
            raise TypeError(f"{cls.__name__} has {self.schema.n} fields; the maximum is {MAX_FIELDS}")
        declared = [<str>self.schema.names[i] for i in range(self.schema.n)]
        for name in names:
            if name not in declared:
                raise TypeError(f"{cls.__name__} has no field {name!r}")
            self.at[self.count] = self.schema.offsets[declared.index(name)]
            self.count += 1
        for i in range(self.schema.n):
            if declared[i] not in names:
                self.at[self.count] = self.schema.offsets[i]
                self.defaults[self.count] = self.schema.defaults[i]
                self.count += 1
        self.type = <PyTypeObject*>cls

    cdef FieldLayout part(self, str name, dict fields):
        """Returns the layout of the structs that the field `name` contains."""
        cdef FieldSpec spec
        for spec in self.schema.fields:
            if spec.name == name and spec.struct is not None:
                return FieldLayout(spec.struct, fields)
        raise TypeError(f"{self.cls.__name__} has no structs {name!r}")

    cdef object make(self, PyObject** values):
        """Creates an object from borrowed values of the named fields and the defaults of all others."""
        cdef PyObject* instance = new_instance(self.type)
        cdef PyObject* value
        cdef int i, named = self.named, count = self.count  # later changes of the fields do not affect them
        if instance is NULL:
            raise MemoryError
        for i in range(named):
            value = values[i]
            Py_INCREF(value)
            (<PyObject**>(<char*>instance + self.at[i]))[0] = value
        for i in range(named, count):
            value = self.defaults[i]
            Py_XINCREF(value)
            (<PyObject**>(<char*>instance + self.at[i]))[0] = value
        return taken(instance)
