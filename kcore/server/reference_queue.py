"""A connection's requests in a line, in plain Python: the definition of what `kcore_ext.server.request_queue` does
fast.

Kafka serves one request of a connection at a time. So does a line, with one difference that nobody can see: while an
answer waits for nothing but the commit of what was decided, the requests behind it are decided too, and all of them
share that commit. Behind a parked request (a join, a sync, a long poll), and behind one that waits for a commit with an
answer that may be large, nothing is looked at.

Servers use the compiled line; tests hold it to this one.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.protocol import EncodeError, MessageTooLargeError
from kcore.runtime import Pending
from kcore.server.errors import shorten_messages
from kcore.server.frames import LENGTH_BYTES, FrameError
from kcore_ext.codec.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore_ext.server.request_queue import ApiEntry, Owner


NOTED_BYTES = 16_384
"""Longer responses count as memory from when they are encoded."""


class FrameCutter:
    """Cuts a stream into frames, without looking further than the one that is asked for.

    Holds what has arrived and was not taken: at most one frame in the making, and the whole ones behind a request
    that is still being served.

    Args:
        max_frame_bytes: the largest length that is accepted (`socket.request.max.bytes`).
        error: makes what is raised for a length that no frame can have.
    """

    __slots__ = ("_buffer", "_error", "_max_frame_bytes", "_position")

    def __init__(self, max_frame_bytes: int, error: Callable[[str], Exception] = FrameError) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._error = error
        self._buffer: bytes | bytearray = b""
        self._position = 0

    def __len__(self) -> int:
        """Bytes that arrived and were not taken yet."""
        return len(self._buffer) - self._position

    @property
    def claim_bytes(self) -> int:
        """What is held, or will be once the frame that has begun is whole."""
        held = len(self._buffer) - self._position
        if held < LENGTH_BYTES:
            return held
        return max(held, LENGTH_BYTES + min(self._size(), self._max_frame_bytes))

    def feed(self, data: bytes) -> None:
        """Takes what arrived."""
        left = len(self._buffer) - self._position
        if not left:
            self._buffer = data
        elif isinstance(self._buffer, bytearray):
            # A large frame arrives in many pieces: keep one growing buffer, drop what was taken.
            if self._position:
                del self._buffer[: self._position]
            self._buffer += data
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._position :])
            self._buffer += data
        self._position = 0

    def accept(self, max_frame_bytes: int) -> None:
        """Accepts frames of another length from now on."""
        self._max_frame_bytes = max_frame_bytes

    def clear(self) -> None:
        """Forgets what arrived."""
        self._buffer = b""
        self._position = 0

    def _size(self) -> int:
        position = self._position
        return int.from_bytes(self._buffer[position : position + LENGTH_BYTES], "big", signed=True)

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None if it has not arrived.

        Raises:
            FrameError: its length is negative or over the limit; or what `error` makes.
        """
        buffer, position = self._buffer, self._position
        if len(buffer) - position < LENGTH_BYTES:
            return None
        size = self._size()
        if size < 0 or size > self._max_frame_bytes:
            raise self._error(f"a frame of {size} bytes; 0 to {self._max_frame_bytes} are accepted")
        end = position + LENGTH_BYTES + size
        if len(buffer) < end:
            return None
        if isinstance(buffer, bytes):
            frame = buffer[position + LENGTH_BYTES : end]
        else:
            frame = bytes(memoryview(buffer)[position + LENGTH_BYTES : end])  # one copy, however large
        if end == len(buffer):
            self.clear()
        else:
            self._position = end
        return frame


class ReferenceResponseSlot:
    """A place in the row of answers; its frame is there once the request was answered."""

    __slots__ = ("correlation_id", "frame", "pending", "queue", "route", "version")

    def __init__(self, queue: ReferenceRequestQueue, route: ApiEntry, version: int, correlation_id: int) -> None:
        self.queue = queue
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.pending: Pending | None = None
        self.frame: bytes | None = None

    def arrive(self, response: Any) -> None:
        """The response came; None: there is none."""
        pending, self.pending = self.pending, None
        try:
            frame = b"" if response is None else self._frame_of(pending, response)
        except Exception as error:
            self.queue.owner.cannot_answer(self, error)  # type: ignore[arg-type]
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
        """The frame came, whole; b"" sends nothing."""
        self.frame = frame
        self.queue.arrived(len(frame))


def frame_of(route: ApiEntry, response: Any, version: int, correlation_id: int) -> bytes:
    """Encodes a response and counts its errors; cuts messages that are too long to be written.

    Raises:
        MessageTooLargeError: it has more bytes than a response may have, or than there is memory for now.
    """
    if route.walk is not None:
        route.walk(response, route.errors)
    header_version, limit_bytes = route.header_version(version), route.limit_bytes
    try:
        frame = encode_response(response, version, correlation_id, header_version, limit_bytes=limit_bytes)
    except EncodeError as error:
        if isinstance(error, MessageTooLargeError) or not shorten_messages(response):
            raise
        frame = encode_response(response, version, correlation_id, header_version, limit_bytes=limit_bytes)
    if len(frame) > NOTED_BYTES and route.note is not None:
        route.note(len(frame))
    return frame


