"""The memory of a request queue of earlier requests: contexts, whole requests, and the last header.

Clients repeat themselves: all requests of a connection have the same client id, and heartbeats are equal except for the
correlation id.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from kcore_ext.server.api_entry cimport ApiEntry

cdef enum:
    MAX_CACHED = 32             # cached requests of a queue
    MAX_CONTEXTS = 64           # cached combinations of version and client id
    MAX_CACHED_CLIENT_ID = 256  # characters of a client id; contexts of longer ones are not cached


cdef bytes key_of(const unsigned char* frame, Py_ssize_t size):
    cdef bytes key = PyBytes_FromStringAndSize(NULL, size - CORRELATION_ID_BYTES)
    cdef char* to = PyBytes_AS_STRING(key)
    memcpy(to, frame, CORRELATION_ID_AT)
    memcpy(to + CORRELATION_ID_AT, frame + BODY_AT, size - BODY_AT)
    return key


@cython.final
@cython.freelist(64)
cdef class CachedRequest:
    """A cached request, which `key_of` identifies."""


@cython.final
cdef class RequestCache:
    def __cinit__(self):
        self._requests, self._contexts = {}, {}

    cdef CachedRequest find(self, bytes key):
        """Returns the cached request with these bytes; None if there is none."""
        cdef PyObject* found = PyDict_GetItemWithError(self._requests, key)
        return None if found is NULL else <CachedRequest>found

    cdef int add(self, bytes key, ApiEntry route, int version, str client_id, object context, object request) except -1:
        """Caches a decoded request, because the same bytes may arrive again."""
        cdef CachedRequest cached
        if len(client_id) > MAX_CACHED_CLIENT_ID:
            return 0
        cached = CachedRequest.__new__(CachedRequest)
        if len(self._requests) >= MAX_CACHED:
            self._requests.clear()
        cached.route, cached.version, cached.context, cached.request = route, version, context, request
        self._requests[key] = cached
        return 0

    cdef object context(self, object owner, int version, str client_id):
        """Returns the context of requests with this version and client id. `owner` makes a context that is missing."""
        if self._last_context is not None and version == self._last_version and client_id == self._last_client_id:
            return self._last_context
        context = self._contexts.get((version, client_id))
        if context is None:
            context = owner.make_context(version, client_id)
            if len(client_id) > MAX_CACHED_CLIENT_ID:
                return context
            if len(self._contexts) >= MAX_CONTEXTS:  # the client sends many different ids
                self._contexts.clear()
            self._contexts[version, client_id] = context
        self._last_context, self._last_client_id, self._last_version = context, client_id, version
        return context

    cdef bint repeats_header(self, const unsigned char* frame, Py_ssize_t size) noexcept:
        """Returns True if a request has the kept header, except for the correlation id."""
        cdef Py_ssize_t header_bytes
        cdef const char* header
        if self.header is None:
            return False
        header_bytes = PyBytes_GET_SIZE(self.header)
        header = PyBytes_AS_STRING(self.header)
        return (
            size >= header_bytes + CORRELATION_ID_BYTES
            and memcmp(frame, header, CORRELATION_ID_AT) == 0
            and memcmp(frame + BODY_AT, header + CORRELATION_ID_AT, header_bytes - CORRELATION_ID_AT) == 0
        )

    cdef int keep_header(self, const unsigned char* frame, Py_ssize_t size, ApiEntry route, object context) except -1:
        """Keeps the header of a request, which has `size` bytes, for the requests after it, unless it is long."""
        self.header = key_of(frame, size) if size <= MAX_CACHED_BYTES else None
        self.header_route, self.header_context = route, context
        return 0

    cdef Py_ssize_t size(self):
        """Returns the number of cached contexts and requests."""
        return len(self._contexts) + len(self._requests)

    cdef int clear(self) except -1:
        self._last_context = self.header = None
        self._contexts.clear()
        self._requests.clear()
        return 0
