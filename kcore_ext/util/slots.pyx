"""Offsets of the slots of Python classes, with which compiled code reads Python objects like C structs."""

cimport cython
from cpython.object cimport PyTypeObject


cpdef tuple names_by_index(dict names):
    """Returns the names in the order of their indices, which must be 0, 1, 2, ..."""
    if sorted(names) != list(range(len(names))):
        raise TypeError(f"indices must be 0 to {len(names) - 1}, each once: {names}")
    return tuple([names[index] for index in range(len(names))])


@cython.final
cdef class SlotLayout:
    """Documented in slots.pyi."""

    def __cinit__(self, cls, dict names not None):
        cdef Py_ssize_t at
        cdef int i
        if not isinstance(cls, type):
            raise TypeError(f"{cls!r} is not a class")
        if len(names) > MAX_SLOTS:
            raise TypeError(f"{len(names)} slots; the maximum is {MAX_SLOTS}")
        names_in_order = names_by_index(names)
        for i, name in enumerate(names_in_order):
            at = slot_offset(getattr(cls, name, None))
            if at < 0:
                raise TypeError(f"{cls.__name__}.{name} is not a slot")
            self.at[i] = at
        self.cls = cls
        self.names = names_in_order
        self.type = <PyTypeObject*>cls
