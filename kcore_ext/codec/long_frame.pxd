"""The encoder of long responses, for other compiled modules."""

from kcore_ext.codec.plan cimport Plan
from kcore_ext.codec.write cimport Writer

cdef class LongFrame:
    cdef Writer _writer
    cdef Plan* _plan
    cdef object _response
    cdef tuple _elements        # of the array that is being written, else None
    cdef Py_ssize_t _element
    cdef int _field
    cdef int _version
    cdef bint _open             # the writer has memory

    cpdef bytes step(self, Py_ssize_t max_bytes)
    cdef int _write(self, Py_ssize_t until) noexcept
