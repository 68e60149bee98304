"""A pipelined client for the benchmarks. It encodes frames once, and counts responses by their length without decoding
them.
"""

from __future__ import annotations

import socket

from kcore.protocol.schema import Message
from kcore_ext.codec.frames import encode_request


class Pipeline:
    """One connection with many outstanding requests.

    Args:
        port: the server's port on this machine.
        request: a typed request, which is sent repeatedly.
        version: the API version of the request.
        depth: the number of outstanding requests.
    """

    def __init__(self, port: int, request: Message, version: int, depth: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = encode_request(request, version, 7, "bench")
        self._out = frame * depth
        self._socket.sendall(frame)
        self._response = self._one()
        self._in_bytes = len(self._response) * depth

    def _one(self) -> bytes:
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts += part
        return bytes(parts)

    @property
    def response(self) -> bytes:
        """The first response, without its length."""
        return self._response[4:]

    def round(self) -> None:
        """Sends `depth` requests and receives `depth` responses, all of which have the same length."""
        self._socket.sendall(self._out)
        remaining = self._in_bytes
        while remaining:
            remaining -= len(self._socket.recv(min(remaining, 1 << 20)))

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()
