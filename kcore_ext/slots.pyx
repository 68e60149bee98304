"""Where the slots of Python classes are: state machines stay plain Python, and compiled code reads them as C fields."""

cimport cython
from cpython.object cimport PyTypeObject


@cython.final
cdef class Slots:
    """See slots.pyi."""

    def __cinit__(self, cls, *names):
        cdef Py_ssize_t at
        cdef int i
        if not isinstance(cls, type):
            raise TypeError(f"{cls!r} is no class")
        if len(names) > MAX_SLOTS:
            raise TypeError(f"{len(names)} slots, and not {MAX_SLOTS} at most")
        for i, name in enumerate(names):
            at = slot_offset(getattr(cls, name, None))
            if at < 0:
                raise TypeError(f"{cls.__name__}.{name} is no slot")
            self.at[i] = at
        self.cls = cls
        self.names = names
        self.type = <PyTypeObject*>cls
