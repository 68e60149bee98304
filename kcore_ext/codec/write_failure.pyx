"""Raises the exception of a failed encoding."""

from cpython.object cimport PyObject

from kcore_ext.codec.write cimport Writer

from kcore_ext.codec.plan import EncodeError, MessageTooLargeError

cdef extern from "Python.h":
    void Py_DECREF(PyObject*) noexcept
    void Py_XDECREF(PyObject*) noexcept
    PyObject* PyErr_Occurred() noexcept


cdef int raise_failure_of(Writer* writer, int version) except -1:
    """Raises the recorded failure, with the exception of a failed Python conversion as its cause."""
    cause, found, field = None, None, "message"
    cdef PyObject* reference = writer.found
    writer.found = NULL
    # This comes first: while an exception is set, the look-up of an attribute may fail.
    if PyErr_Occurred() != NULL:
        try:
            _rethrow()
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            cause = error
        except:
            Py_XDECREF(reference)
            raise
    if reference != NULL:
        value = <object>reference
        Py_DECREF(reference)
        found = repr(value)
    if writer.plan != NULL:
        field = (<object><PyObject*>writer.plan.type).__name__
        if writer.op != NULL:
            field = f"{field}.{<object>writer.op.name}"
    if writer.too_large:
        raise MessageTooLargeError(field, writer.limit)
    if cause is not None:
        raise EncodeError(field, str(cause)) from cause
    reason = writer.reason.decode().replace("VERSION", str(version))
    if found is not None:
        reason = f"{reason}, found {found if len(found) <= 100 else found[:100] + '…'}"
    raise EncodeError(field, reason)


cdef int _rethrow() except -1:
    """Raises the exception that C code has set."""
    return -1
