"""Encodes messages, for other compiled modules."""

from cpython.object cimport PyObject, PyTypeObject

from kcore_ext.codec.plan cimport Op, Plan

cdef struct Writer:
    unsigned char* start
    unsigned char* at
    unsigned char* end
    bint scratch  # True: the memory is the scratch memory ...
    PyObject* owner  # ... otherwise this bytes object's
    Py_ssize_t limit  # the maximum number of bytes
    bint too_large  # the first failure is that this limit would be exceeded
    Plan* plan  # the position of the first failure ...
    Op* op
    const char* reason  # ... and its reason, a static text
    PyObject* found  # the invalid value, or NULL

# The maximum size of a message, whose size other messages count in an int32, and of a frame, which contains its own
# size.
cdef enum:
    LONGEST_MESSAGE = 0x7FFFFFFF

cdef int begin(Writer* writer, Py_ssize_t limit) except -1
cdef int begin_own(Writer* writer, Py_ssize_t limit) except -1
cdef int write_field(Writer* writer, Plan* plan, Op* op, PyObject* instance) noexcept
cdef int write_count(Writer* writer, Op* op, Py_ssize_t count) noexcept
cdef int write_element(Writer* writer, Plan* plan, Op* op, PyObject* value) noexcept
cdef int write_end(Writer* writer, Plan* plan, PyObject* instance) noexcept
cdef int reserve(Writer* writer, Py_ssize_t size) noexcept
cdef int write_struct(Writer* writer, Plan* plan, PyObject* instance) noexcept
cdef void put_int32(Writer* writer, int value) noexcept
cdef void put_int16(Writer* writer, int value) noexcept
cdef int put_raw(Writer* writer, const char* data, Py_ssize_t length) noexcept
cdef bytes finish(Writer* writer, bint written, int version)
cdef bytes finish_frame(Writer* writer, bint written, int version)
