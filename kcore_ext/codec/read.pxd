"""Decodes messages, for other compiled modules."""

from kcore_ext.codec.plan cimport Plan
from kcore_ext.codec.reader cimport Reader

cdef enum:
    UNLIMITED = 0x7FFFFFFF      # elements; no frame has more bytes

cdef object read_message(
    Plan* plan, const unsigned char* data, Py_ssize_t size, Py_ssize_t position, Py_ssize_t max_elements=*
)
cdef int raise_failure(Reader* reader) except -1
cdef int skip_tags(Reader* reader) noexcept
cdef object read_client_id(Reader* reader)
cdef str text_of(const unsigned char* at, Py_ssize_t size)  # the string that the bytes encode in UTF-8
