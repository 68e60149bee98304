"""Limits on the connections of the server, of a listener and of a client address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.broker.data.rates import Rate
from kcore.config.connections import connection_overrides
from kcore.config.security import LISTENER_PREFIX
from kcore.config.setting import INT_MAX

if TYPE_CHECKING:
    from kcore.broker.data.client_quotas import ClientQuotas
    from kcore.config.node import Config
    from kcore.server.accept import Acceptor
    from kcore.server.handshake import Handshakes


class ConnectionQuota:
    """The counts of the server's connections in total and per client address, from accept to close.

    Args:
        config: contains the limits `max.connection*`, which may change at any time.
        clients: the quotas of addresses.

    Attributes:
        total: number of connections.
        by_host: client address -> number of its connections.
    """

    __slots__ = ("_clients", "_config", "_handshakes", "_listeners", "_rate", "_waiting", "by_host", "total")

    def __init__(self, config: Config, clients: ClientQuotas) -> None:
        self._config = config
        self._clients = clients
        self._rate = Rate()
        self._handshakes: list[Handshakes] = []
        self._listeners: dict[str, ListenerQuota] = {}
        self._waiting: dict[Acceptor, ListenerQuota] = {}
        self.by_host: dict[str, int] = {}
        self.total = 0

    def of_listener(self, name: str) -> ListenerQuota:
        """Returns the quota of a listener, which also applies the limits of the server."""
        quota = self._listeners.get(name)
        if quota is None:
            quota = self._listeners[name] = ListenerQuota(name, self, self._config)
        return quota

    @property
    def full(self) -> bool:
        """True while the server has `max.connections` connections, so that no listener may accept a further one."""
        return self.total >= self._config.max_connections

    def add_handshakes(self, handshakes: Handshakes) -> None:
        """Registers the TLS handshakes of a listening socket, so that `make_room` can end one of them."""
        self._handshakes.append(handshakes)

    def make_room(self) -> bool:
        """Closes a connection whose client does not begin the TLS handshake. Returns False if there is none."""
        return any(handshakes.make_room() for handshakes in self._handshakes)

    def admit(self, host: str) -> bool:
        """Counts a new connection. Returns False, without counting it, if its address has too many connections."""
        count = self.by_host.get(host, 0)
        if count >= self.limit_of(host):
            return False
        self.by_host[host] = count + 1
        self.total += 1
        return True

    def limit_of(self, host: str) -> int:
        """Returns the maximum number of connections of an address."""
        config = self._config
        overrides, limit = config.max_connections_per_ip_overrides, config.max_connections_per_ip
        return connection_overrides(overrides).get(host[1:], limit) if overrides else limit

    def creation_pause_ms(self, now_ms: int) -> int:
        """Counts a new connection for `max.connection.creation.rate`. Returns the time in ms until the next connection
        may be accepted.

        As in Kafka, the result is at most the duration of one sample.
        """
        return self.measure(self._rate, self._config.max_connection_creation_rate, now_ms)

    def measure(self, rate: Rate, bound: int, now_ms: int) -> int:
        """Counts a new connection in a rate. Returns the time in ms until the next connection may be accepted.

        Args:
            rate: the rate of the server or of a listener.
            bound: the limit of the rate, per second.
            now_ms: the present time.
        """
        if bound == INT_MAX:
            return 0
        window_ms = self._clients.window_ms
        rate.record(1, now_ms, window_ms)
        if not bound:
            return window_ms
        return min(rate.excess_ms(bound, now_ms, window_ms, self._clients.samples), window_ms)

    def throttle_ms(self, host: str) -> int:
        """Counts a new connection for the quota of its address.

        Returns the time in ms after which to close it; 0 to keep it open.
        """
        return self._clients.connection_throttle_ms(host[1:])

    def release(self, host: str) -> None:
        """Subtracts a closed connection from the counts."""
        remaining = self.by_host[host] - 1
        if remaining:
            self.by_host[host] = remaining
        else:
            del self.by_host[host]
        self.total -= 1

    def wait(self, acceptor: Acceptor, quota: ListenerQuota) -> None:
        """Resumes `acceptor` when its listener has a free slot."""
        self._waiting[acceptor] = quota

    def resume_waiting(self) -> None:
        """Resumes the acceptors whose listener has a free slot."""
        if self._waiting and not self.full:
            for acceptor in [acceptor for acceptor, quota in self._waiting.items() if not quota.full]:
                del self._waiting[acceptor]
                acceptor.resume()


class ListenerQuota:
    """The count of one listener's connections, for the limits of the listener and of the server.

    As in Kafka, `listener.name.NAME.max.connections` and `listener.name.NAME.max.connection.creation.rate` apply in
    addition to the settings without a prefix.

    Args:
        name: the listener's name.
        server: counts the connections of all listeners.
        config: contains the limits, which may change at any time.

    Attributes:
        count: number of the listener's connections.
    """

    __slots__ = ("_config", "_handshakes", "_limit_name", "_rate", "_rate_name", "_server", "count")

    def __init__(self, name: str, server: ConnectionQuota, config: Config) -> None:
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        self._limit_name = f"{prefix}max.connections"
        self._rate_name = f"{prefix}max.connection.creation.rate"
        self._config = config
        self._server = server
        self._rate = Rate()
        self._handshakes: list[Handshakes] = []
        self.count = 0

    @property
    def full(self) -> bool:
        """True while the listener may accept no further connection."""
        return self._at_own_limit or self._server.full

    @property
    def _at_own_limit(self) -> bool:
        limit: int = self._config.of_listener(self._limit_name, INT_MAX)
        return self.count >= limit

    def reached(self) -> tuple[int, str]:
        """Returns the number of connections, and the name of the limit that this number has reached."""
        if self._at_own_limit:
            return self.count, self._limit_name
        return self._server.total, "max.connections"

    def add_handshakes(self, handshakes: Handshakes) -> None:
        """Registers the TLS handshakes of a socket of the listener, so that `make_room` can end one of them."""
        self._handshakes.append(handshakes)
        self._server.add_handshakes(handshakes)

    def make_room(self) -> bool:
        """Closes a connection whose client does not begin the TLS handshake.

        If the listener has reached its own limit, closes a connection of this listener. If only the server's limit is
        reached, closes a connection of any listener.

        Returns:
            False if there is no such connection.
        """
        if self._at_own_limit:
            return any(handshakes.make_room() for handshakes in self._handshakes)
        return self._server.make_room()

    def connections_of(self, host: str) -> int:
        """Returns the number of connections of a client address to all listeners."""
        return self._server.by_host.get(host, 0)

    def admit(self, host: str) -> bool:
        """Counts a new connection. Returns False, without counting it, if its address has too many connections."""
        if not self._server.admit(host):
            return False
        self.count += 1
        return True

    def creation_pause_ms(self, now_ms: int) -> int:
        """Counts a new connection for the rates of the listener and the server.

        Returns the time in ms until the listener may accept the next connection.
        """
        pause_ms = self._server.creation_pause_ms(now_ms)
        bound = self._config.of_listener(self._rate_name, INT_MAX)
        return max(pause_ms, self._server.measure(self._rate, bound, now_ms))

    def throttle_ms(self, host: str) -> int:
        """Counts a new connection for the quota of its address.

        Returns the time in ms after which to close it; 0 to keep it open.
        """
        return self._server.throttle_ms(host)

    def release(self, host: str) -> None:
        """Subtracts a closed connection from the counts. Listeners that waited for a slot accept again."""
        self.count -= 1
        self._server.release(host)
        self._server.resume_waiting()

    def wait(self, acceptor: Acceptor) -> None:
        """Resumes `acceptor` when a slot is free."""
        self._server.wait(acceptor, self)
