"""Accepts connections: connection limits and exhausted file descriptors.

A connection counts towards the limits as soon as it is accepted, as in Kafka. So a client that never finishes its TLS
handshake also uses a slot. asyncio and uvloop report a connection only after the handshake. Therefore, kcore accepts
connections itself.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from kcore.printable import counted
from kcore.process_logging import limited_logger, next_step
from kcore.server.log_limits import QuietLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.server.authentication import ListenerSecurity
    from kcore.server.connection import Connection
    from kcore.server.connection_quota import ListenerQuota
    from kcore.server.handshake import Handshakes
    from kcore.server.log_limits import ClientLog

logger = limited_logger(__name__)

BACKLOG: Final = 1_024
"""Maximum number of connections that the operating system queues until the server accepts them."""

ACCEPTS_PER_TURN: Final = 32
"""Maximum number of connections that a listener accepts before the event loop serves other work."""

RETRY_S: Final = 0.5
"""Time after which a listener tries again to accept a connection, if no file descriptor or connection slot was free.

It tries earlier if a slot becomes free.
"""

FREE_PORT_ATTEMPTS: Final = 5
"""Maximum number of attempts to find a free port if the configured port is 0."""

MAX_THROTTLED: Final = 1_000
"""Maximum number of connections that a listener keeps open although their address is above its quota.

