"""TLS handshakes: limits, fairness between client addresses, timeouts and log lines.

A handshake costs a signature and up to 100 KB of memory, so a listener runs a bounded number of them at a time. A
client receives a slot for its handshake only after its complete first message. Until then, it uses only a socket.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from kcore.process_logging import next_step
from kcore.server.client_hello import HEADER_BYTES, FirstMessage, classify, record_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.server.authentication import ListenerSecurity
    from kcore.server.connection import Connection
    from kcore.server.log_limits import ClientLog

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Time limit of each of two phases: the wait for a client's complete first message, and the handshake itself."""

MAX_HANDSHAKES: Final = 256
"""Maximum number of concurrent TLS handshakes per listener. Each handshake takes up to 100 KB of memory."""

HANDSHAKE_GRACE_S: Final = 3.0
"""Age at which the server may abort a handshake if `MAX_HANDSHAKES` handshakes run and another client waits."""

UNFAIR_GRACE_S: Final = 0.5
"""Age at which the server may abort a handshake for a waiting client whose address has fewer handshakes."""

MAX_LATE: Final = 16
"""Maximum number of concurrent handshakes with a late signature, for each listener.

In such a handshake, the server may sign only after the client has sent a second message. A signature takes about a
millisecond, and all clients may send their second message at the same time.
"""

STARTS_PER_TURN: Final = 4
"""Maximum number of handshakes that begin in one turn of the event loop. Each handshake needs about a millisecond
for its signature.
"""

MAX_SILENT: Final = 1_024
"""Maximum number of clients without a complete first message per listener.

A further client replaces the oldest client of the address that has the most such clients.
"""

SILENT_GRACE_S: Final = 1.0
"""Age at which the server may close a client without a complete first message, to free its connection.

The server does so only if it has no connection slot or no file descriptor left. For a client that waits for a handshake
slot, the age is `HANDSHAKE_GRACE_S`.
"""

_NO_TLS: Final = "the client may not use TLS"
_NO_TRUST: Final = "the client does not trust the server's certificate; check the client's truststore"

HINTS: Final = {
    # OpenSSL mostly raises these errors if the client sent no TLS at all. A client may also send them as alerts.
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": "the client uses no version of ssl.enabled.protocols, or no TLS",
    # alerts of the client
    "TLSV1_ALERT_UNKNOWN_CA": _NO_TRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NO_TRUST,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the server's certificate has expired; replace it",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client uses no version of ssl.enabled.protocols",
    # errors of the server
    "NO_SHARED_CIPHER": "the client and ssl.cipher.suites have no cipher suite in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, which ssl.client.auth=required demands",
    "CERTIFICATE_VERIFY_FAILED": "the server's truststore has no authority for the client's certificate, or the "
    "certificate has expired",
}
"""OpenSSL's reason of a failed handshake -> the cause in terms of the settings, or the next step."""


REFUSED: Final = {
    FirstMessage.COSTLY: "the client offers only finite-field key exchange (FFDHE); it must offer an elliptic curve",
    FirstMessage.UNCLEAR: "the client's first TLS record is not a complete ClientHello",
}
"""Kind of first message that the server refuses -> the reason for the log."""


class _Client:
    """A client that has not finished its handshake.

    Attributes:
        socket: the accepted socket.
        host: the client's address.
        since_s: the time on the loop's clock at which the client was accepted, or at which its handshake began.
        needed_bytes: number of received bytes after which the loop reports the socket as readable; 0 while the loop
            does not watch the socket.
        signs_late: True if the client's first message is `FirstMessage.LATER`: the server may sign only after a later
            message.
    """

    __slots__ = ("host", "needed_bytes", "signs_late", "since_s", "socket")

    def __init__(self, client: socket.socket, host: str, since_s: float) -> None:
        self.socket = client
        self.host = host
        self.since_s = since_s
        self.needed_bytes = 0
        self.signs_late = False


