"""Messages made by compiled code: without a call of the class, whose arguments would be looked up by name."""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_XINCREF

from kcore_ext.codec_object cimport new_instance
from kcore_ext.codec_plan cimport FieldSpec, Schema, schema_of

cdef extern from "Python.h":
    void Py_DECREF(PyObject*) noexcept


@cython.final
cdef class Shape:
    """See message_shape.pyi."""

    def __cinit__(self, cls):
        self.cls = cls
        self.type = <PyTypeObject*>cls
        self.schema = schema_of(self.type)

    cdef Py_ssize_t at(self, str name) except -1:
        """Where the field of that name is."""
        cdef int i
        for i in range(self.schema.n):
            if <str>self.schema.names[i] == name:
                return self.schema.offsets[i]
        raise TypeError(f"{self.cls.__name__} has no field {name!r}")

    cdef Shape part(self, str name):
        """Of the structs in the field of that name."""
        cdef FieldSpec spec
        for spec in self.schema.fields:
            if spec.name == name and spec.struct is not None:
                return Shape(spec.struct)
        raise TypeError(f"{self.cls.__name__} has no structs {name!r}")

    cdef object make(self):
        """An object with every field at its default; a struct is made when somebody reads it."""
        cdef PyObject* instance = new_instance(self.type)
        cdef PyObject* default
        cdef int i
        if instance is NULL:
            raise MemoryError
        for i in range(self.schema.n):
            default = self.schema.defaults[i]
            Py_XINCREF(default)
            (<PyObject**>(<char*>instance + self.schema.offsets[i]))[0] = default
        made = <object>instance
        Py_DECREF(instance)
        return made
