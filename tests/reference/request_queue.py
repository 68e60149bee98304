"""The request queue of a connection in pure Python: the reference implementation of `kcore_ext.server.request_queue`.

Kafka serves one request of a connection at a time. This queue does the same, with one difference that clients cannot
see: while a response waits only for a commit, the queue also decides later requests, which share the commit.

A parked request (a join, a sync, a long poll) stops the queue until its response. A request that waits for a commit
also stops the queue if its response may be large.

Servers use the compiled queue; tests compare it with this one.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.runtime import Pending
from kcore.server.errors import shorten_messages
from kcore.server.frames import LENGTH_BYTES, FrameError, other_protocol
from kcore_ext.codec.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore_ext.server.api_entry import ApiEntry
    from kcore_ext.server.request_queue import Owner


KEY_BYTES = 2
CHECKED_BYTES = 65_536
"""Size of a request frame in bytes. The queue compares only larger frames with the size limit of their API."""
MAX_WAITING_BYTES = 4_194_304
WAITING_OVERHEAD_BYTES = 512
RESERVE_THRESHOLD_BYTES = 16_384
"""Only responses above this size in bytes count towards the memory limit as soon as they are encoded."""


class FrameCutter:
    """Cuts the received bytes of a connection into frames. Decodes nothing beyond the frame that it returns.

    Stores the bytes that it has not returned yet: complete frames whose turn has not come, and at most one incomplete
    frame.

    Args:
        max_frame_bytes: the largest accepted length (`socket.request.max.bytes`).
        error: creates the exception for an invalid length.
        check: called with the API key, the length and the number of received bytes of a long frame. Raises an exception
            to refuse the frame.
    """

    __slots__ = ("_buffer", "_check", "_error", "_max_frame_bytes", "_position")

    def __init__(
        self,
        max_frame_bytes: int,
        error: Callable[[str], Exception] = FrameError,
        check: Callable[[int, int, int], None] = lambda api_key, size, received: None,
    ) -> None:
        self._check = check
        self._max_frame_bytes = max_frame_bytes
        self._error = error
        self._buffer: bytes | bytearray = b""
        self._position = 0

    def __len__(self) -> int:
        """Returns the number of received bytes that were not taken yet."""
        return len(self._buffer) - self._position

    @property
    def claim_bytes(self) -> int:
        """Returns the number of stored bytes, or the size of the incomplete frame if this size is larger."""
        buffered = len(self._buffer) - self._position
        if buffered < LENGTH_BYTES:
            return buffered
        return max(buffered, LENGTH_BYTES + min(self._size(), self._max_frame_bytes))

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        left = len(self._buffer) - self._position
        if not left:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            # A large frame arrives in many pieces: grow one buffer, without the bytes that were taken.
            if self._position:
                del self._buffer[: self._position]
            self._buffer += data
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._position :])
            self._buffer += data
        self._position = 0

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Sets the largest accepted frame length."""
        self._max_frame_bytes = max_frame_bytes

    def clear(self) -> None:
        """Discards the received bytes."""
        self._buffer = b""
        self._position = 0

    def _size(self) -> int:
        position = self._position
        return int.from_bytes(self._buffer[position : position + LENGTH_BYTES], "big", signed=True)

    def next_frame(self) -> bytes | None:
        """Returns the next complete frame without its length, or None if it has not arrived.

        Raises:
            FrameError: the length is negative or above the limit; or the exception that `error` creates.
        """
        buffer, position = self._buffer, self._position
        if len(buffer) - position < LENGTH_BYTES:
            return None
        size = self._size()
        if size < 0 or size > self._max_frame_bytes:
            raise self._error(
                f"a frame of {size} bytes; valid: 0 to {self._max_frame_bytes} bytes{other_protocol(size)}"
            )
        if size > CHECKED_BYTES and len(buffer) - position >= LENGTH_BYTES + KEY_BYTES:
            at = position + LENGTH_BYTES
            self._check(int.from_bytes(buffer[at : at + KEY_BYTES], "big", signed=True), size, len(buffer) - at)
        end = position + LENGTH_BYTES + size
        if len(buffer) < end:
            return None
        if isinstance(buffer, bytes):
            frame = buffer[position + LENGTH_BYTES : end]
        else:
            frame = bytes(memoryview(buffer)[position + LENGTH_BYTES : end])  # one copy, regardless of the size
        if end == len(buffer):
            self.clear()
        else:
            self._position = end
        return frame


