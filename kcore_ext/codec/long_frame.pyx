"""The encoder of long responses. It works in steps, between which the caller can do other work."""

from cpython.object cimport PyObject, PyTypeObject

from kcore_ext.codec.plan cimport ARRAY, STRUCT, Op, Plan, schema_of
from kcore_ext.codec.write cimport (
    LONGEST_MESSAGE, begin_own, finish, finish_frame, put_int32, write_count, write_element, write_end,
    write_field,
)

from kcore_ext.codec.plan import EncodeError

cdef extern from "Python.h":
    PyObject* Py_None
    PyTypeObject* Py_TYPE(object) noexcept

cdef enum:
    FRAME_LENGTH_BYTES = 4


cdef class LongFrame:
    def __cinit__(
        self, response not None, int version, int correlation_id, int header_version, Py_ssize_t limit_bytes
    ):
        cdef object schema = schema_of(Py_TYPE(response))
        if not schema.min_version <= version <= schema.max_version:
            raise EncodeError(schema.cls.__name__, f"version {version} is not supported")
        self._plan = schema_of(Py_TYPE(response)).plan(version, version >= schema.flexible_since)
        self._response = response
        self._version = version
        begin_own(&self._writer, min(limit_bytes, <Py_ssize_t>LONGEST_MESSAGE + FRAME_LENGTH_BYTES))
        self._open = True
        self._writer.at += FRAME_LENGTH_BYTES   # `finish_frame` fills it
        put_int32(&self._writer, correlation_id)
        if header_version:
            self._writer.at[0] = 0
            self._writer.at += 1

    def __dealloc__(self):
        if self._open:
            self._open = False
            try:
                finish(&self._writer, True, self._version)  # drops the memory
            except BaseException:
                pass

    cpdef bytes step(self, Py_ssize_t max_bytes):
        cdef int status
        if not self._open:
            raise ValueError("the frame is complete or has failed")
        status = self._write(self._writer.at - self._writer.start + max_bytes)
        if not status:
            return None
        self._open = False
        response, self._response, self._elements = self._response, None, None
        return finish_frame(&self._writer, status > 0, self._version)

    cdef int _write(self, Py_ssize_t until) noexcept:
        """Writes up to `until` bytes in total; returns 1 at the end of the response, 0 before, -1 after a failure."""
        cdef Plan* plan = self._plan
        cdef PyObject* response = <PyObject*>self._response
        cdef PyObject* value
        cdef Op* op
        while self._field < plan.n_ops:
            op = &plan.ops[self._field]
            if self._elements is None:
                value = (<PyObject**>(<char*>response + op.offset))[0]
                if value == NULL:
                    value = op.default
                if op.kind != ARRAY or op.item != STRUCT or value == Py_None or not (
                    isinstance(<object>value, tuple) or isinstance(<object>value, list)
                ):
                    if write_field(&self._writer, plan, op, response) < 0:
                        return -1
                    self._field += 1
                    continue
                self._elements = tuple(<object>value)
                self._element = 0
                if write_count(&self._writer, op, len(self._elements)) < 0:
                    return -1
            while self._element < len(self._elements):
                if self._writer.at - self._writer.start >= until:
                    return 0
                if write_element(&self._writer, plan, op, <PyObject*>self._elements[self._element]) < 0:
                    return -1
                self._element += 1
            self._elements = None
            self._field += 1
        return 1 if write_end(&self._writer, plan, response) == 0 else -1
