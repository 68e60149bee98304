"""A client's connections to brokers, one for each broker and channel."""

from __future__ import annotations

import asyncio
import logging
import time

from kcore.client.aio.broker import Broker
from kcore.client.aio.connection import AsyncConnection
from kcore.client.security import ClientSecurity
from kcore.errors import ConnectionClosedError

logger = logging.getLogger(__name__)

WARN_INTERVAL_S = 30.0  # between warnings about one broker that cannot be reached


class Connections:
    """Connections to brokers, opened when needed and reopened after they were closed.

    Args:
        client_id: the client id in every request.
        timeout_s: the time limit of a response.
        security: TLS and SASL for every broker; None: neither.

    Attributes:
        accepted: True once a broker has served a request other than ApiVersions.
        closed: True if no connection may be opened any more.
    """

    def __init__(self, client_id: str, timeout_s: float, security: ClientSecurity | None) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._openings: dict[tuple[str, int, str], asyncio.Future[AsyncConnection]] = {}
        self._unreachable = _UnreachableBrokers()
        self.accepted = False
        self.closed = False

    def get(self, broker: Broker, channel: str) -> AsyncConnection | None:
        """Returns an open connection; None if there is none yet."""
        opening = self._openings.get((broker.host, broker.port, channel))
        if opening is None or not _succeeded(opening):
            return None
        connection = opening.result()
        return None if connection.closed else connection

    def connected_broker(self) -> Broker | None:
        """Returns the address of a broker with an open connection; None if no connection is open."""
        for host, port, channel in self._openings:
            broker = Broker(-1, host, port)
            if self.get(broker, channel) is not None:
                return broker
        return None

    async def open(self, broker: Broker, channel: str) -> AsyncConnection:
        """Opens a connection, or waits for the end of an attempt that another call has begun.

        Raises:
            ConnectionClosedError: the broker is unreachable, or `close` or `close_channel` ended the attempt.
            TimeoutError: the broker sent no response in time.
        """
        if self.closed:
            raise ConnectionClosedError("the node is closed")
        key = (broker.host, broker.port, channel)
        opening = self._openings.get(key)
        if opening is not None and not opening.done():
            return await self._wait_for(opening)
        attempt = AsyncConnection.open(
            broker.host, broker.port, self._client_id, self._timeout_s, self._security, accepted=self.accepted
        )
        opening = self._openings[key] = asyncio.ensure_future(attempt)
        try:
            connection = await self._wait_for(opening)
        except Exception as error:
            if self._openings.get(key) is opening:
                del self._openings[key]
            if not opening.cancelled():
                self._unreachable.note(broker, error)
            raise
        self._unreachable.reached(broker)
        return connection

    async def _wait_for(self, opening: asyncio.Future[AsyncConnection]) -> AsyncConnection:
        """Waits until a connection is open.

        Raises:
            ConnectionClosedError: `close` or `close_channel` ended the attempt. The waiting task itself is not
                cancelled, so it must not receive a CancelledError.
        """
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not opening.cancelled() or (task is not None and task.cancelling()):
                raise
            reason = "the node is closed" if self.closed else "the connection was closed while it was being opened"
            raise ConnectionClosedError(reason) from None

    def close_channel(self, channel: str) -> None:
        """Closes the connections of a channel that is no longer used."""
        for key in [key for key in self._openings if key[2] == channel]:
            _close(self._openings.pop(key))

    def close(self) -> None:
        """Closes every connection, and ends every attempt to open one."""
        self.closed = True
        openings, self._openings = self._openings, {}
        for opening in openings.values():
            _close(opening)

    def abandon(self) -> None:
        """Shuts the sockets down after the end of the connections' event loop."""
        self.closed = True
        openings, self._openings = self._openings, {}
        for opening in openings.values():
            if _succeeded(opening):
                opening.result().abandon()


def _close(opening: asyncio.Future[AsyncConnection]) -> None:
    if not opening.done():
        opening.cancel()
    elif _succeeded(opening):
        opening.result().close()


def _succeeded(opening: asyncio.Future[AsyncConnection]) -> bool:
    return opening.done() and not opening.cancelled() and opening.exception() is None


class _UnreachableBrokers:
    """The log warnings about unreachable brokers. A program that only waits for records sees no errors about these
    brokers.
    """

    def __init__(self) -> None:
        self._warn_at_s: dict[tuple[str, int], float] = {}

    def note(self, broker: Broker, error: Exception) -> None:
        """Logs a failed attempt to reach a broker, at most once in `WARN_INTERVAL_S` for each broker.

        It does not log the first failure, because the caller receives the error.
        """
        address = broker.host, broker.port
        now_s = time.monotonic()
        warn_at_s = self._warn_at_s.get(address)
        if warn_at_s is None:
            self._warn_at_s[address] = now_s
        elif now_s >= warn_at_s:
            self._warn_at_s[address] = now_s + WARN_INTERVAL_S
            cause = str(error).removeprefix(f"cannot connect to {broker.host}:{broker.port}: ")
            logger.warning(
                "client: cannot connect to %s:%d: %s; the client tries again; if this repeats, check that the broker "
                "runs and can be reached",
                *address,
                cause,
            )

    def reached(self, broker: Broker) -> None:
        """Forgets the failures of a broker."""
        if self._warn_at_s:
            self._warn_at_s.pop((broker.host, broker.port), None)
