"""A TCP proxy that records and decodes the requests of one client, and can change requests and responses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kcore.client.connection import body_position
from kcore.protocol.api_keys import ApiKey, request_class, request_header_version, response_class

Change = Callable[[ApiKey, Any], None]
"""A function of the test that the proxy calls with each message. It may change the fields of the message."""


class Recorded(NamedTuple):
    """A recorded request.

    Attributes:
        connection: the number of the connection, in the order of their opening.
        api: the API.
        version: the version.
        client_id: the client id of the header.
        request: the decoded request.
    """

    connection: int
    api: ApiKey
    version: int
    client_id: str | None
    request: Any


class RecordingProxy:
    """A proxy between a client and a cluster of one broker, which records each request.

    The proxy replaces the broker's port in responses by its own port, so that the client knows no other address.

    Args:
        bootstrap: HOST:PORT of the broker, with the host 127.0.0.1.
        on_request: called with each request after its recording; may change the request.
        on_response: called with each response; may change the response.

    Attributes:
        bootstrap: the address for the client.
        requests: the recorded requests, in the order of their arrival.
    """

    def __init__(self, bootstrap: str, on_request: Change | None = None, on_response: Change | None = None) -> None:
        self._on_request = on_request
        self._on_response = on_response
        self._sent: dict[tuple[int, int], tuple[ApiKey, int]] = {}
        host, port = bootstrap.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.requests: list[Recorded] = []
        self._sockets: list[socket.socket] = []
        self._connections = 0

    def __enter__(self) -> RecordingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def take(self) -> list[Recorded]:
        """Returns the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    def cut(self) -> None:
        """Closes all connections."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                number, self._connections = self._connections, self._connections + 1
                threading.Thread(target=self._requests, args=(client, server, number), daemon=True).start()
                threading.Thread(target=self._responses, args=(server, client, number), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, number: int) -> None:
        with contextlib.closing(client), contextlib.suppress(OSError):
            while (frame := _frame(client)) is not None:
                recorded, end = _decode(number, frame)
                self.requests.append(recorded)
                if self._on_request is not None:
                    self._on_request(recorded.api, recorded.request)
                    frame = frame[:end] + recorded.request.encode(recorded.version)
                self._sent[number, int.from_bytes(frame[4:8], "big")] = recorded.api, recorded.version
                server.sendall(len(frame).to_bytes(4, "big") + frame)
            server.shutdown(socket.SHUT_WR)

    def _responses(self, server: socket.socket, client: socket.socket, number: int) -> None:
        old = self._target[0].encode() + self._target[1].to_bytes(4, "big")
        new = b"127.0.0.1" + self._port.to_bytes(4, "big")
        with contextlib.closing(server), contextlib.suppress(OSError):
            while (frame := _frame(server)) is not None:
                frame = frame.replace(old, new)
                api, version = self._sent.pop((number, int.from_bytes(frame[:4], "big")))
                if self._on_response is not None:
                    start = body_position(api, version, frame)
                    response = response_class(api).decode(frame, version, start)
                    self._on_response(api, response)
                    frame = frame[:start] + response.encode(version)
                client.sendall(len(frame).to_bytes(4, "big") + frame)
            client.shutdown(socket.SHUT_RDWR)


def _frame(source: socket.socket) -> bytes | None:
    """Reads a frame. Returns None at the end of the connection."""
    size = _exactly(source, 4)
    return None if size is None else _exactly(source, int.from_bytes(size, "big"))


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            return None
        data += part
    return data


def _decode(connection: int, frame: bytes) -> tuple[Recorded, int]:
    """Decodes a request. Also returns the position of its body."""
    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    size = int.from_bytes(frame[8:10], "big", signed=True)
    end = 10 + max(size, 0)
    client_id = None if size < 0 else frame[10:end].decode()
    if request_header_version(key, version) == 2:
        assert frame[end] == 0, "no client sends tags in a header"
        end += 1
    return Recorded(connection, ApiKey(key), version, client_id, request_class(key).decode(frame, version, end)), end
