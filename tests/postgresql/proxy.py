"""A TCP proxy before PostgreSQL that loses requests or responses, one chosen request at a time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

MODES = ("drop request", "drop response", "hold request", "hold response")


class Proxy:
    """A TCP proxy to a server on this machine.

    `fail(n, mode)` chooses the n-th message of a client from now on, and a fault. With `drop request`, the connection
    ends before the server receives the message. With `drop response`, it ends after the server has responded. With
    `hold request` or `hold response`, the message or the response is delayed until `release`.

    Attributes:
        requests: the number of messages of clients so far.
        failed: set when the chosen message has been lost or delayed.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._chosen = 0
        self._text: bytes | None = None
        self._mode = ""
        self._held: list[Callable[[], None]] = []
        self.requests = 0
        self.failed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, database: str) -> str:
        return f"postgresql://kcore@127.0.0.1:{self.port}/{database}"

    def fail(self, nth: int, mode: str) -> None:
        with self._lock:
            self._chosen, self._mode = self.requests + nth, mode
            self.failed.clear()

    def fail_at(self, text: bytes, mode: str) -> None:
        """Chooses the next message that contains `text`."""
        with self._lock:
            self._chosen, self._text, self._mode = 0, text, mode
            self.failed.clear()

    def release(self) -> None:
        """Delivers the held bytes."""
        with self._lock:
            held, self._held = self._held, []
        for deliver in held:
            with contextlib.suppress(OSError):
                deliver()

    def close(self) -> None:
        self._listener.close()
        for each in list(self._sockets):
            _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets |= {client, server}
                pair = _Pair(self, client, server)
                for pump in (pair.requests, pair.responses):
                    threading.Thread(target=pump, daemon=True).start()

    def count(self, message: bytes) -> str:
        """Counts a message of a client. Returns the mode if the message is the chosen one."""
        with self._lock:
            self.requests += 1
            if self._text is not None and self._text in message:
                self._text = None
                return self._mode
            return self._mode if self.requests == self._chosen else ""

    def hold(self, deliver: Callable[[], None]) -> None:
        with self._lock:
            self._held.append(deliver)
        self.failed.set()


class _Pair:
    """One connection of a client, and the connection to the server over which the proxy forwards its bytes."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.mode = ""

    def requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.client.recv(1 << 20):
                mode = self.proxy.count(data)
                if mode == "drop request":
                    break
                if mode == "hold request":
                    self.proxy.hold(lambda data=data: self.server.sendall(data))  # type: ignore[misc]
                    # Later bytes of this connection are delayed, too. The client's watchdog closes the connection.
                    while self.client.recv(1 << 20):
                        pass
                    return  # the server's side stays open until `release`
                self.mode = mode or self.mode
                self.server.sendall(data)
        self._end()

    def responses(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.server.recv(1 << 20):
                if self.mode == "drop response":
                    break
                if self.mode == "hold response":
                    self.proxy.hold(lambda: None)
                    continue
                self.client.sendall(data)
        self._end()

    def _end(self) -> None:
        _end(self.client)
        _end(self.server)
        self.proxy.failed.set()


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
