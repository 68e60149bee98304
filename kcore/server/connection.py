"""One connection: what a socket brings goes into its line of requests, what comes out of it goes back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcore.errors import CloseConnectionError
from kcore.process_logging import fields
from kcore.protocol import DecodeError
from kcore.runtime import RequestContext
from kcore.security.principal import ANONYMOUS
from kcore.server.dispatch import RefusedError
from kcore.server.frames import FrameError
from kcore.server.memory import NoRoomError
from kcore_ext.server.request_queue import RequestQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.server.dispatch import Dispatch
    from kcore.server.server import Server
    from kcore_ext.server.request_queue import ApiEntry, ResponseSlot

logger = logging.getLogger(__name__)

SHORTEST_WATCH_S = 0.001  # a timer for less may fire before the clock has moved, again and again
# of answers: made before they are sent, and sent between two looks at what the peer left unread
UNREAD_CHECK_BYTES = 16_384
TURN_NS = 10_000_000
"""Time for the requests of one connection in one turn of the event loop. The next ones wait for the next turn."""

MAX_FLUSHES = 16
"""Times that responses of one connection are sent within one turn of the event loop, likewise."""

READ_AHEAD_BYTES = 16_384  # read behind a request that waits: so much that a connection that breaks is still noticed


def _nowhere(data: bytes) -> None:
    raise AssertionError("sent before there was a connection")


class Connection(asyncio.Protocol):
    """A client's connection, on a listener where nobody has to authenticate with SASL.

    Its requests are served in their order, and answered in it: see `kcore.server.reference_queue`. What a peer can make
    it hold is bounded: one frame in the making, a little of what it sends ahead, and answers of
    `kcore.connection.buffer.bytes` and one more. While it leaves more than that unread, its requests wait. What all
    peers together leave unread is bounded by the server's `ResponseMemory`.

    Args:
        server: whose connection.
        listener: the name of the listener that it came through.
        connection_id: its number; no other connection of the server has had it.

    Attributes:
        claimed_bytes: what it holds of requests, as the server's `RequestMemory` knows it.
        client_host: the client's address with a slash in front of it, as Kafka shows it.
        principal: who the client is.
        unread_bytes: what its peer has left unread, as the server's `ResponseMemory` knows it.
        taken_s: when its peer was last seen to have read something, in the loop's time.
    """

    __slots__ = (
        "_admitted",
        "_buffer_bytes",
        "_closing",
        "_continues",
        "_dispatch",
        "_eof",
        "_held",
        "_idle",
        "_last_byte_s",
        "_look_at_bytes",
        "_paused",
        "_queue",
        "_reading",
        "_refused",
        "_row_bytes",
        "_sent_bytes",
        "_taken_bytes",
        "_unread",
        "_unsent_bytes",
        "_write",
        "claimed_bytes",
        "client_host",
        "connection_id",
        "listener",
        "principal",
        "server",
        "taken_s",
        "transport",
        "unread_bytes",
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
        self._buffer_bytes = server.config.kcore_connection_buffer_bytes
        self._row_bytes = min(self._buffer_bytes, UNREAD_CHECK_BYTES)
        self._queue = RequestQueue(
            self,
            server.dispatch.routes,
            frame_error=FrameError,
            max_frame_bytes=server.config.socket_request_max_bytes,
            buffer_bytes=self._row_bytes,
            turn_ns=TURN_NS,
        )
        self._continues = False  # requests are left to the next turn of the loop
        self._paused = False  # the transport holds more than it should ...
        self._held = False  # ... or holds anything, while all together hold too much:
        self._unread = False  # the peer leaves its answers lying: serve no more until it reads
        self._reading = True
        self._eof = False
        self._refused = False  # a request was broken: what stands behind it is lost
        self._admitted = False
        self._closing = False
        self._last_byte_s = 0.0
        self._unsent_bytes = 0
        self._write: Callable[[bytes], None] = _nowhere
        self._sent_bytes = 0
        self._look_at_bytes = UNREAD_CHECK_BYTES
        self._taken_bytes = 0
        self.taken_s = 0.0
        self.unread_bytes = 0
        self._idle: asyncio.TimerHandle | None = None

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to serve a client that the server accepted."""
        self.transport = transport
        self._write = self._writer(transport)
        if self.server.stopping:  # its handshake was over at the last moment
            self.abort()
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
        self._queue.feed(data)
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
        self._queue.close()
        self._write = _nowhere
        if self._admitted:
            self.server.went(self)

    def pause_writing(self) -> None:
        """The peer does not read: its requests wait."""
        self._paused = self._unread = True

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._paused = False
        self.look_at_unread()
        self._unread = self._held
        self.server.driver.begin_round()
        self.go_on()

    # ---- requests

    def _serve(self) -> None:
        """Serves whole frames until one parks, the peer stops reading, or there is none left; sends what is there."""
        if self._unread or self._closing or self._refused or self._continues:
            return
        try:
            for _ in range(MAX_FLUSHES):
                if not self._queue.serve():
                    break
                self._flush()
                if self._unread or self._queue.held_bytes > self._row_bytes:
                    break
            else:
                self._continue_later()
            if self._queue.late:
                self._continue_later()
        except (FrameError, RefusedError, CloseConnectionError) as error:
            self._refuse(str(error))
        except DecodeError as error:
            self._refuse(f"a request that cannot be read: {error}")
        except Exception:
            logger.exception("a request of %s cannot be answered", self.client_host)
            self._refuse("a failure of the server's own")
        self._flush()

    def _continue_later(self) -> None:
        """Leaves further requests to the next turn of the event loop, so that other connections are served first."""
        if not self._continues:
            self._continues = True
            self.server.loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._continues = False
        if not self._closing:
            self.server.driver.begin_round()
            self.go_on()

    # ---- what its line asks (Owner)

    def make_context(self, version: int, client_id: str) -> RequestContext:
        """Who asks."""
        # By place: three of them a connection are a part of what a storm of new members costs.
        return RequestContext(version, client_id, self.client_host, self.listener, self.principal, self.connection_id)

    def route(self, api_key: int) -> ApiEntry | None:
        """The API of a key that was not asked for before; None if it is not served."""
        return self._dispatch.route(api_key)

    def unsupported(self, api_key: int, version: int) -> tuple[Any, ApiEntry, int]:
        """The answer to a request that is not served, where there is one; else RefusedError."""
        return self._dispatch.unsupported(api_key, version)

    def failed(self, route: ApiEntry, context: Any, request: Any, error: Exception) -> Any:
        """The answer to a request that failed."""
        return self.server.engine.failed(route.api, context, request, error)

    def too_large(
        self, route: ApiEntry, api: Any, context: RequestContext, request: Any, version: int, error: Exception
    ) -> Any:
        """Returns the error in place of a response of too many bytes; see `Dispatch.too_large`.

        Raises:
            CloseConnectionError: there is no such error, or memory for responses is short now.
        """
        if isinstance(error, NoRoomError):
            raise CloseConnectionError(
                f"a response of {type(api).__name__} has more than {error.limit_bytes} bytes, and peers that do not "
                "read hold the rest of kcore.max.response.memory.bytes"
            )
        return self._dispatch.too_large(api, context, request, version)

    def arrived(self) -> None:
        """An answer came that was waited for: it leaves at the end of the round."""
        self.server.wants_flush(self)

    def cannot_answer(self, failed: ResponseSlot, error: Exception) -> None:
        """An answer came that cannot be written: the connection ends behind those in front of it."""
        self._queue.cut(failed)
        if isinstance(error, CloseConnectionError):
            self._refuse(str(error))
        else:
            logger.error("a response to %s cannot be encoded", self.client_host, exc_info=error)
            self._refuse("an answer that cannot be written")
        self.arrived()

    # ---- answers

    def go_on(self) -> None:
        """Sends what is there and serves what waited for that: at the end of a round, or when there is room again."""
        if self._closing:
            return
        self._flush()
        self._serve()
        self._pace()
        self._close_if_done()

    def _flush(self) -> None:
        data = self._queue.take()
        if data is None:
            return
        self._last_byte_s = self.server.loop.time()
        self.server.sent_bytes += len(data)
        self._sent_bytes += len(data)
        self._write(data)
        if self._sent_bytes >= self._look_at_bytes:
            self.look_at_unread()

    def _writer(self, transport: Any) -> Callable[[bytes], None]:
        """What sends."""
        write: Callable[[bytes], None] = transport.write
        return write

    def _unsent(self) -> int:
        """Bytes that wait for the peer to read those in front of them."""
        size: int = self.transport.get_write_buffer_size()
        return size

    # ---- what the peer leaves unread

    def look_at_unread(self) -> None:
        """Tells the server's `ResponseMemory` how much of what was sent is not read."""
        self._look_at_bytes = self._sent_bytes + UNREAD_CHECK_BYTES
        memory = self.server.responses
        if memory is None or not self._admitted:
            return
        unsent_bytes = self._unsent()
        unread_bytes = unsent_bytes + self._queue.held_bytes
        if not unread_bytes and not self.unread_bytes:
            return
        taken_bytes = self._sent_bytes - unsent_bytes
        if taken_bytes != self._taken_bytes or not self.unread_bytes or not unsent_bytes:
            self._taken_bytes = taken_bytes
            self.taken_s = self.server.loop.time()
        memory.claim(self, unread_bytes)

    def hold(self, held: bool) -> None:
        """Its requests wait because all connections together have left too much unread; or they go on."""
        if held is self._held:
            return
        self._held = held
        unread, self._unread = self._unread, self._paused or held
        if unread and not self._unread and not self._closing:
            self.server.driver.begin_round()
            self.server.wants_flush(self)

    def stalled(self) -> None:
        """Memory is short, and its peer has read nothing for too long."""
        logger.warning(
            "%s closes: nothing was read of its %d bytes of answers for %d ms, and memory for answers is short",
            self.client_host,
            self.unread_bytes,
            self.server.config.kcore_response_stall_ms,
            extra=fields(connection=self.connection_id),
        )
        self.abort()

    def _pace(self) -> None:
        """Reads on, or lets the peer's own socket hold what it sends ahead."""
        if self._closing:
            return
        queue = self._queue
        if queue.held_bytes > self._row_bytes:
            self.look_at_unread()
        waits = queue.parked or self._unread or self._continues or queue.held_bytes > self._row_bytes
        read = not (waits and len(queue) > READ_AHEAD_BYTES)
        memory = self.server.memory
        if memory is not None:
            memory.claim(self, queue.claim_bytes)
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
        self._refused = self._eof = self._queue.stopped = True
        self._queue.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Closes if the client sends no more and has all its answers."""
        unserved = (self._unread or self._continues) and len(self._queue) > 0
        if self._eof and not self._queue.waiting and not unserved:
            self.close()

    def close(self) -> None:
        """Sends what is there and closes."""
        if self._closing:
            return
        self._flush()
        self._write_rest()
        self._closing = self._queue.stopped = True
        self.transport.close()

    def _write_rest(self) -> None:
        """Gives the transport what was kept back; it closes when it has sent that."""

    def abort(self) -> None:
        """Closes at once; what was not sent is lost."""
        self._closing = self._queue.stopped = True
        self.transport.abort()

    def _watch_idle(self) -> None:
        """Closes when nothing moved for too long, in whatever state the connection is, closing ones included."""
        limit_ms = self.server.config.connections_max_idle_ms
        if limit_ms < 0:
            return
        now_s = self.server.loop.time()
        unsent_bytes = self._unsent()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._last_byte_s = now_s  # the peer reads, however slowly
        left_s = self._last_byte_s + limit_ms / 1000 - now_s
        if left_s <= 0:
            logger.info("%s closes: nothing moved for %d ms", self.client_host, limit_ms)
            self.abort()
            return
        self._idle = self.server.loop.call_later(max(left_s, SHORTEST_WATCH_S), self._watch_idle)