The listener closes further connections from such addresses at once.
"""

_NO_FAMILY: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))
_NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_PEER_GONE: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR))


class Acceptor:
    """The acceptor of the connections of one listening socket.

    - If the server or the listener has `max.connections` connections, the acceptor stops accepting until one of them
      ends. New clients wait in the backlog.
    - Above `max.connection.creation.rate` of the server or the listener, it stops accepting for some time.
    - It immediately closes a connection beyond `max.connections.per.ip` or its overrides.
    - It keeps a connection above the quota of its address (connection_creation_rate) open for some time without reading
      from it, and then closes it.
    - Without a free file descriptor, it retries every `RETRY_S`.
    - If no slot or no file descriptor is free, it first closes a TLS client that has not begun its handshake for some
      time. It stops accepting only if there is no such client.
    - With TLS, `Handshakes` takes over an accepted socket.

    Args:
        listening: the listening socket; the acceptor closes it.
        security: the listener's security.
        quota: counts the connections of the listener and of the server. All acceptors of a listener share it.
        make: creates the connection for a client address.
        log: logs failed TLS handshakes.
        loop: the event loop.

    Attributes:
        refused: number of connections closed because their address had too many connections.
        handshakes: the TLS handshakes; None without TLS.
    """

    def __init__(
        self,
        listening: socket.socket,
        security: ListenerSecurity,
        quota: ListenerQuota,
        make: Callable[[str], Connection],
        log: ClientLog,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._socket = listening
        self._security = security
        self._quota = quota
        self._make = make
        self._loop = loop
        self._accepting = False
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._throttled: dict[socket.socket, asyncio.TimerHandle] = {}
        self._burst = 1
        self._short = False  # True while slots or file descriptors are lacking
        self._short_log = QuietLog(loop.time)
        self._refused_log = QuietLog(loop.time)
        self.refused = 0
        self.handshakes: Handshakes | None = None
        if security.tls is not None:
            from kcore.server.handshake import Handshakes  # noqa: PLC0415  # needed only by nodes with TLS

            self.handshakes = Handshakes(security, make, quota.release, log, loop)
            quota.add_handshakes(self.handshakes)

    # ---- accepting

    def resume(self) -> None:
        """Starts accepting connections."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not (self._accepting or self._closed):
            self._accepting = True
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _pause(self, retry_s: float = RETRY_S) -> None:
        """Stops accepting until `resume` is called or `retry_s` have passed."""
        self._accepting = False
        self._loop.remove_reader(self._socket.fileno())
        if self._retry is None:
            self._retry = self._loop.call_later(retry_s, self.resume)

    def _accept(self) -> None:
        # A failed accept costs as much as a successful one. So `_burst` doubles while connections wait, and is 1 after
        # an empty backlog.
        made_room = False
        for _ in range(self._burst):
            if made_room:
                return  # closes at most one client per turn; the next turn may close another one
            if self._quota.full:
                made_room = self._quota.make_room()
                if not made_room:
                    count, limits = self._quota.reached()
                    self._warn(
                        "the limit of %s (%s) is reached; raise the limit, or close connections of clients",
                        counted(count, "connections"),
                        limits,
                    )
                    self._quota.wait(self)
                    self._pause()
                    return
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                self._burst = 1
                return
            except OSError as error:
                if not self._survives(error):
                    return
                continue
            self._short = False
            if not self._accepted(client, f"/{address[0]}"):
                continue
            pause_ms = self._quota.creation_pause_ms(int(self._loop.time() * 1_000))
            if pause_ms:
                self._pause(pause_ms / 1_000)
                return
        self._burst = min(2 * self._burst, ACCEPTS_PER_TURN)

    def _survives(self, error: OSError) -> bool:
        """Handles a failed accept. Returns True if the next accept may be tried immediately."""
        if error.errno in _PEER_GONE:
            return True
        if error.errno in _NO_DESCRIPTORS and self._quota.make_room():
            return True
        if error.errno not in _NO_DESCRIPTORS:
            logger.error(
                "listener %s: cannot accept connections: %s; trying again in %g s; if the error persists, check the "
                "machine's network and restart the server", self._security.name, error, RETRY_S,
            )  # fmt: skip
        else:
            self._warn("%s; raise the open file limit or lower max.connections below it", error.strerror)
        self._pause()
        return False

    def _warn(self, reason: str, *arguments: object) -> None:
        """Logs the reason why new connections wait. Logs it only once until the listener accepts a connection again."""
        if not self._short:
            self._short = True
            self._short_log.warn(f"new connections wait: {reason}", *arguments, listener=self._security.name)

    def _throttle(self, client: socket.socket, duration_ms: int) -> None:
        """Closes a connection after `duration_ms`, and does not read from it until then.

        The address of the client has exceeded its quota. If `MAX_THROTTLED` connections wait already, closes this one
        immediately.
        """
        if len(self._throttled) >= MAX_THROTTLED:
            client.close()
            return
        self._throttled[client] = self._loop.call_later(duration_ms / 1_000, self._end_throttle, client)

    def _end_throttle(self, client: socket.socket) -> None:
        del self._throttled[client]
        client.close()

    def _accepted(self, client: socket.socket, host: str) -> bool:
        """Opens, closes or throttles an accepted connection.

        Returns False if the connection does not count for `max.connection.creation.rate`.
        """
        throttle_ms = self._quota.throttle_ms(host)
        if throttle_ms:
            self._throttle(client, throttle_ms)
            return False
        if not self._quota.admit(host):
            self.refused += 1
            self._refused_log.warn(
                "connection from %s refused: the address has %s (max.connections.per.ip)",
                host,
                counted(self._quota.connections_of(host), "connections"),
                listener=self._security.name,
            )
            client.close()
            return True
        if self.handshakes is not None:
            self.handshakes.add(client, host)  # takes over the slot, even if it raises
            return True
        try:
            client.setblocking(False)
            connection = self._make(host)
            task = self._loop.create_task(self._open(client, connection))
        except BaseException:  # e.g. MemoryError
            self._quota.release(host)
            client.close()
            raise
        task.add_done_callback(self._opening.discard)
        self._opening.add(task)
        return True

    async def _open(self, client: socket.socket, connection: Connection) -> None:
        """Hands the socket to the event loop."""
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except Exception as error:
            if connection.transport is None:  # otherwise `connection_lost` releases the slot
                self._quota.release(connection.client_host)
            if not isinstance(error, OSError):
                logger.error(
                    "listener %s: an internal error while accepting a connection from %s; the connection is closed%s",
                    self._security.name,
                    connection.client_host,
                    next_step(error),
                    exc_info=error,
                )

    # ---- shutdown

    def close(self) -> None:
        """Stops accepting and aborts TLS handshakes."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for client, timer in self._throttled.items():
            timer.cancel()
            client.close()
        self._throttled.clear()
        if self.handshakes is not None:
            self.handshakes.close()

    async def wait_closed(self) -> None:
        """Waits until every accepted socket is an open connection or closed."""
        tasks = [*self._opening, *(() if self.handshakes is None else self.handshakes.running)]
        if tasks:
            await asyncio.wait(tasks)


def listening_sockets(addresses: list[tuple[int, str]], port: int) -> list[socket.socket]:
    """Opens the sockets of a listener. Skips address families that this machine lacks if other addresses remain.

    Args:
        addresses: family and numeric address of each socket.
        port: the port of all sockets; 0 selects a free port.

    Raises:
        OSError: a socket cannot be opened. The function has closed all other sockets.
    """
    for _ in range(FREE_PORT_ATTEMPTS):
        try:
            return _listen(addresses, port)
        except OSError as error:
            # A port that is free on one address may be in use on the next: try another one.
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _listen(addresses, port)


def _listen(addresses: list[tuple[int, str]], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, host in addresses:
            try:
                listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                absent = error
                continue
            opened.append(listening)
            listening.setblocking(False)
            # Accepted sockets inherit both options. Keep-alive detects peers that vanished, as in Kafka.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            port = listening.getsockname()[1]
    except BaseException:
        for listening in opened:
            listening.close()
        raise
    if absent is not None and not opened:
        raise absent
    return opened


async def resolve(host: str, loop: asyncio.AbstractEventLoop) -> list[tuple[int, str]]:
    """Resolves a host to the family and numeric form of each address; "" means every address of this machine.

    Raises:
        OSError: the host is unknown.
    """
    options: dict[str, int] = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP}
    try:  # a numeric address needs no resolver and no thread
        rows = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST, **options)
    except socket.gaierror:
        rows = await loop.getaddrinfo(host, 0, flags=socket.AI_PASSIVE, **options)
    families = (socket.AF_INET, socket.AF_INET6)
    return list(dict.fromkeys((int(row[0]), str(row[4][0])) for row in rows if row[0] in families))
