"""One connection: frames in, requests served in order, answers out in the same order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.broker.producing import CloseConnectionError
from kcore.logs import fields
from kcore.protocol import DecodeError, EncodeError
from kcore.runtime import Pending, RequestContext
from kcore.security.principal import ANONYMOUS
from kcore.server.dispatch import RefusedError
from kcore.server.frames import FrameCutter, FrameError
from kcore_ext.codec import decode_request_header, encode_response

if TYPE_CHECKING:
    from kcore.server.dispatch import Dispatch, Served
    from kcore.server.server import Server

logger = logging.getLogger(__name__)

READ_AHEAD_BYTES = 16_384  # read behind a request that waits: so much that a connection that breaks is still noticed
MAX_CONTEXTS = 64  # combinations of version and client id that a connection remembers
MAX_REMEMBERED_NAME = 256  # characters of a client id; longer ones are made anew for each request


MAX_MESSAGE = 1_000
"""What is left of an error message that names what a client sent, where the whole does not fit into a string."""


def _encoded(response: Any, version: int, correlation_id: int, header_version: int) -> bytes:
    try:
        return encode_response(response, version, correlation_id, header_version)
    except EncodeError:
        if not _shorten_messages(response):
            raise
        return encode_response(response, version, correlation_id, header_version)


def _shorten_messages(message: Any) -> bool:
    """Cuts error messages, in a response and the structs in it; returns whether any was long."""
    any_cut = False
    for spec in message.FIELDS:
        value = getattr(message, spec.name)
        if spec.struct is not None and value is not None:
            for inner in value if isinstance(value, list) else [value]:
                any_cut = _shorten_messages(inner) or any_cut
        elif spec.name.endswith("error_message") and isinstance(value, str) and len(value) > MAX_MESSAGE:
            setattr(message, spec.name, value[:MAX_MESSAGE])
            any_cut = True
    return any_cut


class Answer:
    """A place in the row of answers; its frame is there once the request was answered."""

    __slots__ = ("connection", "correlation_id", "frame", "pending", "served", "version")

    def __init__(
        self, connection: Connection, served: Served, version: int, correlation_id: int, pending: Pending | None
    ) -> None:
        self.connection = connection
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.pending = pending
        self.frame: bytes | None = None

    def arrive(self, response: Any) -> None:
        """The response came."""
        self.pending = None
        walk = self.served.walk
        if walk is not None and response is not None:
            walk(response, self.served.errors)
        try:
            self.frame = (
                b""
                if response is None
                else _encoded(response, self.version, self.correlation_id, self.served.header_version(self.version))
            )
        except Exception:
            logger.exception("an answer of %s cannot be written", type(self.served.api).__name__)
            self.connection.cannot_answer(self)
        else:
            self.connection.answered(len(self.frame))


class Connection(asyncio.Protocol):
    """A client's connection, on a listener where nobody has to authenticate with SASL.

    Kafka serves one request of a connection at a time. So does this, with one difference that nobody can see: while
    an answer waits for nothing but the commit of what was decided, the requests behind it are decided too, and all of
    them share that commit. Behind a parked request (a join, a sync, a long poll) nothing is looked at.

    What a peer can make it hold is bounded: one frame in the making, a little of what it sends ahead, and answers of
    `kcore.connection.buffer.bytes` and one more. While it leaves more than that unread, its requests wait.

    Attributes:
        claimed_bytes: what it holds of requests, as the server's `RequestMemory` knows it.
        principal: who the client is.
    """

    __slots__ = (
        "_admitted",
        "_answers",
        "_buffer_bytes",
        "_closing",
        "_contexts",
        "_dispatch",
        "_eof",
        "_frames",
        "_held_bytes",
        "_idle",
        "_last_byte_s",
        "_out",
        "_parked",
        "_reading",
        "_refused",
        "_serving",
        "_unread",
        "_unsent_bytes",
        "claimed_bytes",
        "client_host",
        "connection_id",
        "listener",
        "principal",
        "server",
        "transport",
    )

    def __init__(self, server: Server, listener: str, connection_id: int) -> None:
        self.server = server
        self.listener = listener
        self.connection_id = connection_id
        self.client_host = ""
        self.principal = ANONYMOUS
        self.transport: Any = None
        self.claimed_bytes = 0
        self._dispatch: Dispatch = server.dispatch
        self._frames = FrameCutter(server.config.socket_request_max_bytes)
        self._buffer_bytes = server.config.kcore_connection_buffer_bytes
        self._contexts: dict[tuple[int, str], RequestContext] = {}
        self._answers: deque[Answer] = deque()  # in the order of the requests; the first one has not come
        self._out: list[bytes] = []
        self._held_bytes = 0  # answers that are made and not with the transport yet
        self._parked = False  # the last request waits for something else than a commit
        self._serving = False
        self._unread = False  # the peer leaves its answers lying: serve no more until it reads
        self._reading = True
        self._eof = False
        self._refused = False  # a request was broken: what stands behind it is lost
        self._admitted = False
        self._closing = False
        self._last_byte_s = 0.0
        self._unsent_bytes = 0
        self._idle: asyncio.TimerHandle | None = None

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if isinstance(peer, tuple) else "/127.0.0.1"
        why = self.server.refusal(self.client_host)
        if why is not None:
            logger.warning("%s closes: %s", self.client_host, why, extra=fields(connection=self.connection_id))
            self.server.refused_connections += 1
            self._closing = True
            self.transport.abort()
            return
        self._admitted = True
        self.server.came(self)
        self.transport.set_write_buffer_limits(high=self._buffer_bytes)
        self._last_byte_s = self.server.loop.time()
        self._watch_idle()
        if self.server.memory is not None:
            self.server.loop.call_soon(self._pace)  # uvloop begins to read behind this call, whatever it says

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._closing or self._refused:
            return
        self.server.received_bytes += len(data)
        self._last_byte_s = self.server.loop.time()
        self._frames.feed(data)
        self.server.driver.begin_round()
        self._serve()
        self._pace()

    def eof_received(self) -> bool:
        """The client sends no more; what it asked is still answered."""
        self._eof = True
        self._close_if_done()
        return not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: answers on their way are thrown away, what was asked goes on."""
        self._closing = True
        if self._idle is not None:
            self._idle.cancel()
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if answer.pending is not None:
                answer.pending.abandon()
        self._out.clear()
        self._frames.clear()
        if self._admitted:
            self.server.went(self)

    def pause_writing(self) -> None:
        """The peer does not read: its requests wait."""
        self._unread = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._unread = False
        self.server.driver.begin_round()
        self.go_on()

    # ---- requests

    def _serve(self) -> None:
        """Serves whole frames until one parks, the peer stops reading, or there is none left."""
        if self._serving:
            return
        self._serving = True
        try:
            while not (self._parked or self._unread or self._closing or self._refused):
                if self._held_bytes > self._buffer_bytes:
                    self._flush()
                    if self._unread or self._held_bytes > self._buffer_bytes:
                        break
                frame = self._frames.next_frame()
                if frame is None:
                    break
                self._request(frame)
        except (FrameError, RefusedError, CloseConnectionError) as error:
            self._refuse(str(error))
        except DecodeError as error:
            self._refuse(f"a request that cannot be read: {error}")
        except Exception:
            logger.exception("a request of %s cannot be answered", self.client_host)
            self._refuse("a failure of the server's own")
        finally:
            self._serving = False
            self._flush()

    def _request(self, frame: Any) -> None:
        api_key, version, correlation_id, client_id, position = decode_request_header(frame, 0)
        served = self._dispatch.find(api_key, version)
        if served is None:
            response, served, version = self._dispatch.unsupported(api_key, version)
            self._answer(response, served, version, correlation_id)
            return
        context = self._contexts.get((version, client_id))
        if context is None:
            context = self._context(version, client_id)
        served.requests += 1
        request = served.decode(frame, version, position)
        response = self._dispatch.submit(context, request)
        if isinstance(response, Pending):
            if not response.done:
                answer = Answer(self, served, version, correlation_id, response)
                self._answers.append(answer)
                self._parked = response.parked
                response.on_complete(answer.arrive)
                return
            response = response.response
        if response is not None:
            self._answer(response, served, version, correlation_id)

    def _answer(self, response: Any, served: Served, version: int, correlation_id: int) -> None:
        """A response that is there at once: it leaves, or waits behind those in front of it."""
        if served.walk is not None:
            served.walk(response, served.errors)
        frame = _encoded(response, version, correlation_id, served.header_version(version))
        self._held_bytes += len(frame)
        if self._answers:
            answer = Answer(self, served, version, correlation_id, None)
            answer.frame = frame
            self._answers.append(answer)
        else:
            self._out.append(frame)

    def _context(self, version: int, client_id: str) -> RequestContext:
        context = RequestContext(
            api_version=version,
            client_id=client_id,
            client_host=self.client_host,
            listener=self.listener,
            principal=self.principal,
            connection_id=self.connection_id,
        )
        if len(client_id) <= MAX_REMEMBERED_NAME:
            if len(self._contexts) >= MAX_CONTEXTS:  # a client that changes its id with every request
                self._contexts.clear()
            self._contexts[version, client_id] = context
        return context

    # ---- answers

    def answered(self, size_bytes: int) -> None:
        """Some answer of `size_bytes` came: everything at the front of the row that is there may leave."""
        self._held_bytes += size_bytes
        answers = self._answers
        while answers and answers[0].frame is not None:
            frame = answers.popleft().frame
            if frame:
                self._out.append(frame)
        if not answers:
            self._parked = False
        self.server.wants_flush(self)

    def cannot_answer(self, failed: Answer) -> None:
        """An answer came that cannot be written: the connection ends behind those in front of it."""
        while self._answers and self._answers.pop() is not failed:
            pass
        self._refuse("an answer that cannot be written")
        self.answered(0)

    def go_on(self) -> None:
        """Sends what is there and serves what waited for that: at the end of a round, or when there is room again."""
        if self._closing:
            return
        self._flush()
        self._serve()
        self._pace()
        self._close_if_done()

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._last_byte_s = self.server.loop.time()
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._held_bytes -= len(data)
        self.server.sent_bytes += len(data)
        self.transport.write(data)

    def _pace(self) -> None:
        """Reads on, or lets the peer's own socket hold what it sends ahead."""
        if self._closing:
            return
        waits = self._parked or self._unread or self._held_bytes > self._buffer_bytes
        read = not (waits and len(self._frames) > READ_AHEAD_BYTES)
        memory = self.server.memory
        if memory is not None:
            memory.claim(self, self._frames.claim_bytes)
            read = read and memory.may_read(self)
        if read is not self._reading:
            self._reading = read
            if read:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def look_at_memory(self) -> None:
        """The server's request memory became full, or has room again."""
        self._pace()

    # ---- the end

    def _refuse(self, why: str) -> None:
        """Answers what stands in front, then closes: the protocol has no frame for errors."""
        logger.warning("%s closes: %s", self.client_host, why, extra=fields(connection=self.connection_id))
        self.server.refused_requests += 1
        self._refused = self._eof = True
        self._frames.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Closes if the client sends no more and has all its answers."""
        if self._eof and not self._answers and not (self._unread and len(self._frames) > 0):
            self.close()

    def close(self) -> None:
        """Sends what is there and closes."""
        if self._closing:
            return
        self._flush()
        self._closing = True
        self.transport.close()

    def abort(self) -> None:
        """Closes at once; what was not sent is lost."""
        self._closing = True
        self.transport.abort()

    def _watch_idle(self) -> None:
        """Closes when nothing moved for too long, in whatever state the connection is, closing ones included."""
        limit_ms = self.server.config.connections_max_idle_ms
        if limit_ms < 0:
            return
        now_s = self.server.loop.time()
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._last_byte_s = now_s  # the peer reads, however slowly
        left_s = self._last_byte_s + limit_ms / 1000 - now_s
        if left_s <= 0:
            logger.info("%s closes: nothing moved for %d ms", self.client_host, limit_ms)
            self.abort()
            return
        self._idle = self.server.loop.call_later(max(left_s, 0.001), self._watch_idle)
