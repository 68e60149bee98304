"""A transport that reads and writes a TCP socket in the callbacks of the event loop.

It calls less Python code for a request and its response than asyncio's own transports. TLS needs asyncio's, and so does
an event loop that cannot watch sockets (Windows's proactor loop).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Protocol

HIGH_WATER_BYTES = 1 << 16
"""The unsent bytes above which the protocol holds new requests back."""
LOW_WATER_BYTES = 1 << 14
"""The unsent bytes from which on it sends them again."""


class SocketProtocol(Protocol):
    """The methods of `asyncio.BufferedProtocol` that the transport calls."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the memory for the next bytes."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Handles bytes that were written to the memory of `get_buffer`."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Handles the end of the connection; None: the server or `abort` has closed it."""
        ...

    def pause_writing(self) -> None:
        """Holds writes back."""
        ...

    def resume_writing(self) -> None:
        """Lets writes continue."""
        ...


class SocketTransport:
    """A connected socket with the methods of `asyncio.Transport` that a client's connection calls.

    Args:
        loop: the running event loop.
        connected: the socket, in non-blocking mode. The transport closes it.
        protocol: receives the bytes.

    Raises:
        NotImplementedError: the loop cannot watch sockets; the socket stays open.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, protocol: SocketProtocol) -> None:
        self._loop = loop
        self._socket = connected
        self._protocol = protocol
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._paused = False
        self._closed = False
        loop.add_reader(connected.fileno(), self._read)

    def write(self, data: bytes) -> None:
        """Sends bytes, or keeps those that the socket does not take yet."""
        if self._closed:
            return
        try:
            self._send(data)
        except OSError as error:
            self._lose(error)
        except BaseException:
            self._lose(None)  # a part of a request may have been sent
            raise

    def _send(self, data: bytes) -> None:
        sent = 0
        if not self._unsent:
            with suppress(BlockingIOError, InterruptedError):
                sent = self._socket.send(data)
            if sent == len(data):
                return
            self._loop.add_writer(self._socket.fileno(), self._write)
        self._unsent.append(memoryview(data)[sent:])
        self._unsent_bytes += len(data) - sent
        if self._unsent_bytes > HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def abort(self) -> None:
        """Closes the socket; unsent bytes are lost."""
        self._lose(None)

    # ---- called by the event loop

    def _write(self) -> None:
        """Continues to send, once the socket takes more."""
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.send(unsent[0])
                self._unsent_bytes -= sent
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lose(error)
            return
        except BaseException:
            self._lose(None)  # a part of a request may have been sent
            raise
        if not unsent:
            self._loop.remove_writer(self._socket.fileno())
        if self._paused and self._unsent_bytes <= LOW_WATER_BYTES:
            self._paused = False
            self._protocol.resume_writing()

    def _read(self) -> None:
        """Passes received bytes to the protocol."""
        try:
            count = self._socket.recv_into(self._protocol.get_buffer(-1))
            if count:
                self._protocol.buffer_updated(count)
                return
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:  # of the socket, or no memory for a long response
            self._lose(error)
            return
        except BaseException:
            self._lose(None)  # an interrupt after the bytes were read: their response is lost
            raise
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._socket.fileno())
                self._loop.remove_writer(self._socket.fileno())
                self._loop.call_soon(self._protocol.connection_lost, error)
        finally:
            self._socket.close()
            self._unsent.clear()


async def connect(host: str, port: int) -> socket.socket:
    """Returns a connected socket in non-blocking mode. The addresses of the host are tried one after another.

    Raises:
        OSError: no address accepts the connection, or the name is unknown.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    for family, kind, number, address in await _addresses(loop, host, port):
        opened = socket.socket(family, kind, number)
        try:
            opened.setblocking(False)
            await loop.sock_connect(opened, address)
        except OSError as error:
            opened.close()
            errors.append(error)
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    if len({str(error) for error in errors}) == 1:
        raise errors[0]
    raise OSError(", ".join(map(str, errors)) or f"{host} has no address")


async def _addresses(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, tuple[str, int]]]:
    """Returns the addresses of a host; a numeric IPv4 address needs no thread for the look-up of names."""
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, kind, number, address) for family, kind, number, _, address in found]  # type: ignore[misc]
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, (host, port))]
