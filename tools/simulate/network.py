"""The simulated network: ordered byte streams with delays, cuts, half-open connections and slow readers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tools.simulate.kernel import Kernel

UNREAD_LIMIT_BYTES = 1 << 16


class Receiver(Protocol):
    """An end of a connection."""

    def received(self, data: bytes) -> None:
        """Receives bytes that the other end sent."""
        ...

    def lost(self) -> None:
        """Notifies this end that the connection has ended."""
        ...


@dataclass(slots=True)
class Weather:
    """The rates of a network's disturbances; `calm` sets all of them to 0.

    Attributes:
        max_delay_ms: the largest ordinary delay.
        spike: the probability that a message takes up to `spike_ms`.
        spike_ms: the largest extraordinary delay.
        cut: the probability that a message cuts its connection instead of arriving.
    """

    max_delay_ms: int = 1
    spike: float = 0.0
    spike_ms: int = 2_000
    cut: float = 0.0

    def calm(self) -> None:
        """Ends all disturbances."""
        self.max_delay_ms = 1
        self.spike = self.cut = 0.0


class Wire:
    """One connection.

    Attributes:
        client: the client's end.
        server: the server's end; None until the connection is accepted.
        open: False once the connection delivers no more bytes.
        stalled_until_ms: the client reads nothing before this time.
    """

    __slots__ = ("_downstream_ms", "_network", "_upstream_ms", "client", "name", "open", "server", "stalled_until_ms",
                 "unread_bytes")  # fmt: skip

    def __init__(self, network: Network, name: str, client: Receiver) -> None:
        self._network = network
        self.name = name
        self.client = client
        self.server: Any = None
        self.open = True
        self.stalled_until_ms = 0
        self.unread_bytes = 0
        self._upstream_ms = self._downstream_ms = 0

    @property
    def writable(self) -> bool:
        """True while the server may send more."""
        return self.unread_bytes < UNREAD_LIMIT_BYTES

    def send_to_server(self, data: bytes) -> None:
        """Sends bytes from the client to the server."""
        network = self._network
        delay_ms = network.delay(self)
        if not self.open:
            return
        self._upstream_ms = arrival_ms = max(self._upstream_ms, network.kernel.now_ms + delay_ms)
        network.kernel.at(arrival_ms, self._arrive_at_server, data)

    def _arrive_at_server(self, data: bytes) -> None:
        if self.open and self.server is not None:
            self.server.received(data)

    def send_to_client(self, data: bytes) -> None:
        """Sends bytes from the server to the client."""
        network = self._network
        delay_ms = network.delay(self)
        if not self.open:
            return
        now_ms = network.kernel.now_ms
        self._downstream_ms = arrival_ms = max(self._downstream_ms, now_ms + delay_ms, self.stalled_until_ms)
        self.unread_bytes += len(data)
        network.kernel.at(arrival_ms, self._arrive_at_client, data)

    def _arrive_at_client(self, data: bytes) -> None:
        full = not self.writable
        self.unread_bytes -= len(data)
        if self.open:
            self.client.received(data)
            if full and self.writable and self.server is not None:
                self.server.writable()

    def cut(self, client_after_ms: int = 0, server_after_ms: int = 0) -> None:
        """Cuts the connection; each end is notified after its own delay."""
        if not self.open:
            return
        self.open = False
        self._network.wires.pop(self, None)
        kernel = self._network.kernel
        kernel.after(client_after_ms, self.client.lost)
        if self.server is not None:
            kernel.after(server_after_ms, self.server.lost)


class Network:
    """All connections to one node.

    Args:
        kernel: the simulation's event queue and clock.
        choice: the random numbers of delays and cuts.
        weather: the rates at which connections are delayed and cut.
        on_trouble: called when the network disturbs a connection, with the time until which the effect may last.

    Attributes:
        wires: the open connections.
        accept: accepts a connection; None while the node is down.
    """

    def __init__(
        self, kernel: Kernel, choice: random.Random, weather: Weather, on_trouble: Callable[[str, int], None]
    ) -> None:
        self.kernel = kernel
        self.choice = choice
        self.weather = weather
        self.wires: dict[Wire, None] = {}
        self.accept: Callable[[Wire], Receiver] | None = None
        self._on_trouble = on_trouble
        self._count = 0

    def delay(self, wire: Wire) -> int:
        """Returns the delay of one message in ms. May cut the connection instead."""
        weather = self.weather
        draw = self.choice.random()
        if draw < weather.cut:
            half_open_ms = self.choice.choice([0, 0, 5, 200, 20_000])
            self._on_trouble(f"cut {wire.name} {half_open_ms}", 0)
            wire.cut(self.choice.choice([0, 1, 50]), half_open_ms)
            return 0
        if draw < weather.cut + weather.spike:
            delay_ms = self.choice.randrange(weather.spike_ms)
            self._on_trouble(f"slow {wire.name} {delay_ms}", delay_ms)
            return delay_ms
        return int(draw * 7919) % (weather.max_delay_ms + 1)

    def connect(self, client: Receiver, name: str) -> Wire | None:
        """Connects a client to the node. Returns None if the node refuses the connection."""
        if self.accept is None:
            return None
        self._count += 1
        wire = Wire(self, f"{name}#{self._count}", client)
        wire.server = self.accept(wire)
        self.wires[wire] = None
        return wire

    def cut_all(self) -> None:
        """Cuts every connection, after a crash of the node."""
        for wire in list(self.wires):
            wire.server = None
            wire.cut(self.choice.randrange(3))
