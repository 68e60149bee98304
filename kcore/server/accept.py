"""Accepts connections: limits on their number, TLS handshakes, and running out of file descriptors.

A connection counts from its accept on, as in Kafka: a client that never finishes its TLS handshake uses up a slot, too.
The event loops' own servers report a connection only after the handshake, so kcore accepts by itself.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Final

from kcore.process_logging import fields

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.server.authentication import ListenerSecurity
    from kcore.server.connection import Connection

logger = logging.getLogger(__name__)

BACKLOG: Final = 1_024
"""Connections that the operating system keeps until they are accepted."""

ACCEPTS_PER_TURN: Final = 128
"""Connections that one listener accepts before others are served."""

RETRY_S: Final = 0.5
"""Pause of a listener without a free file descriptor, and the longest pause of one without a free slot."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Time that a client has for its TLS handshake."""

MAX_HANDSHAKES: Final = 256
"""TLS handshakes that one listener has under way; each takes up to 100 KB of memory."""

HANDSHAKE_GRACE_S: Final = 3.0
"""Age at which a handshake is given up if `MAX_HANDSHAKES` are under way and another client waits."""

QUIET_S: Final = 10.0
"""Time between two log lines of the same kind, so that clients cannot fill a disk with them."""

FREE_PORT_ATTEMPTS: Final = 5
"""Ports that are tried where any will do."""

_NO_FAMILY: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))
_NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_PEER_GONE: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR))


