"""An API as a server serves it: versions and limits, the decision of its requests, and the frames of its responses."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from kcore_ext.codec.plan import EncodeError, MessageTooLargeError
from kcore_ext.codec.frames cimport encode_response_frame, frame_with_id
from kcore_ext.codec.plan cimport Plan, schema_of
from kcore_ext.codec.read cimport UNLIMITED, read_message
from kcore_ext.runtime.encoded cimport UNREADABLE, EncodedFastPath
from kcore_ext.runtime.outcome cimport Pending

cdef Py_ssize_t LONGEST_FRAME = 0x7FFFFFFF + 4

cdef enum:
    RESERVE_THRESHOLD_BYTES = 16_384    # longer responses count as memory as soon as they are encoded
    MAX_SENT = 256              # responses whose frames are cached per API, if it caches responses


cdef class ApiEntry:
    """An API as a server serves it; documented in api_entry.pyi."""

    def __init__(
        self, api, *, int min_version, int max_version, header_versions, shorten, Py_ssize_t limit_bytes=LONGEST_FRAME,
        reserve_memory=None, Py_ssize_t max_request_bytes=LONGEST_FRAME, Py_ssize_t max_request_elements=UNLIMITED,
        Py_ssize_t slice_bytes=0,
    ):
        self.api = api
        self.fast = api.fast
        self.handle = api.handle
        self.key = int(api.key)
        self.min_version = min_version
        self.max_version = max_version
        self.caches_requests = api.caches_requests
        self.small_responses = api.small_responses
        self.caches_responses = api.caches_responses
        self.errors = {}
        self._schema = schema_of(<PyTypeObject*>api.request_type)
        self._header_versions = tuple(header_versions)
        self._shorten = shorten
        self.limit_bytes = limit_bytes
        self.reserve_memory = reserve_memory
        self.max_request_bytes = max_request_bytes
        self.max_request_elements = max_request_elements
        self.slice_bytes = slice_bytes if 0 < slice_bytes < limit_bytes and not self.caches_responses else 0
        if self.caches_responses and self._sent is NULL:
            self._sent = <CachedFrame*>PyMem_Calloc(MAX_SENT, sizeof(CachedFrame))
            if self._sent is NULL:
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self._sent is not NULL:
            for i in range(MAX_SENT):
                Py_XDECREF(self._sent[i].response)
                Py_XDECREF(self._sent[i].frame)
            PyMem_Free(self._sent)

    cpdef int header_version(self, int version) except -1:
        if not 0 <= version < len(self._header_versions):
            raise IndexError(f"version {version} of API {self.key} is not served")
        return self._header_versions[version]

    cdef object _decode(self, const unsigned char* frame, Py_ssize_t size, int version, Py_ssize_t position):
        cdef Plan* plan = self._schema.plan(version, version >= self._schema.flexible_since)
        return read_message(plan, frame, size, position, self.max_request_elements)

    @property
    def fast(self):
        return self._fast

    @fast.setter
    def fast(self, fast):
        path = getattr(self.api, "fast_path", None)
        self._fast = fast
        self._encoded = None
        # A function that wraps the fast path must get every request.
        if isinstance(path, EncodedFastPath) and (<EncodedFastPath>path).serves_encoded and fast == path.serve:
            self._encoded = <EncodedFastPath>path

    cdef object _decide(self, object context, object request):
        """Handles a request on the fast path, or on the generic path if the fast path declines or the lease ended."""
        cdef object response = None
        if self._fast is not None and (self.lease is None or self.lease.valid()):
            response = self._fast(context, request)
            if self.lease is not None and response is not None and self._needs_check(response):
                return self.checked(context, request, response)
        return self.handle(context, request) if response is None else response

    cdef object _decide_encoded(
        self, object context, int version, bytes source, const unsigned char* frame, Py_ssize_t size,
        Py_ssize_t position,
    ):
        """Handles the request at `position` of a frame on the fast path.

        Returns:
            The response; None if the caller must pass the decoded request to `handle`, because the fast path has
            declined it; UNREADABLE if the caller must pass it to `_decide`.
        """
        cdef object response
        if self._encoded is None or not (self.lease is None or self.lease.valid()):
            return UNREADABLE
        response = self._encoded.serve_encoded(
            context, version, source, frame + position, size - position, self.max_request_elements
        )
        if response is None or response is UNREADABLE or self.lease is None:
            return response
        if self._needs_check(response):
            return self.checked(context, self._decode(frame, size, version, position), response)
        return response

    cdef bint _needs_check(self, object response) except -1:
        """Returns True if `checked` must check a response of the fast path: the lease may end before it is sent.

        A `Pending` that waits for a commit needs no check: if the lease has ended, the store refuses the commit.
        """
        return (<Pending>response).parked if isinstance(response, Pending) else not self.lease.valid()

    def decide(self, context, request):
        return self._decide(context, request)

    def decode(self, bytes frame not None, int version, Py_ssize_t position):
        return self._decode(<const unsigned char*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), version, position)

    cdef bytes frame_of(self, object response, int version, int correlation_id):
        """Encodes a response and counts its errors; returns None if it is too long to be encoded in one step."""
        if self._sent is not NULL:
            return self._frame_again(response, version, correlation_id)
        if self.count_errors is not None:
            self.count_errors(response, self.errors)
        return self._encode(response, version, correlation_id, self.slice_bytes)

    def whole_frame(self, response, int version, int correlation_id):
        if self.count_errors is not None:
            self.count_errors(response, self.errors)
        return self._encode(response, version, correlation_id, 0)

    cdef bytes _frame_again(self, object response, int version, int correlation_id):
        """Reuses the cached frame of a response object; without one, encodes the response and counts its errors."""
        cdef CachedFrame* sent = &self._sent[(<size_t><PyObject*>response // 16 + version) % MAX_SENT]
        cdef PyObject* count_errors = NULL
        cdef bytes frame
        if sent.response is <PyObject*>response and sent.version == version:
            if self.count_errors is not None and sent.count_errors is not <PyObject*>self.count_errors:
                self.count_errors(response, self.errors)
            return frame_with_id(<bytes>sent.frame, correlation_id)
        if self.count_errors is not None:
            counts = {}
            self.count_errors(response, counts)
            if not counts:
                count_errors = <PyObject*>self.count_errors
            for code, count in counts.items():
                self.errors[code] = self.errors.get(code, 0) + count
        frame = self._encode(response, version, correlation_id, 0)
        if PyBytes_GET_SIZE(frame) <= MAX_KEPT_FRAME:
            Py_INCREF(response)
            Py_INCREF(frame)
            Py_XDECREF(sent.response)
            Py_XDECREF(sent.frame)
            sent.response = <PyObject*>response
            sent.frame = <PyObject*>frame
            sent.count_errors = count_errors
            sent.version = version
        return frame

    cdef bytes _encode(self, object response, int version, int correlation_id, Py_ssize_t slice_bytes):
        """Encodes a response; returns None if it has more than `slice_bytes`, unless that is 0."""
        cdef int header_version = self.header_version(version)
        cdef Py_ssize_t limit_bytes = slice_bytes if slice_bytes else self.limit_bytes
        cdef bytes frame = None
        try:
            frame = encode_response_frame(response, version, correlation_id, header_version, limit_bytes)
        except MessageTooLargeError:
            if not slice_bytes:
                raise
        except EncodeError:
            if not self._shorten(response):
                raise
            frame = encode_response_frame(response, version, correlation_id, header_version, self.limit_bytes)
        if frame is not None and PyBytes_GET_SIZE(frame) > RESERVE_THRESHOLD_BYTES and self.reserve_memory is not None:
            self.reserve_memory(PyBytes_GET_SIZE(frame))
        return frame