class Handshakes:
    """The TLS handshakes of one listening socket.

    - *silent* clients have not sent a complete first message. They take no slot. If there are more than `MAX_SILENT`,
      the oldest silent client of the address with the most silent clients is closed.
    - *ready* clients wait for a slot, in turns by address. The oldest and the newest client of an address start
      alternately: old clients are served in order, and stalled clients do not block a new client. A client that ends
      its stream while it waits is closed at once, which frees its descriptor and avoids its handshake.
    - *running* handshakes have a slot. If a client waits and no slot is free, one running handshake is aborted: the
      oldest handshake of the address with the most running handshakes, once it is old enough.
    - Clients that demand a costly key exchange are closed. While `MAX_LATE` handshakes with a late signature run,
      further clients with a late signature are closed, too.

    So clients that never finish their handshakes use a bounded amount of memory. They delay clients of other addresses
    by `UNFAIR_GRACE_S`, and clients of the same address by `HANDSHAKE_GRACE_S`.

    Args:
        security: the listener's security; its TLS context may change.
        make: creates the connection for a client address.
        report_failure: called with the client's address if its handshake has ended without a connection.
        log: logs failures.
        loop: the event loop.

    Attributes:
        failed: number of handshakes that failed, timed out or were aborted.
        running: running handshakes, oldest first.
    """

    def __init__(
        self,
        security: ListenerSecurity,
        make: Callable[[str], Connection],
        report_failure: Callable[[str], None],
        log: ClientLog,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._security = security
        self._listener = security.name
        self._make = make
        self._report_failure = report_failure
        self._log = log
        self._loop = loop
        self._silent: dict[_Client, None] = {}  # oldest first
        self._silent_by_host: dict[str, dict[_Client, None]] = {}
        # by address, the next one first
        self._ready: OrderedDict[str, dict[_Client, None]] = OrderedDict()
        self._running_by_host: dict[str, dict[asyncio.Task[None], _Client]] = {}
        self._timeout: asyncio.TimerHandle | None = None  # fires at the timeout of the oldest silent client
        self._start: asyncio.Handle | None = None
        self._start_waits = False  # True if `_start` is a timer, because all slots are taken
        self._newest_first = False
        self._late = 0  # running handshakes whose signature waits for a further message
        self._closed = False
        self.failed = 0
        self.running: dict[asyncio.Task[None], _Client] = {}

    def __len__(self) -> int:
        """Returns the number of clients that have not finished their handshakes."""
        return len(self._silent) + sum(map(len, self._ready.values())) + len(self.running)

    def add(self, client: socket.socket, host: str) -> None:
        """Takes ownership of an accepted socket and its connection slot. Releases both before it raises an error."""
        try:
            client.setblocking(False)
            added = _Client(client, host, self._loop.time())
            own = self._silent_by_host.setdefault(host, {})
            self._silent[added] = None
        except BaseException:  # e.g. MemoryError
            client.close()
            self._fail(host)
            raise
        try:
            own[added] = None
            self._look(added)
            if len(self._silent) > MAX_SILENT:
                self._drop(self._oldest_of_busiest(), "the server needs the place for other clients that wait")
            if self._silent and self._timeout is None:
                self._timeout = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._check_timeout)
        except BaseException:  # e.g. MemoryError
            if added in self._silent:
                self._drop(added, "")
            raise

    # ---- silent clients

    def _look(self, client: _Client) -> None:
        """Reads the first message of a silent client.

        Waits if bytes of the message are missing. Otherwise, makes the client ready, or closes it if its stream has
        ended or the server refuses the message.
        """
        try:
            head = client.socket.recv(HEADER_BYTES, socket.MSG_PEEK)
            if not head:  # it closed without a byte, as probes of load balancers do
                self._drop(client, "")
                return
            needed_bytes = record_bytes(head)
            if needed_bytes > HEADER_BYTES:
                head = client.socket.recv(needed_bytes, socket.MSG_PEEK)
            if len(head) < needed_bytes > client.needed_bytes:
                self._watch(client, needed_bytes)
                return
            # The first message is complete or not TLS. Or the stream has ended, because the socket was readable without
            # the missing bytes.
            kind = classify(head)
            if kind in REFUSED:
                self._drop(client, REFUSED[kind])
                return
            client.signs_late = kind is FirstMessage.LATER
            self._become_ready(client, len(head))
        except (BlockingIOError, InterruptedError):
            if not client.needed_bytes:
                self._watch(client, HEADER_BYTES)
        except OSError:
            if client in self._silent:
                self._drop(client, "")

    def _watch(self, client: _Client, needed_bytes: int) -> None:
        """Examines the client again when it has sent `needed_bytes`, or has ended its stream."""
        # Without this option, an incomplete record would make the socket readable in every turn of the loop.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, needed_bytes)
        if not client.needed_bytes:
            self._loop.add_reader(client.socket.fileno(), self._look, client)
        client.needed_bytes = needed_bytes

    def _leave_silent(self, client: _Client) -> None:
        if client.needed_bytes:
            self._loop.remove_reader(client.socket.fileno())
        del self._silent[client]
        own = self._silent_by_host[client.host]
        own.pop(client, None)  # it is missing if there was no memory to add it
        if not own:
            del self._silent_by_host[client.host]

    def _drop(self, client: _Client, reason: str) -> None:
        """Closes a silent client. Logs the reason, unless it is empty."""
        self._leave_silent(client)
        client.socket.close()
        self._fail(client.host)
        if reason:
            self._log_abort(client.host, reason)

    def _oldest_of_busiest(self) -> _Client:
        busiest: dict[_Client, None] = max(self._silent_by_host.values(), key=len)
        return next(iter(busiest))

    def make_room(self) -> bool:
        """Closes a client that has waited long enough: a silent client if possible, otherwise a ready client.

        Returns False if there is no such client.
        """
        now_s = self._loop.time()
        if self._silent and now_s - next(iter(self._silent)).since_s >= SILENT_GRACE_S:
            oldest = self._oldest_of_busiest()
            if now_s - oldest.since_s < SILENT_GRACE_S:
                oldest = next(iter(self._silent))
            self._drop(oldest, "the server has too many connections")
            return True
        if not self._ready:
            return False
        busiest: dict[_Client, None] = max(self._ready.values(), key=len)
        oldest = next(iter(busiest))
        if now_s - oldest.since_s < HANDSHAKE_GRACE_S:
            return False
        self._drop_ready(oldest, "the server has too many connections")
        return True

    def _check_timeout(self) -> None:
        """Closes the silent clients whose time limit has passed."""
        self._timeout = None
        while self._silent:
            oldest = next(iter(self._silent))
            left_s = oldest.since_s + HANDSHAKE_TIMEOUT_S - self._loop.time()
            if left_s > 0:
                self._timeout = self._loop.call_later(left_s, self._check_timeout)
                return
            self._drop(oldest, f"the handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s")

    # ---- ready clients

    def _become_ready(self, client: _Client, received_bytes: int) -> None:
        own = self._ready.get(client.host)
        if own is None:
            self._ready[client.host] = {client: None}
            self._stop_waiting()  # a new address may abort a running handshake earlier
        else:
            own[client] = None
        self._leave_silent(client)  # not earlier: if a statement above raises, the client stays silent
        client.needed_bytes = 0
        self._start_soon()
        # If the socket is readable from now on, the client has ended its stream or sent more than its first message.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, received_bytes + 1)
        self._loop.add_reader(client.socket.fileno(), self._look_again, client, received_bytes + 1)
        client.needed_bytes = received_bytes + 1

    def _look_again(self, client: _Client, needed_bytes: int) -> None:
        """Checks a ready client whose socket is readable: the client ended its stream, or sent more than one message.

        Closes the client in both cases. An exception is a client that sent more, and whose first message is perhaps not
        TLS. Its handshake fails later, and the log line of the handshake has the reason.
        """
        try:
            ended = len(client.socket.recv(needed_bytes, socket.MSG_PEEK)) < needed_bytes
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ended = True
        if ended:
            self._drop_ready(client, "")
        elif client.signs_late:  # perhaps no TLS: the handshake fails, and its log line has the reason
            self._loop.remove_reader(client.socket.fileno())
            client.needed_bytes = 0
        else:  # no TLS client does that
            self._drop_ready(client, "the client sent more than its first message before the server responded")

    def _leave_ready(self, client: _Client) -> None:
        own = self._ready[client.host]
        del own[client]
        if not own:
            del self._ready[client.host]
        if client.needed_bytes:
            self._loop.remove_reader(client.socket.fileno())
            client.needed_bytes = 0

    def _drop_ready(self, client: _Client, reason: str) -> None:
        """Closes a ready client. Logs the reason, unless it is empty."""
        self._leave_ready(client)
        client.socket.close()
        self._fail(client.host)
        if reason:
            self._log_abort(client.host, reason)

    def _start_soon(self) -> None:
        if self._start is None and self._ready and not self._closed:
            self._start = self._loop.call_soon(self._start_ready)
            self._start_waits = False

    def _stop_waiting(self) -> None:
        if self._start is not None and self._start_waits:
            self._start.cancel()
            self._start = None

    def _start_ready(self) -> None:
        """Starts handshakes, one address after the other."""
        self._start = None
        try:
            for _ in range(STARTS_PER_TURN):
                if not self._ready:
                    return
                if len(self.running) >= MAX_HANDSHAKES:
                    self._start = self._loop.call_later(self._abort_oldest(), self._start_ready)
                    self._start_waits = True
                    return
                host, own = next(iter(self._ready.items()))
                self._newest_first = not self._newest_first
                client = next(reversed(own) if self._newest_first else iter(own))
                self._ready.move_to_end(host)
                self._leave_ready(client)
                self._begin(client)
        finally:
            self._start_soon()

    def _abort_oldest(self) -> float:
        """Aborts the oldest handshake of the address with the most running handshakes if it is old enough.

        Returns:
            The number of seconds after which the caller should call this method again.
        """
        busiest = max(self._running_by_host.values(), key=len)
        task, oldest = next(iter(busiest.items()))
        unfair = any(len(self._running_by_host.get(host, ())) + 1 < len(busiest) for host in self._ready)
        grace_s = UNFAIR_GRACE_S if unfair else HANDSHAKE_GRACE_S
        age_s = self._loop.time() - oldest.since_s
        if age_s < grace_s:
            return grace_s - age_s
        task.cancel()
        return grace_s  # the end of the handshake starts the next one earlier

    # ---- running handshakes

    def _begin(self, client: _Client) -> None:
        if client.signs_late and self._late >= MAX_LATE:
            client.socket.close()
            self._fail(client.host)
            self._log_abort(client.host, "too many handshakes wait for a second message from their clients")
            return
        try:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            client.since_s = self._loop.time()
            connection = self._make(client.host)
            task = self._loop.create_task(self._shake_hands(client, connection))
        except BaseException:  # e.g. MemoryError
            client.socket.close()
            self._fail(client.host)
            raise
        task.add_done_callback(partial(self._handshake_ended, client))  # first: the task releases the slot
        self._late += client.signs_late
        self.running[task] = client
        self._running_by_host.setdefault(client.host, {})[task] = client

    async def _shake_hands(self, client: _Client, connection: Connection) -> None:
        """Hands the socket to the event loop; returns when the handshake has ended."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, client.socket, ssl=self._security.tls, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except asyncio.CancelledError:
            if not self._closed:
                self._log_abort(client.host, "the server needs the place for other clients that wait")
        except Exception as error:
            self._log_failure(client.host, error)
        finally:
            if connection.transport is None:  # otherwise `connection_lost` releases the slot
                self._fail(client.host)

    def _handshake_ended(self, client: _Client, task: asyncio.Task[None]) -> None:
        host = client.host
        self._late -= client.signs_late
        self.running.pop(task, None)
        own = self._running_by_host.get(host)
        if own is not None:
            own.pop(task, None)
            if not own:
                del self._running_by_host[host]
        self._stop_waiting()
        self._start_soon()

    def _fail(self, host: str) -> None:
        self.failed += 1
        self._report_failure(host)

    # ---- log lines

    def _log_abort(self, host: str, reason: str) -> None:
        self._log.log(
            logging.INFO, host, "connection from %s closed before its TLS handshake ended: %s", host, reason,
            listener=self._listener,
        )  # fmt: skip

    def _log_failure(self, host: str, error: Exception) -> None:
        if isinstance(error, ConnectionAbortedError):
            self._log_abort(host, f"the handshake took longer than {HANDSHAKE_TIMEOUT_S:g} s")
        elif isinstance(error, ssl.SSLError):
            reason = error.reason or str(error)
            hint = f"; {HINTS[reason]}" if reason in HINTS else ""
            self._log.log(
                logging.WARNING, host, "TLS handshake with %s failed: %s%s", host, reason, hint,
                listener=self._listener,
            )  # fmt: skip
        elif isinstance(error, OSError):
            # OpenSSL has responded to the client's first message. Some clients, such as Python's asyncio, send no alert
            # if they do not trust the server.
            self._log_abort(host, "the client closed it; perhaps the client does not trust the server's certificate")
        else:
            self._log.log(
                logging.ERROR, host, "TLS handshake with %s failed: %s%s", host, repr(error), next_step(error),
                listener=self._listener,
            )  # fmt: skip

    # ---- shutdown

    def close(self) -> None:
        """Closes every client and aborts running handshakes."""
        self._closed = True
        for handle in (self._timeout, self._start):
            if handle is not None:
                handle.cancel()
        for client in list(self._silent):
            self._drop(client, "")
        for client in [client for own in self._ready.values() for client in own]:
            self._drop_ready(client, "")
        for task in self.running:
            task.cancel()
