"""A TCP proxy in front of a Kafka server that can close connections at chosen moments."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards connections to one broker, and rewrites the broker's address in its Metadata responses.

    Args:
        bootstrap: HOST:PORT of the broker; the host must have as many characters as 127.0.0.1.
        listener: the socket that accepts connections; None: a new one.
    """

    def __init__(self, bootstrap: str, listener: socket.socket | None = None) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0)) if listener is None else listener
        self.port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._sockets: set[socket.socket] = set()
        self._cut = threading.Event()
        self.cuts = 0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._close_all()

    def cut_after_next_request(self) -> None:
        """Closes all connections once the broker has responded to the next request. The response is lost."""
        self._cut.set()

    def _close_all(self) -> None:
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets |= {client, server}
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, responses: bool) -> None:
        old = self._target[0].encode() + self._target[1].to_bytes(4, "big")
        new = b"127.0.0.1" + self.port.to_bytes(4, "big")
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if responses and self._cut.is_set():
                    self._cut.clear()
                    self.cuts += 1
                    self._close_all()
                    return
                target.sendall(data.replace(old, new))
        self._close_all()