class ReferenceRequestQueue:
    """See `kcore_ext.server.request_queue.RequestQueue`; the arguments and attributes are the same."""

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
        self._turn_ns = turn_ns
        self._clock_ns = clock_ns
        self.gate: Callable[[bytes], None] | None = None
        self.parked = False
        self.stopped = False
        self.held_bytes = 0
        self._routes = routes
        self._buffer_bytes = buffer_bytes
        self._frames = FrameCutter(max_frame_bytes, frame_error)
        # in the order of the requests; the first one has not come
        self._answers: deque[ReferenceResponseSlot] = deque()
        self._out: list[bytes] = []
        self._serving = False
        self._announced = False  # the owner knows that there may be something to take

    # ---- bytes in

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def claim_bytes(self) -> int:
        """What is held, or will be once the frame that has begun is whole."""
        return self._frames.claim_bytes

    def feed(self, data: bytes) -> None:
        """Takes what arrived."""
        self._frames.feed(data)

    def accept(self, max_frame_bytes: int) -> None:
        """Accepts frames of another length from now on."""
        self._frames.accept(max_frame_bytes)

    def clear(self) -> None:
        """Forgets what arrived."""
        self._frames.clear()

    @property
    def remembered(self) -> int:
        """Nothing: contexts are made for every request."""
        return 0

    def forget(self) -> None:
        """Forgets who asked: nothing is remembered here."""

    # ---- requests

    def serve(self) -> bool:
        """Serves whole frames until one parks or there is none left; True if it stopped because too much is held."""
        if self._serving:
            return False
        self._serving = True
        self.late = False
        served, until_ns = 0, 0
        try:
            while not (self.parked or self.stopped):
                if self.held_bytes > self._buffer_bytes:
                    return True
                if self._turn_ns and served:
                    now_ns = self._clock_ns()
                    if served == 1:
                        until_ns = now_ns + self._turn_ns
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

    def request(self, frame: bytes) -> None:
        """Serves one frame, whatever the gate says."""
        api_key, version, correlation_id, client_id, position = decode_request_header(frame, 0)
        route = self._routes[api_key] if 0 <= api_key < len(self._routes) else None
        if route is None:
            route = self.owner.route(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            response, route, version = self.owner.unsupported(api_key, version)
            self.answer(route, version, correlation_id, response)
            return
        context = self.owner.make_context(version, client_id)
        request = route.api.request_type.decode(frame, version, position)
        route.requests += 1
        try:
            response = None if route.fast is None else route.fast(context, request)
            if response is None:
                response = route.handle(context, request)
        except Exception as error:
            response = self.owner.failed(route, context, request, error)
        if isinstance(response, Pending):
            if not response.done:
                answer = ReferenceResponseSlot(self, route, version, correlation_id)
                answer.pending = response
                self.defer(answer)
                self.parked = response.parked or not route.small_responses
                response.on_complete(answer.arrive)
                return
            response = response.response
        if response is None:
            return
        try:
            self.answer(route, version, correlation_id, response)
        except MessageTooLargeError as error:
            response = self.owner.too_large(route, route.api, context, request, version, error)
            self.answer(route, version, correlation_id, response)

    # ---- answers

    def answer(self, route: ApiEntry, version: int, correlation_id: int, response: Any) -> None:
        """A response that is there at once: it may leave, or waits behind those in front of it."""
        frame = frame_of(route, response, version, correlation_id)
        self.held_bytes += len(frame)
        if self._answers:
            answer = ReferenceResponseSlot(self, route, version, correlation_id)
            answer.frame = frame
            self._answers.append(answer)
        else:
            self._out.append(frame)

    def defer(self, answer: ReferenceResponseSlot, *, parked: bool = False) -> None:
        """Keeps a place in the row for an answer that comes later. Keeping the last place again changes nothing."""
        if not self._answers or self._answers[-1] is not answer:
            self._answers.append(answer)
        if parked:
            self.parked = True

    def arrived(self, size_bytes: int) -> None:
        """Some answer of `size_bytes` came: everything at the front of the row that is there may leave."""
        self.held_bytes += size_bytes
        answers = self._answers
        while answers and answers[0].frame is not None:
            frame = answers.popleft().frame
            if frame:
                self._out.append(frame)
        if not answers:
            self.parked = False
        if not self._announced:
            self._announced = True
            self.owner.arrived()

    @property
    def waiting(self) -> bool:
        """Whether any answer is waited for."""
        return bool(self._answers)

    def cut(self, failed: ReferenceResponseSlot) -> None:
        """Gives up an answer and all behind it."""
        while self._answers and self._answers.pop() is not failed:
            pass
        if not self._answers:
            self.parked = False

    def take(self) -> bytes | None:
        """What may be sent now; None for nothing."""
        self._announced = False
        if not self._out:
            return None
        data = b"".join(self._out)
        self._out.clear()
        self.held_bytes -= len(data)
        return data

    def close(self) -> None:
        """The connection is gone: answers on their way are thrown away, what was asked goes on."""
        self.stopped = True
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if answer.pending is not None:
                answer.pending.abandon()
        self._out.clear()
        self._frames.clear()