class ReferenceResponseSlot:
    """One response in the queue. Stores the frame when the response is complete."""

    __slots__ = ("correlation_id", "frame", "pending", "queue", "route", "version", "waiting_bytes")

    def __init__(self, queue: ReferenceRequestQueue, route: ApiEntry, version: int, correlation_id: int) -> None:
        self.queue = queue
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.pending: Pending | None = None
        self.waiting_bytes = 0
        self.frame: bytes | None = None

    def respond(self, response: Any) -> None:
        """Encodes the response and completes the slot. A response of None completes the slot without a frame."""
        pending, self.pending = self.pending, None
        try:
            frame = b"" if response is None else self._frame_of(pending, response)
        except Exception as error:
            self.queue.owner.response_failed(self, error)  # type: ignore[arg-type]
        else:
            self.complete(frame)

    def _frame_of(self, pending: Pending | None, response: Any) -> bytes:
        route, version = self.route, self.version
        try:
            return frame_of(route, response, version, self.correlation_id)
        except MessageTooLargeError as error:
            if pending is None:
                raise
            context, request = pending.context, pending.request
            response = self.queue.owner.too_large(route, pending.api, context, request, version, error)
            return frame_of(route, response, version, self.correlation_id)

    def complete(self, frame: bytes) -> None:
        """Completes the slot with a frame; b"" sends nothing."""
        self.frame = frame
        self.queue.response_completed(len(frame))


def decide(route: ApiEntry, context: Any, request: Any) -> Any:
    """Passes a request to its API: to the fast path if the node's lease is valid, and otherwise to `handle`."""
    response = None
    if route.fast is not None and (route.lease is None or route.lease.is_valid()):
        response = route.fast(context, request)
        if route.lease is not None and response is not None:
            parked = isinstance(response, Pending) and response.parked
            if parked or not (isinstance(response, Pending) or route.lease.is_valid()):
                assert route.checked is not None, "a lease comes with its check"
                return route.checked(context, request, response)
    return route.handle(context, request) if response is None else response


def frame_of(route: ApiEntry, response: Any, version: int, correlation_id: int) -> bytes:
    """Encodes a response and counts its errors. Shortens error messages that are too long to be encoded.

    Raises:
        MessageTooLargeError: the response exceeds the size limit or the remaining memory.
    """
    if route.count_errors is not None:
        route.count_errors(response, route.errors)
    header_version, limit_bytes = route.header_version(version), route.limit_bytes
    try:
        frame = encode_response(response, version, correlation_id, header_version, limit_bytes=limit_bytes)
    except EncodeError as error:
        if isinstance(error, MessageTooLargeError) or not shorten_messages(response):
            raise
        frame = encode_response(response, version, correlation_id, header_version, limit_bytes=limit_bytes)
    if len(frame) > RESERVE_THRESHOLD_BYTES and route.reserve_memory is not None:
        route.reserve_memory(len(frame))
    return frame