class QuietLog:
    """Warnings that are repeated at most every `QUIET_S`, with the number of those that were left out.

    Args:
        clock: the time in seconds.
    """

    __slots__ = ("_clock", "_omitted", "_since_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s = -QUIET_S
        self._omitted = 0

    def warn(self, message: str, *arguments: object, **about: object) -> None:
        """Logs a warning, or counts it."""
        now_s = self._clock()
        if now_s - self._since_s < QUIET_S:
            self._omitted += 1
            return
        if self._omitted:
            message += " (%d more such warnings were left out)"
            arguments = (*arguments, self._omitted)
        self._since_s, self._omitted = now_s, 0
        logger.warning(message, *arguments, extra=fields(**about))


class ConnectionQuota:
    """Counts a server's connections, from their accept to their end, in all and for each client address.

    Args:
        config: has `max.connections` and `max.connections.per.ip`, which may change at any time.

    Attributes:
        total: how many connections there are.
        by_host: client address -> how many it has.
    """

    __slots__ = ("_config", "_waiting", "by_host", "total")

    def __init__(self, config: Config) -> None:
        self._config = config
        self._waiting: dict[Acceptor, None] = {}
        self.by_host: dict[str, int] = {}
        self.total = 0

    @property
    def full(self) -> bool:
        """True while no further connection may be accepted."""
        return self.total >= self._config.max_connections

    def take(self, host: str) -> bool:
        """Counts a new connection. Returns False, and counts nothing, if its address has too many."""
        count = self.by_host.get(host, 0)
        if count >= self._config.max_connections_per_ip:
            return False
        self.by_host[host] = count + 1
        self.total += 1
        return True

    def release(self, host: str) -> None:
        """Counts a connection out; listeners that waited for its slot accept again."""
        left = self.by_host[host] - 1
        if left:
            self.by_host[host] = left
        else:
            del self.by_host[host]
        self.total -= 1
        if self._waiting and not self.full:
            waiting, self._waiting = self._waiting, {}
            for acceptor in waiting:
                acceptor.resume()

    def wait(self, acceptor: Acceptor) -> None:
        """Resumes `acceptor` when there is a free slot."""
        self._waiting[acceptor] = None


class Acceptor:
    """Accepts the connections of one listening socket.

    - With `max.connections` connections it accepts no more until one ends: clients wait in the backlog.
    - A connection beyond `max.connections.per.ip` is closed at once.
    - A TLS handshake has `HANDSHAKE_TIMEOUT_S`. With `MAX_HANDSHAKES` under way no more are accepted, and the oldest is
      given up after `HANDSHAKE_GRACE_S`. So clients that do not finish theirs take a bounded amount of memory, and
      cannot keep others out.
    - Without a free file descriptor it tries again every `RETRY_S`.

    Args:
        listening: the socket; the acceptor closes it.
        security: of the listener.
        quota: counts the connections of all listeners.
        make: makes the connection of a client address.
        loop: the event loop.

    Attributes:
        refused: how many connections were closed because their address had too many.
        failed_handshakes: how many TLS handshakes failed or were given up.
        handshakes: the TLS handshakes under way, oldest first -> when each began, in the loop's time.
    """

    def __init__(
        self,
        listening: socket.socket,
        security: ListenerSecurity,
        quota: ConnectionQuota,
        make: Callable[[str], Connection],
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
        self._burst = 1
        self._short = False  # of slots or of file descriptors
        self._short_log = QuietLog(loop.time)
        self._refused_log = QuietLog(loop.time)
        self.refused = 0
        self.failed_handshakes = 0
        self.handshakes: dict[asyncio.Task[None], float] = {}

    # ---- accepting

    def resume(self) -> None:
        """Accepts connections from now on."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not (self._accepting or self._closed):
            self._accepting = True
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _pause(self, retry_s: float = RETRY_S) -> None:
        """Accepts nothing until `resume`, or for `retry_s`."""
        self._accepting = False
        self._loop.remove_reader(self._socket.fileno())
        if self._retry is None:
            self._retry = self._loop.call_later(retry_s, self.resume)

    def _accept(self) -> None:
        # A try in vain costs as much as an accept: as many are tried as there were connections the last time.
        for _ in range(self._burst):
            if self._quota.full:
                self._warn("there are %d, as many as max.connections allows", self._quota.total)
                self._quota.wait(self)
                self._pause()
                return
            if len(self.handshakes) >= MAX_HANDSHAKES:
                self._pause(self._make_room())
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
            self._accepted(client, f"/{address[0]}")
        self._burst = min(2 * self._burst, ACCEPTS_PER_TURN)

    def _survives(self, error: OSError) -> bool:
        """Handles a failed accept. Returns whether the next one may be tried at once."""
        if error.errno in _PEER_GONE:
            return True
        if error.errno not in _NO_DESCRIPTORS:
            logger.error("%s cannot accept connections: %s", self._security.name, error)
        else:
            self._warn("%s (raise the limit of open files, or set max.connections below it)", error.strerror)
        self._pause()
        return False

    def _warn(self, why: str, *arguments: object) -> None:
        """Logs why new connections wait: once, until one is accepted again."""
        if not self._short:
            self._short = True
            self._short_log.warn(f"new connections wait: {why}", *arguments, listener=self._security.name)

    def _make_room(self) -> float:
        """Gives the oldest handshake up if it is old enough. Returns after how many seconds to look again."""
        oldest, began_s = next(iter(self.handshakes.items()))
        age_s = self._loop.time() - began_s
        if age_s >= HANDSHAKE_GRACE_S:
            oldest.cancel()
            return RETRY_S  # the end of the handshake resumes earlier
        return HANDSHAKE_GRACE_S - age_s

    def _accepted(self, client: socket.socket, host: str) -> None:
        if not self._quota.take(host):
            self.refused += 1
            self._refused_log.warn(
                "%s closes: it has %d connections, as many as max.connections.per.ip allows",
                host,
                self._quota.by_host.get(host, 0),
                listener=self._security.name,
            )
            client.close()
            return
        try:
            client.setblocking(False)
            connection = self._make(host)
        except BaseException:  # for want of memory
            self._quota.release(host)
            client.close()
            raise
        if self._security.tls is None:
            task = self._loop.create_task(self._open(client, connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        else:
            task = self._loop.create_task(self._shake_hands(client, connection, self._security.tls))
            self.handshakes[task] = self._loop.time()
            task.add_done_callback(self._handshake_ended)

    async def _open(self, client: socket.socket, connection: Connection) -> None:
        """Gives the socket to the event loop."""
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except Exception as error:
            self._not_opened(connection, error)

    async def _shake_hands(self, client: socket.socket, connection: Connection, tls: ssl.SSLContext) -> None:
        """Gives the socket to the event loop; when this returns the handshake is over."""
        host = connection.client_host
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, client, ssl=tls, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except asyncio.CancelledError as error:
            self.failed_handshakes += 1
            self._not_opened(connection, error)
            if not self._closed:
                logger.info("%s closes: its TLS handshake was given up for those of others", host)
        except Exception as error:
            self.failed_handshakes += 1
            self._not_opened(connection, error)
            if isinstance(error, ConnectionAbortedError):
                logger.info("%s closes: its TLS handshake took longer than %g s", host, HANDSHAKE_TIMEOUT_S)

    def _not_opened(self, connection: Connection, error: BaseException) -> None:
        """Counts a connection out, unless it does so itself at its end. `kcore.server.handshake` logs TLS errors."""
        if connection.transport is None:
            self._quota.release(connection.client_host)
        if not isinstance(error, OSError | asyncio.CancelledError):
            logger.error("%s failed to open a connection", self._security.name, exc_info=error)

    def _handshake_ended(self, task: asyncio.Task[None]) -> None:
        del self.handshakes[task]
        if not self._quota.full:
            self.resume()

    # ---- the end

    def close(self) -> None:
        """Accepts no more, and gives handshakes up."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in self.handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        """Returns when every socket that was accepted is a connection or closed."""
        tasks = [*self._opening, *self.handshakes]
        if tasks:
            await asyncio.wait(tasks)


def listening_sockets(addresses: list[tuple[int, str]], port: int) -> list[socket.socket]:
    """Opens the sockets of a listener. Addresses of a family that this machine lacks are skipped if others are left.

    Args:
        addresses: family and numeric address of each.
        port: the port; 0 takes a free one, the same for all.

    Raises:
        OSError: one cannot be opened; then none is.
    """
    for _ in range(FREE_PORT_ATTEMPTS):
        try:
            return _listen(addresses, port)
        except OSError as error:
            # A port that is free on one address may be taken on the next: another one is tried.
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
            # Accepted sockets inherit both. The former finds peers that vanished, as in Kafka.
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
    """Finds the family and numeric form of each address of a host; "" is every address of this machine.

    Raises:
        OSError: the host is not known.
    """
    options: dict[str, int] = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP}
    try:  # needs no resolver, and no thread for it
        found = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST, **options)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, 0, flags=socket.AI_PASSIVE, **options)
    families = (socket.AF_INET, socket.AF_INET6)
    return list(dict.fromkeys((int(row[0]), str(row[4][0])) for row in found if row[0] in families))
