"""The request queue of a connection.

It splits the received bytes into requests, handles each request, and returns the responses in request order. This is
the whole hot path of a server: for a heartbeat, only this module and the group's decision run.
`tests.reference.request_queue` is the reference implementation in pure Python; a test compares both modules. This
module does no I/O: its owner feeds received bytes and takes response bytes.

Besides the compilation, three measures make the module fast:

- A request is decoded in the receive buffer, without a copy.
- APIs with `caches_requests` receive equal requests repeatedly (heartbeats). The queue finds them by their bytes, and
  neither decodes nor routes them again. If an equal request also gets the same response object, the queue reuses the
  frame of the response.
- APIs with `caches_responses` return the same response to different requests (commits). The queue then reuses the frame
  of the response object.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from kcore.server.frames import other_protocol
from kcore_ext.codec.plan import MessageTooLargeError
from kcore_ext.util.byte_order cimport read_int16, read_int32
from kcore_ext.util.monotonic cimport coarse_now_ns
from kcore_ext.codec.frames cimport RequestHead, frame_with_id, read_request_header
from kcore_ext.runtime.encoded cimport UNREADABLE
from kcore_ext.runtime.outcome cimport Pending
from kcore_ext.server.api_entry cimport MAX_KEPT_FRAME, ApiEntry
from kcore_ext.server.api_times cimport ApiTimes
from kcore_ext.server.request_cache cimport (
    BODY_AT, CORRELATION_ID_AT, CORRELATION_ID_BYTES, KEY_BYTES, MAX_CACHED_BYTES, VERSION_AT, CachedRequest, RequestCache,
    key_of,
)

cdef extern from "Python.h":
    bint PyBytes_CheckExact(object)

cdef enum:
    LENGTH_BYTES = 4
    CHECKED_BYTES = 65_536      # frames of more bytes are compared with the limit of their API
    MAX_WAITING = 4_194_304     # request_queue.pyi explains this limit and the next
    WAITING_OVERHEAD = 512


MAX_WAITING_BYTES, WAITING_OVERHEAD_BYTES = MAX_WAITING, WAITING_OVERHEAD


@cython.freelist(256)
cdef class ResponseSlot:
    """The slot of one response in the queue. Once the response is complete, the slot contains its frame."""

    def __init__(self, RequestQueue queue not None, ApiEntry route, int version, int correlation_id):
        fill_slot(self, queue, route, version, correlation_id)

    cpdef object respond(self, object response):
        cdef ApiEntry route = self._route
        cdef bytes frame
        pending, self._pending = self._pending, None
        if response is None:
            self._queue._complete(self, b"")
            return
        try:
            try:
                frame = route.frame_of(response, self._version, self._correlation_id)
                if frame is None and pending is None:
                    frame = route._encode(response, self._version, self._correlation_id, 0)
                elif frame is None:
                    self._queue._write_later(self, pending.api, pending.context, pending.request, response)
                    return
            except MessageTooLargeError as error:
                if pending is None or self._queue._owner is None:
                    raise
                response = self._queue._owner.too_large(
                    route, pending.api, pending.context, pending.request, self._version, error
                )
                frame = route.whole_frame(response, self._version, self._correlation_id)
        except Exception as error:
            if self._queue._owner is not None:
                self._queue._owner.response_failed(self, error)
        else:
            self._queue._complete(self, frame)

    def complete(self, bytes frame not None):
        self._queue._complete(self, frame)


cdef inline void fill_slot(ResponseSlot slot, RequestQueue queue, ApiEntry route, int version, int correlation_id) noexcept:
    slot._queue, slot._route, slot._version, slot._correlation_id = queue, route, version, correlation_id


cdef ResponseSlot slot_of(RequestQueue queue, ApiEntry route, int version, int correlation_id):
    cdef ResponseSlot slot = ResponseSlot.__new__(ResponseSlot)
    fill_slot(slot, queue, route, version, correlation_id)
    return slot


cdef bytes joined(list frames):
    cdef bytes frame, data
    cdef char* at
    cdef Py_ssize_t size = 0
    for frame in frames:
        size += PyBytes_GET_SIZE(frame)
    data = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(data)
    for frame in frames:
        memcpy(at, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        at += PyBytes_GET_SIZE(frame)
    return data


cdef bint some_lost = False     # a queue of this process is `lost`

cdef object _respond(object slot, object response):
    global some_lost
    try:
        (<ResponseSlot>slot).respond(response)
    except Exception:
        # There is no memory for the response or for an error response. The connection is closed at the end of the round.
        (<ResponseSlot>slot)._queue.lost = True
        some_lost = True
        raise


def has_lost_responses(*, bint reset=False):
    global some_lost
    cdef bint lost = some_lost
    some_lost = lost and not reset
    return lost


cdef class QueueOwner:
    """Documented in request_queue.pyi."""

    cdef int flush_later(self) except -1:
        self.schedule_flush()
        return 0


cdef int flush_later(object owner) except -1:
    """Calls `schedule_flush` of an owner."""
    if isinstance(owner, QueueOwner):
        return (<QueueOwner>owner).flush_later()
    owner.schedule_flush()
    return 0


@cython.final
cdef class RequestQueue:
    """Documented in request_queue.pyi."""

    def __cinit__(
        self, owner, list routes not None, *, frame_error, Py_ssize_t max_frame_bytes, Py_ssize_t buffer_bytes,
        int64_t turn_ns=0, clock_ns=None,
    ):
        self._owner = owner
        self._routes = routes
        self._frame_error = frame_error
        self._max_frame_bytes = max_frame_bytes
        self._buffer_bytes = buffer_bytes
        self.turn_ns = turn_ns
        self._clock_ns = clock_ns
        self._buffer = b""
        self._out = []
        self._cache = RequestCache()

    # ---- received bytes

    def __len__(self):
        return len(self._buffer) - self._position

    @property
    def claim_bytes(self):
        cdef Py_ssize_t held = len(self._buffer) - self._position
        if held < LENGTH_BYTES:
            return held
        return max(held, LENGTH_BYTES + min(<Py_ssize_t>read_int32(self._start()), self._max_frame_bytes))

    cdef const unsigned char* _start(self):
        if PyBytes_CheckExact(self._buffer):
            return <const unsigned char*>PyBytes_AS_STRING(self._buffer) + self._position
        return <const unsigned char*>PyByteArray_AS_STRING(self._buffer) + self._position

    cpdef feed(self, bytes data):
        if self._position == len(self._buffer):
            self._buffer = data
        elif isinstance(self._buffer, bytearray) and not self._serving:
            # A large frame arrives in many pieces: grow one buffer, without the bytes that were taken. `serve` reads
            # from the buffer, so a call during `serve` makes another one.
            if self._position:
                del self._buffer[: self._position]
            self._buffer += data
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._position :])
            self._buffer += data
        self._position = 0

    def set_max_frame_bytes(self, Py_ssize_t max_frame_bytes):
        self._max_frame_bytes = max_frame_bytes

    def clear(self):
        self._buffer = b""
        self._position = 0

    @property
    def cache_size(self) -> int:
        return self._cache.size()

    def clear_cache(self):
        self._cache.clear()

    # ---- requests

    cpdef bint serve(self) except -1:
        cdef int64_t until_ns = -1      # -2: before the second request, -1: before the first
        cdef object buffer
        cdef const unsigned char* start
        cdef Py_ssize_t left, size
        if self._serving:
            return False
        self._serving = True
        self.late = False
        try:
            while not (self.parked or self.stopped or self.muted):
                if self.held_bytes > self._buffer_bytes:
                    return True
                if self.turn_ns and self._is_late(&until_ns):
                    self.late = True
                    break
                buffer = self._buffer   # keeps the bytes alive while the request is decoded
                left = len(buffer) - self._position
                if left < LENGTH_BYTES:
                    break
                start = self._start()
                size = read_int32(start)
                if size < 0 or size > self._max_frame_bytes:
                    raise self._frame_error(
                        f"a frame of {size} bytes; valid: 0 to {self._max_frame_bytes} bytes{other_protocol(size)}"
                    )
                if size > CHECKED_BYTES and left >= LENGTH_BYTES + KEY_BYTES:
                    self._check_size(start + LENGTH_BYTES, size, left - LENGTH_BYTES)
                if left < LENGTH_BYTES + size:
                    break
                if left == LENGTH_BYTES + size:
                    self._buffer = b""
                    self._position = 0
                else:
                    self._position += LENGTH_BYTES + size
                if self.gate is None:
                    self._request(<bytes>buffer if PyBytes_CheckExact(buffer) else None, start + LENGTH_BYTES, size)
                else:
                    self.gate(PyBytes_FromStringAndSize(<const char*>start + LENGTH_BYTES, size))
        finally:
            self._serving = False
            self._mark_ns = 0
        return False

    cdef bint _is_late(self, int64_t* until_ns) except -1:
        """Returns True if at least `turn_ns` has passed since the end of the first request of this turn."""
        cdef int64_t now_ns
        if until_ns[0] == -1:
            until_ns[0] = -2
            return False
        now_ns = coarse_now_ns() if self._clock_ns is None else <int64_t>self._clock_ns()
        if until_ns[0] == -2:
            until_ns[0] = now_ns + self.turn_ns
            return False
        return now_ns >= until_ns[0]

    cdef int _check_size(self, const unsigned char* frame, Py_ssize_t size, Py_ssize_t received) except -1:
        """Refuses a frame once more bytes of it have arrived than its API allows.

        Until then, the server waits, like Kafka.
        """
        cdef int api_key = read_int16(frame)
        cdef ApiEntry route = None
        if 0 <= api_key < len(self._routes):
            route = self._routes[api_key]
        if route is None:
            route = self._owner.route(api_key)
        if route is None:
            raise self._frame_error(f"a frame of {size} bytes with API key {api_key}, which is not served")
        if size > route.max_request_bytes and received > route.max_request_bytes:
            raise self._frame_error(
                f"a request of {size} bytes with API key {api_key}; the maximum is {route.max_request_bytes} bytes "
                "(kcore.max.request.bytes)"
            )
        return 0

    def request(self, bytes frame not None):
        self._request(frame, <const unsigned char*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))

    cdef int _request(self, bytes source, const unsigned char* frame, Py_ssize_t size) except -1:
        """Serves one request: decodes it, unless it is cached, and decides it.

        Args:
            source: the bytes object that contains the frame; None if it is in memory that may change.
            frame: the request with its header.
            size: the size of the frame in bytes.
        """
        cdef RequestHead head
        cdef ApiEntry route = None
        cdef RequestCache cache = self._cache
        cdef CachedRequest cached
        cdef bytes key = None
        cdef int api_key
        self._request_bytes = size
        if cache.repeats_header(frame, size):
            head.api_version = read_int16(frame + VERSION_AT)
            head.correlation_id = read_int32(frame + CORRELATION_ID_AT)
            head.body = PyBytes_GET_SIZE(cache.header) + CORRELATION_ID_BYTES
            return self._serve_encoded(cache.header_route, cache.header_context, source, frame, size, &head)
        if BODY_AT <= size <= MAX_CACHED_BYTES:
            api_key = read_int16(frame)
            if 0 <= api_key < len(self._routes) and self._routes[api_key] is not None:
                route = <ApiEntry>self._routes[api_key]
                if route.caches_requests:
                    key = key_of(frame, size)
                    cached = cache.find(key)
                    if cached is not None:
                        return self._decide(cached.route, cached.version, read_int32(frame + CORRELATION_ID_AT),
                                            cached.context, cached.request, cached)
        client_id = read_request_header(frame, size, 0, &head)
        if route is None:
            if 0 <= head.api_key < len(self._routes):
                route = self._routes[head.api_key]
            if route is None:
                route = self._owner.route(head.api_key)
        if route is None or not route.min_version <= head.api_version <= route.max_version:
            response, route, version = self._owner.unsupported(head.api_key, head.api_version)
            self.respond(route, version, head.correlation_id, response)
            return 0
        context = cache.context(self._owner, head.api_version, <str>client_id)
        if route._encoded is not None:
            cache.keep_header(frame, head.body, route, context)
            return self._serve_encoded(route, context, source, frame, size, &head)
        request = route._decode(frame, size, head.api_version, head.body)
        if key is not None:
            cache.add(key, route, head.api_version, <str>client_id, context, request)
        # The response is cached only if the request is repeated, because a starting client repeats few requests.
        return self._decide(route, head.api_version, head.correlation_id, context, request, None)

    cdef int _serve_encoded(
        self, ApiEntry route, object context, bytes source, const unsigned char* frame, Py_ssize_t size,
        RequestHead* head,
    ) except -1:
        """Serves a request on a fast path that needs no decoded request, or decodes it if that path cannot read it."""
        cdef ApiTimes times = route.times
        cdef int64_t began_ns
        request = None
        if route._encoded is not None and route.meter is None:
            began_ns = 0 if times is None else (self._mark_ns or times.now_ns())
            route.requests += 1
            try:
                response = route._decide_encoded(context, head.api_version, source, frame, size, head.body)
                if response is None:
                    request = route._decode(frame, size, head.api_version, head.body)
                    response = route.handle(context, request)
            except Exception as error:
                if request is None:
                    request = route._decode(frame, size, head.api_version, head.body)
                response = self._owner.failed(route, context, request, error)
            if response is not UNREADABLE:
                if request is None and not isinstance(response, Pending):
                    request = route._decode(frame, size, head.api_version, head.body)   # for a too long response
                return self._decided(
                    route, head.api_version, head.correlation_id, context, request, response, None, began_ns
                )
            route.requests -= 1     # `_decide` counts it
        request = route._decode(frame, size, head.api_version, head.body)
        return self._decide(route, head.api_version, head.correlation_id, context, request, None)

    cdef int _decide(
        self, ApiEntry route, int version, int correlation_id, object context, object request, CachedRequest cached
    ) except -1:
        cdef ApiTimes times = route.times
        cdef int64_t began_ns = 0 if times is None else (self._mark_ns or times.now_ns())
        route.requests += 1
        try:
            response = route._decide(context, request) if route.meter is None else route.meter(route, context, request)
        except Exception as error:
            response = self._owner.failed(route, context, request, error)
        return self._decided(route, version, correlation_id, context, request, response, cached, began_ns)

    cdef int _decided(
        self, ApiEntry route, int version, int correlation_id, object context, object request, object response,
        CachedRequest cached, int64_t began_ns,
    ) except -1:
        """Adds the response of a decided request to the queue, or a slot for it if it is not complete."""
        cdef ResponseSlot slot
        cdef Pending pending
        cdef bytes frame
        cdef ApiTimes times = route.times
        if isinstance(response, Pending):
            pending = <Pending>response
            if not pending.done:
                slot = slot_of(self, route, version, correlation_id)
                slot._pending = pending
                slot._waiting_bytes = self._request_bytes + WAITING_OVERHEAD
                self._waiting_bytes += slot._waiting_bytes
                self._append(slot)
                if times is not None:
                    self._record_time(times, slot, began_ns)
                self.parked = (
                    pending.parked or not route.small_responses or self._waiting_bytes > MAX_WAITING
                )
                pending.tell(slot, _respond)
                return 0
            response = pending.response
            if request is None:
                request = pending.request
        if response is None:
            if times is not None:
                self._record_time(times, None, began_ns)
            return 0
        if cached is not None and response is cached.response:
            if route.count_errors is not None:
                route.count_errors(response, route.errors)
            frame = frame_with_id(cached.frame, correlation_id)
        else:
            try:
                frame = route.frame_of(response, version, correlation_id)
            except MessageTooLargeError as error:
                response = self._owner.too_large(route, route.api, context, request, version, error)
                frame = route.whole_frame(response, version, correlation_id)
            if frame is None:
                slot = slot_of(self, route, version, correlation_id)
                self._append(slot)
                if times is not None:
                    self._record_time(times, slot, began_ns)
                self.parked = True
                self._write_later(slot, route.api, context, request, response)
                return 0
            if cached is not None and PyBytes_GET_SIZE(frame) <= MAX_KEPT_FRAME:
                cached.response = response
                cached.frame = frame
        if times is not None:
            self._record_time(times, None, began_ns)
        return self._ready(route, version, correlation_id, frame)

    cdef int _record_time(self, ApiTimes times, ResponseSlot slot, int64_t began_ns) except -1:
        """Records the time of a decided request. `slot` is the slot of an incomplete response, or None."""
        self._mark_ns = times.processed(began_ns, slot is None)
        if slot is not None:
            slot._began_ns = began_ns
        return 0

    # ---- responses

    cdef int _write_later(self, ResponseSlot slot, object api, object context, object request, object response) except -1:
        """Lets the owner encode a long response in slices, unless the connection is closed."""
        if self._owner is not None:
            self._owner.write_later(
                slot, slot._route, api, context, request, response, slot._version, slot._correlation_id)

    def respond(self, ApiEntry route not None, int version, int correlation_id, response):
        cdef bytes frame = route.frame_of(response, version, correlation_id)
        if frame is None:
            frame = route._encode(response, version, correlation_id, 0)
        self._ready(route, version, correlation_id, frame)

    cdef int _ready(self, ApiEntry route, int version, int correlation_id, bytes frame) except -1:
        """Adds a complete response to the queue. `take` returns it after all earlier responses."""
        cdef ResponseSlot slot
        self.held_bytes += PyBytes_GET_SIZE(frame)
        if self._first is None:
            self._out.append(frame)
        else:
            slot = slot_of(self, route, version, correlation_id)
            slot.frame = frame
            self._append(slot)
        return 0

    def defer(self, ResponseSlot slot not None, *, bint parked=False):
        if slot is not self._last:
            self._append(slot)
        if parked:
            self.parked = True

    cdef void _append(self, ResponseSlot slot):
        if self._first is None:
            self._first = slot
        else:
            self._last._next = slot
        self._last = slot

    cdef void _drop_first(self):
        """Removes the first slot.

        Slots are unlinked one by one, because freeing a long chain of slots at once would recurse deeply.
        """
        cdef ResponseSlot first = self._first
        self._first = first._next
        first._next = None
        self._waiting_bytes -= first._waiting_bytes
        if self._first is None:
            self._last = None

    cdef int _complete(self, ResponseSlot slot, bytes frame) except -1:
        """Completes a slot with a frame, which is sent once all earlier slots are complete."""
        cdef ApiTimes times = slot._route.times
        if slot._began_ns and times is not None:
            times.add(times.now_ns() - slot._began_ns)
        slot.frame = frame
        self.held_bytes += PyBytes_GET_SIZE(frame)
        while self._first is not None and self._first.frame is not None:
            if PyBytes_GET_SIZE(self._first.frame):
                self._out.append(self._first.frame)
            self._drop_first()
        if self._first is None:
            self.parked = False
        if not self._announced and self._owner is not None:
            self._announced = True
            flush_later(self._owner)
        return 0

    @property
    def waiting(self) -> bool:
        return self._first is not None

    def remove_from(self, ResponseSlot failed not None):
        cdef ResponseSlot slot = self._first
        cdef ResponseSlot last = None
        while slot is not None and slot is not failed:
            last = slot
            slot = slot._next
        if slot is None:
            return
        if last is None:
            while self._first is not None:
                self._drop_first()
            self.parked = False
            return
        self._last = last
        while last is not None:
            slot = last._next
            last._next = None
            if slot is not None:
                self._waiting_bytes -= slot._waiting_bytes
            last = slot

    cpdef take(self):
        cdef bytes data
        self._announced = False
        if not self._out:
            return None
        data = <bytes>self._out[0] if PyList_GET_SIZE(self._out) == 1 else joined(self._out)
        self._out.clear()
        self.held_bytes -= PyBytes_GET_SIZE(data)
        return data

    def close(self):
        cdef ResponseSlot slot = self._first
        self.stopped = True
        self._first = self._last = None
        while slot is not None:
            if slot._pending is not None:
                slot._pending.abandon()
            slot = slot._next
        self._out.clear()
        self.clear()
        self.clear_cache()
        self._owner = None
