"""One client connection: feeds received bytes to its request queue and writes the responses."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcore.errors import CloseConnectionError
from kcore.process_logging import limited_logger, log_failure, next_step
from kcore.protocol import DecodeError
from kcore.runtime import RequestContext
from kcore.runtime.peers import NODE_PREFIX
from kcore.security.principal import ANONYMOUS
from kcore.server.dispatch import RefusedError
from kcore.server.frames import FrameError
from kcore.server.long_response import LongResponse
from kcore.server.memory import NoRoomError
from kcore_ext.codec.plan import TooManyElementsError
from kcore_ext.server.connection import UNREAD_CHECK_BYTES, ConnectionCore
from kcore_ext.server.request_queue import RequestQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcore.server.dispatch import Dispatch
    from kcore.server.server import Server
    from kcore_ext.server.api_entry import ApiEntry
    from kcore_ext.server.request_queue import ResponseSlot

logger = limited_logger(__name__)

SHORTEST_WATCH_S = 0.001  # the clock may not move in a shorter time, so such a timer could fire repeatedly


def _nowhere(data: bytes) -> None:
    raise AssertionError("a response was written before the connection was made")


class Connection(ConnectionCore, asyncio.Protocol):
    """A client's connection on a listener without SASL.

    Serves requests and sends responses in order (see `tests.reference.request_queue` for the exact rules). The memory
    that a peer can occupy is bounded: one incomplete frame, a little read-ahead, `kcore.connection.buffer.bytes` of
    responses, and one more response. While the peer has more than `kcore.connection.buffer.bytes` of unread responses,
    its requests wait. `ResponseMemory` bounds the unread bytes of all peers together.

    Args:
        server: the server that accepted the connection.
        listener: the name of the listener that accepted the connection.
        connection_id: the connection's number, unique within the server.

    Attributes:
        claimed_bytes: request bytes that this connection has claimed from the server's `RequestMemory`.
        client_host: the client's address prefixed with a slash, as Kafka shows it.
        principal: the client's principal.
        unread_bytes: response bytes that the peer has not read, as last reported to `ResponseMemory`.
        taken_s: the time, on the loop's clock, of the last check that found that the peer had read bytes.
    """

    __slots__ = (
        "_admitted",
        "_buffer_bytes",
        "_dispatch",
        "_held",
        "_idle",
        "_lost",
        "_muted",
        "_paused",
        "_stopped",
        "_taken_bytes",
        "_unsent_bytes",
        "claimed_bytes",
        "client_host",
        "connection_id",
        "listener",
        "principal",
        "taken_s",
        "unread_bytes",
    )

    server: Server

    def __init__(self, server: Server, listener: str, connection_id: int) -> None:
        self._buffer_bytes = server.config.kcore_connection_buffer_bytes
        row_bytes = min(self._buffer_bytes, UNREAD_CHECK_BYTES)
        queue = RequestQueue(
            self,
            server.dispatch.routes,
            frame_error=FrameError,
            max_frame_bytes=server.config.socket_request_max_bytes,
            buffer_bytes=row_bytes,
            turn_ns=server.turns.turn_ns,
        )
        super().__init__(server, queue, row_bytes)
        self.listener = listener
        self.connection_id = connection_id
        self.client_host = ""
        self.principal = ANONYMOUS
        self.claimed_bytes = 0
        self._dispatch: Dispatch = server.dispatch
        self._paused = False  # the transport's buffer is over its limit
        self._muted: asyncio.TimerHandle | None = None  # until it fires, the client is above a quota
        self._held = False  # True while all connections together hold too many unread bytes, and this one holds some
        self._stopped = False  # the driver pauses all connections
        self._admitted = False
        self._lost = False  # the socket is closed, but requests wait for a turn
        self._unsent_bytes = 0
        self._write = _nowhere
        self._taken_bytes = 0
        self.taken_s = 0.0
        self.unread_bytes = 0
        self._idle: asyncio.TimerHandle | None = None

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts to serve an accepted client."""
        self.transport = transport
        self._admitted = True  # from now on `connection_lost` releases the connection's slot
        try:
            self._begin(transport)
        except BaseException:  # e.g. MemoryError
            self.abort()
            raise

    def _begin(self, transport: Any) -> None:
        """Starts to serve an accepted client.

        If this method raises, the caller aborts the connection, and `connection_lost` releases its slot.
        """
        self._write = self._writer(transport)
        if self.server.stopping:  # the TLS handshake ended during the shutdown
            self.abort()
        self.server.add_connection(self)
        if self.server.driver.paused:
            self.stop_requests()
        self.transport.set_write_buffer_limits(high=self._buffer_bytes)
        self._last_byte_s = self.server.loop.time()
        self._watch_idle()
        if self.server.memory is not None:
            # uvloop starts to read after this call, even if reading is paused here.
            self.server.loop.call_soon(self._pace)

    def eof_received(self) -> bool:
        """Handles the client's end of stream; the client's outstanding requests still get responses."""
        self._eof = True
        self._close_if_done()
        return not self._closing

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles the loss of the connection: still serves requests in the queue, but discards all responses.

        A member that leaves its group may send LeaveGroup and close the connection at once. The group must still handle
        this request.
        """
        self._lost = not self._closing and (self._continues or self._stopped) and len(self._queue) > 0
        self._closing = True
        self._write = _nowhere
        if self._idle is not None:
            self._idle.cancel()
        if self._muted is not None:
            self._muted.cancel()
        if self.unread_bytes and self.server.responses is not None:
            self.server.responses.set_unread(self, 0)
        if not self._lost:
            self._remove()
        elif not self._continues:
            self._continue_later()

    def _serve_lost(self) -> None:
        """Serves received requests of a closed connection for the time of one turn, and discards their responses."""
        driver, queue = self.server.driver, self._queue
        if driver.paused:
            driver.after_pause(self._continue_later)
            return
        waits = False
        try:
            if not self.server.stopping:
                driver.begin_round()
                queue.turn_ns = self._turns.turn_ns
                full = queue.serve()
                queue.take()
                # Responses may still fill the queue, behind one that is not complete. Then the other requests are lost.
                waits = queue.late or (full and queue.held_bytes <= self._row_bytes)
        except Exception as error:
            self._serve_failed(error)
        finally:
            if waits:
                self._continue_later()
            else:
                self._remove()

    def _remove(self) -> None:
        """Releases everything that a closed connection holds."""
        try:
            self._queue.close()
            self._turns.remove(self)
        finally:
            if self._admitted:
                self.server.remove_connection(self)

    def pause_writing(self) -> None:
        """Suspends the peer's requests, because the peer does not read its responses."""
        self._paused = self._unread = True

    def resume_writing(self) -> None:
        """Resumes the peer's requests, because the peer reads its responses again."""
        self._paused = False
        self.report_unread()
        self._unread = self._must_wait()
        self.server.driver.begin_round()
        self.flush_and_serve()

    # ---- requests

    def _serve_failed(self, error: Exception) -> None:
        """Refuses further requests, because the connection could not serve a request: `error` is the cause."""
        if isinstance(error, FrameError | RefusedError | CloseConnectionError):
            self._refuse(str(error))
        elif isinstance(error, TooManyElementsError):
            limit = self.server.config.kcore_max_request_elements
            self._refuse(f"a request has more than {limit} array elements (kcore.max.request.elements)")
        elif isinstance(error, DecodeError):
            self._refuse(f"cannot decode the request: {error}")
        else:
            logger.error(
                "connection %d from %s closed: internal error while serving a request%s",
                self.connection_id,
                self.client_host,
                next_step(error),
                exc_info=error,
            )
            self._refuse("internal server error")

    def _continue_later(self) -> None:
        """Queues the connection for a later turn of the event loop, so that other connections are served first."""
        if not self._continues:
            self._turns.add(self)
            self._continues = True

    def continue_requests(self) -> None:
        """Serves further requests, because it is the connection's turn."""
        self._continues = False
        if self._lost:
            self._serve_lost()
        elif not self._closing:
            try:
                self.server.driver.begin_round()
                self.flush_and_serve(shares_time=False)
            except Exception as error:  # otherwise the connection's other requests would get no turn
                self._flush_failed(error)

    def _flush_failed(self, error: Exception) -> None:
        """Closes the connection, because sending its responses raised `error`."""
        self.abort()
        log_failure(
            logger,
            error,
            "connection %d from %s closed: cannot send responses; the client connects again%s",
            self.connection_id,
            self.client_host,
            next_step(error),
        )

    # ---- called by the request queue (Owner)

    def make_context(self, version: int, client_id: str) -> RequestContext:
        """Creates the context for requests of one version and client id."""
        if client_id.startswith(NODE_PREFIX):
            name, _, secret = client_id.partition("/")  # the secret must not be in log lines or metrics
            return RequestContext(
                version, name, self.client_host, self.listener, self.principal, self.connection_id, secret
            )
        # Positional arguments: three contexts per connection are a measurable part of a storm of new members.
        return RequestContext(version, client_id, self.client_host, self.listener, self.principal, self.connection_id)

    def route(self, api_key: int) -> ApiEntry | None:
        """Returns the entry of an API key, created at its first use; None if the API is not served."""
        return self._dispatch.route(api_key)

    def unsupported(self, api_key: int, version: int) -> tuple[Any, ApiEntry, int]:
        """Returns the response to a request of an unsupported API or version.

        Raises:
            RefusedError: the protocol has no such response.
        """
        return self._dispatch.unsupported(api_key, version)

    def failed(self, route: ApiEntry, context: Any, request: Any, error: Exception) -> Any:
        """Returns the response to a request whose handler failed."""
        return self.server.engine.failed(route.api, context, request, error)

    def too_large(
        self, route: ApiEntry, api: Any, context: RequestContext, request: Any, version: int, error: Exception
    ) -> Any:
        """Returns the error response that replaces an oversized response, like `Dispatch.too_large`.

        Raises:
            CloseConnectionError: the response has no field for an error, or `error` is NoRoomError (memory is short).
        """
        if isinstance(error, NoRoomError):
            raise CloseConnectionError(
                f"the response to {api.name} has more than {error.limit_bytes} bytes, and unread "
                "responses use up kcore.max.response.memory.bytes"
            )
        return self._dispatch.too_large(api, context, request, version)

    def write_later(
        self,
        slot: ResponseSlot,
        route: ApiEntry,
        api: Any,
        context: RequestContext,
        request: Any,
        response: Any,
        version: int,
        correlation_id: int,
    ) -> None:
        """Encodes a long response in slices."""
        long = LongResponse(self, slot, route, api, context, request, version, correlation_id)
        self.server.engine.slices.add(self._while_open(long.write(response)), self.client_host)
        self.server.driver.schedule_round_end()  # the end of the round begins the slices

    def _while_open(self, work: Iterator[None]) -> Iterator[None]:
        """Runs `work` until the connection closes."""
        for _ in work:
            if self._closing:
                return
            yield

    def response_failed(self, failed: ResponseSlot, error: Exception) -> None:
        """Handles a response that cannot be encoded: closes the connection after sending the responses before it."""
        self._queue.remove_from(failed)
        if isinstance(error, CloseConnectionError):
            self._refuse(str(error))
        else:
            logger.error(
                "connection %d from %s closed: cannot encode a response (the traceback shows which message); the "
                "client connects again%s",
                self.connection_id,
                self.client_host,
                next_step(error),
                exc_info=error,
            )
            self._refuse("a response cannot be encoded")
        self.schedule_flush()

    # ---- responses

    def _writer(self, transport: Any) -> Callable[[bytes], None]:
        """Returns the function that sends bytes."""
        write: Callable[[bytes], None] = transport.write
        return write

    def _unsent(self) -> int:
        """Returns the number of bytes that wait for the peer to read."""
        try:
            size: int = self.transport.get_write_buffer_size()
        except AttributeError:
            # The client has ended its TLS session, so this class has closed asyncio's transport, and the event loop has
            # closed it again. It then has no session, and its other methods fail.
            return 0
        return size

    # ---- unread bytes

    def report_unread(self) -> None:
        """Reports the number of sent bytes that the peer has not read to the server's `ResponseMemory`."""
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
        memory.set_unread(self, unread_bytes)

    def hold(self, held: bool) -> None:
        """Suspends or resumes the connection's requests, depending on the unread bytes of all connections."""
        if held is self._held:
            return
        self._held = held
        unread, self._unread = self._unread, self._must_wait()
        if unread and not self._unread and not self._closing:
            self.server.driver.begin_round()
            self.schedule_flush()

    def mute(self, duration_ms: int) -> None:
        """Serves no further request for `duration_ms`, but sends responses.

        If several calls overlap, the latest end applies.
        """
        if self._closing:
            return
        until_s = self.server.loop.time() + duration_ms / 1_000
        if self._muted is not None:
            if self._muted.when() >= until_s:
                return
            self._muted.cancel()
        self._muted = self.server.loop.call_at(until_s, self._unmute)
        self._unread = self._queue.muted = True

    def _unmute(self) -> None:
        self._muted = None
        self._queue.muted = False
        self._unread = self._must_wait()
        if not self._unread and not self._closing:
            self.server.driver.begin_round()
            self.flush_and_serve()

    def stop_requests(self) -> None:
        """Serves no further request until `resume_requests`."""
        self._stopped = self._unread = True

    def resume_requests(self) -> None:
        """Serves requests again at the end of this round, unless the connection is suspended for another reason."""
        self._stopped = False
        self._unread = self._must_wait()
        if not (self._unread or self._closing):
            self.schedule_flush()

    def _must_wait(self) -> bool:
        return self._paused or self._held or self._stopped or self._muted is not None

    def stalled(self) -> None:
        """Closes the connection, because memory is short and its peer has read nothing for too long."""
        self.server.client_log.log(
            logging.WARNING, self.client_host,
            "connection from %s closed: the client read none of its %d response bytes for %d ms "
            "(kcore.response.stall.ms), and the memory for responses is nearly full", self.client_host,
            self.unread_bytes, self.server.config.kcore_response_stall_ms,
            connection=self.connection_id, listener=self.listener,
        )  # fmt: skip
        self.abort()

    def close_unserved(self) -> None:
        """Closes the connection, because its client address has the most bytes of unfinished and waiting requests."""
        self.server.client_log.log(
            logging.WARNING, self.client_host,
            "connection from %s closed: the unfinished requests of all clients exceed kcore.max.request.memory.bytes, "
            "and this address has the largest part", self.client_host,
            connection=self.connection_id, listener=self.listener,
        )  # fmt: skip
        self.abort()

    def on_request_memory_changed(self) -> None:
        """Stops or resumes reading, because the server's request memory became full or has room again."""
        self._pace()

    # ---- closing

    def _refuse(self, reason: str) -> None:
        """Sends the responses to earlier requests, then closes the connection, because the protocol has no frame for
        errors.
        """
        self.server.client_log.log(
            logging.WARNING, self.client_host, "connection from %s closed: %s", self.client_host, reason,
            connection=self.connection_id, listener=self.listener,
        )  # fmt: skip
        self.server.refused_requests += 1
        self._refused = self._eof = self._queue.stopped = True
        self._queue.clear()
        self._close_if_done()

    def _close_if_done(self) -> None:
        """Closes the connection if the client sends no further requests and has received all responses."""
        unserved = (self._unread or self._continues) and len(self._queue) > 0
        if self._eof and not self._queue.waiting and not unserved:
            self.close()

    def close(self) -> None:
        """Sends ready responses and closes the connection."""
        if self._closing:
            return
        self._flush()
        self._closing = self._queue.stopped = True
        self.transport.close()

    def abort(self) -> None:
        """Closes the connection immediately and discards unsent bytes."""
        self._closing = self._queue.stopped = True
        self.transport.abort()

    def _watch_idle(self) -> None:
        """Aborts the connection after `connections.max.idle.ms` without traffic, even if its close has begun."""
        limit_ms = self.server.config.connections_max_idle_ms
        if limit_ms < 0:
            return
        now_s = self.server.loop.time()
        unsent_bytes = self._unsent()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._last_byte_s = now_s  # the peer reads, even if slowly
        since_s, reason = self._idle_since()
        left_s = since_s + limit_ms / 1000 - now_s
        if left_s <= 0:
            self.server.client_log.log(
                logging.INFO, self.client_host, "connection from %s closed: %s for %d ms", self.client_host, reason,
                limit_ms,
            )  # fmt: skip
            self.abort()
            return
        self._idle = self.server.loop.call_later(max(left_s, SHORTEST_WATCH_S), self._watch_idle)

    def _idle_since(self) -> tuple[float, str]:
        """Returns the time since which the connection is idle, and the reason for the log."""
        return self._last_byte_s, "no traffic"
