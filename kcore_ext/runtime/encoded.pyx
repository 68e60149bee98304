"""Fast paths that serve encoded requests.

A quarter of the time of a small commit is spent on the objects of the request: to create them, to read their fields,
and to free them. A fast path can avoid this if it reads the fields from the request's bytes. The bytes are kept until
the response is complete, and are decoded if the request fails later.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyTypeObject

from kcore_ext.codec.plan cimport Schema, schema_of
from kcore_ext.codec.read cimport read_message

cdef enum:
    MAX_SOURCE_BYTES = 4_096    # of received bytes that a request keeps although it is only a part of them

cdef object UNREADABLE = object()


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class EncodedRequest:
    """The bytes of a request, which are decoded when code needs the request as an object."""


cdef EncodedRequest encoded_request(object cls, int version, bytes source, const unsigned char* body, Py_ssize_t size):
    cdef EncodedRequest request = EncodedRequest.__new__(EncodedRequest)
    if source is None or PyBytes_GET_SIZE(source) > MAX_SOURCE_BYTES:
        source = PyBytes_FromStringAndSize(<const char*>body, size)
        body = <const unsigned char*>PyBytes_AS_STRING(source)
    request._source = source
    request.body = body
    request.size = size
    request._type = cls
    request._version = version
    return request


cdef object request_of(object request):
    cdef EncodedRequest encoded
    cdef Schema schema
    if type(request) is not EncodedRequest:
        return request
    encoded = <EncodedRequest>request
    schema = schema_of(<PyTypeObject*>encoded._type)
    return read_message(
        schema.plan(encoded._version, encoded._version >= schema.flexible_since),
        encoded.body, encoded.size, 0,
    )


cdef class EncodedFastPath:
    """Documented in encoded.pyi."""

    cdef object serve_encoded(
        self, object context, int version, bytes source, const unsigned char* body, Py_ssize_t size,
        Py_ssize_t max_elements,
    ):
        return UNREADABLE