class ReferenceRequestQueue:
    """The reference implementation of `kcore_ext.server.request_queue.RequestQueue`, with the same arguments."""

    def __init__(
        self,
        owner: Owner,
        routes: list[ApiEntry | None],
        *,
        frame_error: Callable[[str], Exception] = FrameError,
        max_frame_bytes: int,
        buffer_bytes: int,
        turn_ns: int = 0,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.owner = owner
        self.late = False
        self.turn_ns = turn_ns
        self._clock_ns = clock_ns
        self.gate: Callable[[bytes], None] | None = None
        self.parked = False
        self.stopped = False
        self.muted = False
        self.held_bytes = 0
        self._routes = routes
        self._buffer_bytes = buffer_bytes
        self._frames = FrameCutter(max_frame_bytes, frame_error, self._check_size)
        self._frame_error = frame_error
        # In request order; the first one is incomplete.
        self._slots: deque[ReferenceResponseSlot] = deque()
        self._out: list[bytes] = []
        self._serving = False
        self._announced = False  # the owner was notified that `take` may return bytes

    # ---- received bytes

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def claim_bytes(self) -> int:
        """Returns the number of stored bytes, or the size of the incomplete frame if this size is larger."""
        return self._frames.claim_bytes

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        self._frames.feed(data)

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """Sets the largest accepted frame length."""
        self._frames.set_max_frame_bytes(max_frame_bytes)

    def clear(self) -> None:
        """Discards the received bytes."""
        self._frames.clear()

    @property
    def cache_size(self) -> int:
        """Returns 0: this implementation caches nothing."""
        return 0

    def clear_cache(self) -> None:
        """Does nothing, because this implementation caches no request contexts."""

    # ---- requests

    def serve(self) -> bool:
        """Serves complete frames until a request is parked or no frame is left.

        Returns True if it stopped because the unsent responses exceed the buffer limit.
        """
        if self._serving:
            return False
        self._serving = True
        self.late = False
        served, until_ns = 0, 0
        try:
            while not (self.parked or self.stopped or self.muted):
                if self.held_bytes > self._buffer_bytes:
                    return True
                if self.turn_ns and served:
                    now_ns = self._clock_ns()
                    if served == 1:
                        until_ns = now_ns + self.turn_ns
                    elif now_ns >= until_ns:
                        self.late = True
                        break
                served += 1
                frame = self._frames.next_frame()
                if frame is None:
                    break
                if self.gate is not None:
                    self.gate(frame)
                else:
                    self.request(frame)
        finally:
            self._serving = False
        return False

    def _check_size(self, api_key: int, size: int, received: int) -> None:
        """Refuses a frame above the size limit of its API, once more bytes than this limit have arrived."""
        route = self._routes[api_key] if 0 <= api_key < len(self._routes) else None
        if route is None:
            route = self.owner.route(api_key)
        if route is None:
            raise self._frame_error(f"a frame of {size} bytes with API key {api_key}, which is not served")
        if size > route.max_request_bytes and received > route.max_request_bytes:
            raise self._frame_error(
                f"a request of {size} bytes with API key {api_key}; the maximum is {route.max_request_bytes} bytes "
                "(kcore.max.request.bytes)"
            )

    def request(self, frame: bytes) -> None:
        """Serves one frame at once, even if the queue waits for a parked request or is muted by a quota."""
        api_key, version, correlation_id, client_id, position = decode_request_header(frame, 0)
        route = self._routes[api_key] if 0 <= api_key < len(self._routes) else None
        if route is None:
            route = self.owner.route(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            response, route, version = self.owner.unsupported(api_key, version)
            self.respond(route, version, correlation_id, response)
            return
        context = self.owner.make_context(version, client_id)
        request = route.decode(frame, version, position)
        route.requests += 1
        try:
            if route.meter is not None:
                response = route.meter(route, context, request)
            else:
                response = decide(route, context, request)
        except Exception as error:
            response = self.owner.failed(route, context, request, error)
        if isinstance(response, Pending):
            if not response.done:
                slot = ReferenceResponseSlot(self, route, version, correlation_id)
                slot.pending = response
                slot.waiting_bytes = len(frame) + WAITING_OVERHEAD_BYTES
                self.defer(slot)
                too_many = sum(each.waiting_bytes for each in self._slots) > MAX_WAITING_BYTES
                self.parked = response.parked or not route.small_responses or too_many
                response.on_complete(slot.respond)
                return
            response = response.response
        if response is None:
            return
        try:
            self.respond(route, version, correlation_id, response)
        except MessageTooLargeError as error:
            response = self.owner.too_large(route, route.api, context, request, version, error)
            self.respond(route, version, correlation_id, response)

    # ---- responses

    def respond(self, route: ApiEntry, version: int, correlation_id: int, response: Any) -> None:
        """Sends an immediate response, or queues it after earlier responses."""
        frame = frame_of(route, response, version, correlation_id)
        self.held_bytes += len(frame)
        if self._slots:
            slot = ReferenceResponseSlot(self, route, version, correlation_id)
            slot.frame = frame
            self._slots.append(slot)
        else:
            self._out.append(frame)

    def defer(self, slot: ReferenceResponseSlot, *, parked: bool = False) -> None:
        """Reserves the position of a later response. Reserving the last position again changes nothing."""
        if not self._slots or self._slots[-1] is not slot:
            self._slots.append(slot)
        if parked:
            self.parked = True

    def response_completed(self, size_bytes: int) -> None:
        """Counts the `size_bytes` of a response that has just been completed. All complete responses at the front of
        the queue can then be sent.
        """
        self.held_bytes += size_bytes
        slots = self._slots
        while slots and slots[0].frame is not None:
            frame = slots.popleft().frame
            if frame:
                self._out.append(frame)
        if not slots:
            self.parked = False
        if not self._announced:
            self._announced = True
            self.owner.schedule_flush()

    @property
    def waiting(self) -> bool:
        """True if any response is outstanding."""
        return bool(self._slots)

    def remove_from(self, failed: ReferenceResponseSlot) -> None:
        """Removes a failed response and all later responses from the queue."""
        while self._slots and self._slots.pop() is not failed:
            pass
        if not self._slots:
            self.parked = False

    def take(self) -> bytes | None:
        """Returns the bytes that may be sent now, or None if there are none."""
        self._announced = False
        if not self._out:
            return None
        data = b"".join(self._out)
        self._out.clear()
        self.held_bytes -= len(data)
        return data

    def close(self) -> None:
        """Closes the queue. Requests without a response still complete, but their responses are dropped."""
        self.stopped = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.pending is not None:
                slot.pending.abandon()
        self._out.clear()
        self._frames.clear()
