"""TLS sessions that bound the work for received messages without data.

The event loops pass up to 256 KB to OpenSSL in one call. A client can fill these bytes with 9,700 messages that change
the key of the session (KeyUpdate, RFC 8446, 4.6.3). Each message takes 27 µs, and no option of OpenSSL refuses them.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final

from kcore.process_logging import limited_logger

logger = limited_logger(__name__)

PIECE_BYTES: Final = 16_645
"""Maximum number of received bytes that the session passes to OpenSSL at once: the size of the largest TLS record."""

RECORD_OVERHEAD_BYTES: Final = 22
"""Number of bytes of a TLS 1.3 record besides its data: header, type, and authentication tag."""

MAX_EXCESS_BYTES: Final = 24_576
"""Maximum number of received bytes that are not data: enough for one incomplete record and 300 changes of the key."""


_read: Callable[..., Any] = ssl.SSLObject.read


class BoundedSession(ssl.SSLObject):
    """A session that receives its input in pieces, and ends if its client sends too many bytes without data.

    Real clients change the key only after many gigabytes, and no Kafka client pads its records.
    """

    _outer: ssl.MemoryBIO
    _inner: ssl.MemoryBIO
    _excess_bytes: int

    client: str
    """The client in log lines, such as "connection 7 from /10.0.0.1"."""

    def attach(self, outer: ssl.MemoryBIO, inner: ssl.MemoryBIO) -> None:
        """Connects the session to its buffers, before the TLS handshake.

        Args:
            outer: the buffer into which the event loop writes the received bytes.
            inner: the buffer from which OpenSSL reads; the session fills it from `outer` in pieces.
        """
        self.client = "connection"
        self._outer = outer
        self._inner = inner
        self._excess_bytes = 0

    def _complete(self, step: Callable[[], Any]) -> Any:
        """Repeats a step of the TLS protocol, and passes received bytes to OpenSSL, until the step succeeds.

        Raises:
            ssl.SSLWantReadError: the step needs bytes that the peer has not sent yet.
        """
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                if not self._outer.pending:
                    raise
                self._inner.write(self._outer.read(PIECE_BYTES))

    def do_handshake(self) -> None:
        """Continues the handshake."""
        self._complete(super().do_handshake)

    def unwrap(self) -> None:
        """Continues the TLS shutdown: sends and awaits the notification that ends the session."""
        self._complete(super().unwrap)

    def pending(self) -> int:
        """Returns the number of received bytes that a read may still return; uvloop reads until there are none."""
        return super().pending() + self._inner.pending

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Reads data of one record.

        Raises:
            ssl.SSLError: the client has sent too many bytes without data.
        """
        outer, inner = self._outer, self._inner
        while True:
            held_bytes = inner.pending
            if held_bytes < PIECE_BYTES and outer.pending:
                held_bytes += inner.write(outer.read(PIECE_BYTES))
            try:
                data = _read(self, len, buffer)
            except ssl.SSLWantReadError:
                self._add_excess(held_bytes - inner.pending)
                if not outer.pending:
                    raise
                continue
            taken_bytes = held_bytes - inner.pending - (data if buffer is not None else data.__len__())
            if taken_bytes != RECORD_OVERHEAD_BYTES:
                self._add_excess(taken_bytes - RECORD_OVERHEAD_BYTES)
            return data

    def _add_excess(self, excess_bytes: int) -> None:
        self._excess_bytes = max(self._excess_bytes + excess_bytes, 0)
        if self._excess_bytes > MAX_EXCESS_BYTES and self.version() == "TLSv1.3":
            logger.warning(
                "%s closed: the client sent more than %d bytes of TLS records without data (key updates or padding)",
                self.client,
                MAX_EXCESS_BYTES,
            )
            raise ssl.SSLError("too many records without data")


class BoundedContext(ssl.SSLContext):
    """A TLS context of a server, whose sessions are `BoundedSession`."""

    sslobject_class = BoundedSession

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any) -> Any:
        """Makes a session for an event loop."""
        inner = ssl.MemoryBIO()
        session = super().wrap_bio(inner, outgoing, *arguments, **options)
        assert isinstance(session, BoundedSession)
        session.attach(incoming, inner)
        return session
