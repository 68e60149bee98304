"""One connection: frames in, requests served in order, answers out in the same order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from kcore.protocol import DecodeError
from kcore.runtime import Pending, RequestContext
from kcore.server.dispatch import RefusedError
from kcore.server.frames import FrameCutter, FrameError
from kcore_ext.codec import decode_request_header, encode_response

if TYPE_CHECKING:
    from kcore.server.dispatch import Dispatch, Served
    from kcore.server.server import Server

logger = logging.getLogger(__name__)


class Answer:
    """A place in the row of answers; its frame is there once the request was answered."""

    __slots__ = ("connection", "correlation_id", "frame", "served", "version")

    def __init__(self, connection: Connection, served: Served, version: int, correlation_id: int) -> None:
        self.connection = connection
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.frame: bytes | None = None

    def arrive(self, response: Any) -> None:
        """The response came."""
        self.frame = (
            b""
            if response is None
            else encode_response(response, self.version, self.correlation_id, self.served.header_version(self.version))
        )
        self.connection.answered()


class Connection(asyncio.Protocol):
    """A client's connection.

    Kafka serves one request of a connection at a time. So does this, with one difference that nobody can see: while
    an answer waits for nothing but the commit of what was decided, the requests behind it are decided too, and all of
    them share that commit. Behind a parked request (a join, a sync, a long poll) nothing is looked at.
    """

    __slots__ = (
        "_answers",
        "_closing",
        "_contexts",
        "_dispatch",
        "_eof",
        "_frames",
        "_idle",
        "_last_byte_s",
        "_out",
        "_parked",
        "_pending",
        "_reading",
        "_refused",
        "_serving",
        "_unread",
        "client_host",
        "connection_id",
        "listener",
        "server",
        "transport",
    )

    def __init__(self, server: Server, listener: str, connection_id: int) -> None:
        self.server = server
        self.listener = listener
        self.connection_id = connection_id
        self.client_host = ""
        self.transport: Any = None
        self._dispatch: Dispatch = server.dispatch
        self._frames = FrameCutter(server.config.socket_request_max_bytes)
        self._contexts: dict[tuple[int, str], RequestContext] = {}
        self._answers: deque[Answer] = deque()  # in the order of the requests; the first ones may be there already
        self._pending: set[Pending] = set()
        self._out: list[bytes] = []
        self._parked = False  # the last request waits for something else than a commit
        self._serving = False
        self._unread = False  # the peer leaves its answers lying: serve no more until it reads
        self._reading = True
        self._eof = False
        self._refused = False  # a request was broken: what stands behind it is lost
        self._closing = False
        self._last_byte_s = 0.0
        self._idle: asyncio.TimerHandle | None = None

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if isinstance(peer, tuple) else "/127.0.0.1"
        self.transport.set_write_buffer_limits(high=self.server.config.kcore_connection_buffer_bytes)
        self._last_byte_s = self.server.loop.time()
        self._watch_idle()
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._last_byte_s = self.server.loop.time()
        if self._closing or self._refused:
            return
        self._frames.feed(data)
        self.server.driver.begin_round()
        self._serve()
        if self._reading and (self._parked or self._unread) and len(self._frames) > 0:
            # Nothing is taken from the buffer for now: let the peer's own socket hold what it sends ahead.
            self._reading = False
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The client sends no more; what it asked is still answered."""
        self._eof = True
        if not self._answers and not self._parked:
            self.close()
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: answers on their way are thrown away, what was asked goes on."""
        self._closing = True
        if self._idle is not None:
            self._idle.cancel()
        for pending in self._pending:
            pending.abandon()
        self._pending.clear()
        self._answers.clear()
        self.server.connections.discard(self)

    def pause_writing(self) -> None:
        """The peer does not read: its requests wait."""
        self._unread = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._unread = False
        self._continue()

    # ---- requests

    def _serve(self) -> None:
        """Serves whole frames until one parks, the peer stops reading, or there is none left."""
        if self._serving:
            return
        self._serving = True
        try:
            while not (self._parked or self._unread or self._closing or self._refused):
                frame = self._frames.next_frame()
                if frame is None:
                    break
                self._request(frame)
        except (FrameError, RefusedError) as error:
            self._refuse(str(error))
        except DecodeError as error:
            self._refuse(f"a request that cannot be read: {error}")
        finally:
            self._serving = False
            self._flush()

    def _request(self, frame: Any) -> None:
        api_key, version, correlation_id, client_id, position = decode_request_header(frame, 0)
        served = self._dispatch.find(api_key, version)
        if served is None:
            response, served, version = self._dispatch.unsupported(api_key, version)
            self._out_or_queue(response, served, version, correlation_id)
            return
        context = self._contexts.get((version, client_id))
        if context is None:
            context = self._context(version, client_id)
        request = served.decode(frame, version, position)
        response = self._dispatch.submit(context, request)
        if isinstance(response, Pending):
            if not response.done:
                self._wait(response, served, version, correlation_id)
                return
            response = response.response
        self._out_or_queue(response, served, version, correlation_id)

    def _out_or_queue(self, response: Any, served: Served, version: int, correlation_id: int) -> None:
        if response is None:
            return
        frame = encode_response(response, version, correlation_id, served.header_version(version))
        if self._answers:
            answer = Answer(self, served, version, correlation_id)
            answer.frame = frame
            self._answers.append(answer)
        else:
            self._out.append(frame)

    def _wait(self, pending: Pending, served: Served, version: int, correlation_id: int) -> None:
        answer = Answer(self, served, version, correlation_id)
        self._answers.append(answer)
        self._pending.add(pending)
        self._parked = pending.parked

        def arrive(response: Any) -> None:
            self._pending.discard(pending)
            answer.arrive(response)

        pending.on_complete(arrive)

    def _context(self, version: int, client_id: str) -> RequestContext:
        if len(self._contexts) > 256:  # a client that changes its id with every request
            self._contexts.clear()
        context = RequestContext(
            api_version=version,
            client_id=client_id,
            client_host=self.client_host,
            listener=self.listener,
            connection_id=self.connection_id,
        )
        self._contexts[version, client_id] = context
        return context

    def answered(self) -> None:
        """Some answer came: everything at the front of the row that is there may leave."""
        answers = self._answers
        while answers and answers[0].frame is not None:
            frame = answers.popleft().frame
            if frame:
                self._out.append(frame)
        if not answers:
            self._parked = False
        self.server.wants_flush(self)

    def flush_and_continue(self) -> None:
        """Called by the server at the end of a round in which answers came."""
        self._continue()

    def _continue(self) -> None:
        if self._closing:
            return
        self._serve()
        if not self._reading and not (self._parked or self._unread):
            self._reading = True
            self.transport.resume_reading()
        if self._eof and not self._answers and not self._parked:
            self.close()

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._last_byte_s = self.server.loop.time()
        self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    # ---- the end

    def _refuse(self, why: str) -> None:
        """Answers what stands in front, then closes: the protocol has no frame for errors."""
        logger.info("%s closes: %s", self.client_host, why)
        self._refused = self._eof = True
        if not self._answers:
            self.close()

    def close(self) -> None:
        """Sends what is there and closes."""
        if self._closing:
            return
        self._flush()
        self._closing = True
        self.transport.close()

    def _watch_idle(self) -> None:
        limit_ms = self.server.config.connections_max_idle_ms
        if limit_ms < 0:
            return
        left_s = self._last_byte_s + limit_ms / 1000 - self.server.loop.time()
        if left_s <= 0 and self._idle is not None:
            logger.info("%s closes: nothing moved for %d ms", self.client_host, limit_ms)
            self.close()
            return
        self._idle = self.server.loop.call_later(max(left_s, 0.001), self._watch_idle)
