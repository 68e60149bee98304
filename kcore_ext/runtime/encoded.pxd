"""Fast paths that serve encoded requests, for other compiled modules."""

cimport cython


@cython.final
@cython.no_gc
cdef class EncodedRequest:
    cdef bytes _source              # contains the body: the received bytes, or a copy of the body
    cdef const unsigned char* body
    cdef Py_ssize_t size
    cdef object _type
    cdef int _version

# Keeps `source`, the bytes that contain the body. Keeps a copy of the body if `source` is None or long, because the
# request would otherwise hold all bytes of a large read until its response is complete.
cdef EncodedRequest encoded_request(object cls, int version, bytes source, const unsigned char* body, Py_ssize_t size)
cdef object request_of(object request)      # decodes an EncodedRequest; returns every other request unchanged


cdef object UNREADABLE      # the result of `serve_encoded` for a request that the caller must decode


cdef class EncodedFastPath:
    cdef bint serves_encoded    # whether `serve_encoded` exists

    # Serves the request that is encoded in `body`. `source` is the bytes object that contains the body; None: the body
    # is in memory that may change. Returns UNREADABLE if the caller must decode the request, else the same as the API's
    # `fast` would return.
    cdef object serve_encoded(
        self, object context, int version, bytes source, const unsigned char* body, Py_ssize_t size,
        Py_ssize_t max_elements,
    )
