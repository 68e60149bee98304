"""A client's connection to the node: typed requests and responses over the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.client.connection import body_position
from kcore.errors import ConnectionClosedError
from kcore.protocol.api_keys import response_class
from kcore_ext.codec.frames import encode_request
from tools.simulate.kernel import Suspension
from tools.simulate.network import Network, Wire

if TYPE_CHECKING:
    from tools.simulate.world import World

Done = Callable[[Any], None]
MAX_CORRELATION = 0x7FFFFFFF
MAX_REQUESTS_PER_S = 1_000
"""Maximum number of requests on one connection within a second of virtual time.

A client that repeats a request without a pause exceeds it. Producers with a backlog send up to 300.
"""


class _Sent(NamedTuple):
    request: Any
    version: int
    done: Done
    sent_ms: int
    deadline_ms: int


class Channel:
    """A client's connection, which is opened again when needed. Requests are pipelined, and responses arrive in the
    order of the requests.

    A request whose response does not arrive in time fails with TimeoutError, and its connection is closed.

    Args:
        world: the simulation.
        name: the client's id.
        network: the network of the node to connect to; None if the simulation has only one node.
    """

    def __init__(self, world: World, name: str, network: Network | None = None) -> None:
        self._world = world
        self._network = world.network if network is None else network
        self._kernel = world.kernel
        self.name = name
        self._wire: Wire | None = None
        self._sent: dict[int, _Sent] = {}
        self._received = bytearray()
        self._correlation = 0
        self._alarm_ms = 0
        self._second = self._sent_in_second = 0
        self.closed = False
        world.channels.append(self)

    @property
    def waiting(self) -> int:
        """The number of requests without a response."""
        return len(self._sent)

    def call(
        self, request: Any, version: int | None = None, *, timeout_ms: int = 30_000, at_most: int | None = None
    ) -> Suspension:
        """Sends a request and suspends a coroutine until its response arrives.

        Raises:
            ConnectionClosedError, TimeoutError: no response arrived; the node may have served the request.
        """
        return Suspension(lambda done: self.send(request, done, version, timeout_ms=timeout_ms, at_most=at_most))

    def send(
        self,
        request: Any,
        done: Done,
        version: int | None = None,
        *,
        timeout_ms: int = 30_000,
        at_most: int | None = None,
    ) -> None:
        """Sends a request. Calls `done` with the response or with an exception."""
        kernel = self._kernel
        self._count_request(kernel.now_ms // 1_000)
        if self._wire is not None and not self._wire.open:
            self._fail(ConnectionClosedError("simulated: the connection was cut"))  # may send, and so open the next one
        if self._wire is None:
            self._received.clear()
            self._wire = self._network.connect(self, self.name)
            if self._wire is None:
                kernel.after(5, done, ConnectionClosedError("simulated: the node refuses connections"))
                return
        if version is None:
            version = type(request).MAX_VERSION if at_most is None else min(at_most, type(request).MAX_VERSION)
        self._correlation = (self._correlation + 1) & MAX_CORRELATION
        frame = encode_request(request, version, self._correlation, self.name)
        deadline_ms = kernel.now_ms + timeout_ms
        self._sent[self._correlation] = _Sent(request, version, done, kernel.now_ms, deadline_ms)
        self._world.trace_frame(self.name, ">", request, frame)
        self._wire.send_to_server(frame)
        if self._alarm_ms <= kernel.now_ms or deadline_ms < self._alarm_ms:
            self._alarm_ms = deadline_ms
            kernel.at(deadline_ms, self._check_deadlines)

    def _count_request(self, second: int) -> None:
        if second != self._second:
            self._second, self._sent_in_second = second, 0
        self._sent_in_second += 1
        if self._sent_in_second > MAX_REQUESTS_PER_S:
            self._world.checks.repeating = self.name

    def send_bytes(self, data: bytes) -> None:
        """Sends arbitrary bytes, as a client that violates the protocol does."""
        if self._wire is None or not self._wire.open:
            self._wire = self._network.connect(self, self.name)
        if self._wire is not None:
            self._wire.send_to_server(data)

    def stall(self, duration_ms: int) -> None:
        """Reads nothing for some time."""
        if self._wire is not None:
            self._wire.stalled_until_ms = self._kernel.now_ms + duration_ms

    def cut(self, server_after_ms: int = 0) -> None:
        """Cuts the connection. The server is notified `server_after_ms` later than the client."""
        if self._wire is not None:
            self._wire.cut(0, server_after_ms)

    def close(self) -> None:
        """Closes the connection. Requests without a response fail."""
        self.closed = True
        self.cut()
        self._fail(ConnectionClosedError("the client closed its connection"))

    # ---- the wire

    def received(self, data: bytes) -> None:
        """Decodes the complete responses in the received bytes, and passes each to the callback of its request."""
        buffer = self._received
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end > len(buffer):
                break
            frame = bytes(buffer[at + 4 : end])
            at = end
            self._complete(frame)
        del buffer[:at]

    def _complete(self, frame: bytes) -> None:
        sent = self._sent.pop(int.from_bytes(frame[:4], "big"), None)
        if sent is None:
            return
        key = type(sent.request).API_KEY
        response = response_class(key).decode(frame, sent.version, body_position(key, sent.version, frame))
        self._world.trace_frame(self.name, "<", response, frame)
        sent.done(response)

    def lost(self) -> None:
        """Fails all requests without a response after the connection was cut."""
        if self._wire is not None and not self._wire.open:
            self._fail(ConnectionClosedError("simulated: the connection was cut"))

    def _fail(self, error: Exception) -> None:
        sent, self._sent = self._sent, {}
        self._wire = None
        self._received.clear()
        for each in sent.values():
            each.done(error)

    def _check_deadlines(self) -> None:
        now_ms = self._kernel.now_ms
        if not self._sent:
            return
        overdue = [each for each in self._sent.values() if each.deadline_ms <= now_ms]
        if overdue:
            self._world.unanswered(self.name, overdue[0].request, overdue[0].sent_ms)
            self.cut()
            self._fail(TimeoutError("simulated: no response in time"))
            return
        self._alarm_ms = min(each.deadline_ms for each in self._sent.values())
        self._kernel.at(self._alarm_ms, self._check_deadlines)
