"""The memory of a request queue of earlier requests, for other compiled modules."""

cimport cython

from kcore_ext.server.api_entry cimport ApiEntry

cdef enum:
    KEY_BYTES = 2
    VERSION_AT = 2              # in a frame without its length, after the key
    CORRELATION_ID_AT = 4
    CORRELATION_ID_BYTES = 4
    BODY_AT = 8                 # the client id, and then the body
    MAX_CACHED_BYTES = 256      # longer requests and headers are not cached

cdef bytes key_of(const unsigned char* frame, Py_ssize_t size)    # a request or header without its correlation id


@cython.final
cdef class CachedRequest:
    cdef ApiEntry route
    cdef int version
    cdef object context
    cdef object request
    cdef object response                # the last response ...
    cdef bytes frame                    # ... and its frame


@cython.final
cdef class RequestCache:
    cdef dict _requests
    cdef dict _contexts
    cdef object _last_context           # the context of the last decoded request; None before the first one ...
    cdef str _last_client_id            # ... its client id ...
    cdef int _last_version              # ... and its version
    cdef bytes header                   # of the last request for a fast path of encoded requests; None: not kept
    cdef ApiEntry header_route
    cdef object header_context

    cdef CachedRequest find(self, bytes key)
    cdef int add(self, bytes key, ApiEntry route, int version, str client_id, object context, object request) except -1
    cdef object context(self, object owner, int version, str client_id)
    cdef bint repeats_header(self, const unsigned char* frame, Py_ssize_t size) noexcept
    cdef int keep_header(self, const unsigned char* frame, Py_ssize_t size, ApiEntry route, object context) except -1
    cdef Py_ssize_t size(self)
    cdef int clear(self) except -1
