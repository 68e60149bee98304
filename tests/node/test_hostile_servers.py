"""Clients against servers that break the protocol: every wait ends with a clear error, and memory is bounded."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kcore
from kcore.client import Connection
from kcore.errors import ConnectionClosedError, CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from kcore.errors.malformed import MalformedResponseError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.api_versions import ApiVersionsRequest
from tests.recording_proxy import RecordingProxy

TIMEOUT_S = 1.0
"""Time limit of a request to a server that never sends a complete response."""
LIMIT_S = 60.0
"""Time limit of a request to a server that responds at once, and of a whole test. Only an endless wait reaches it."""
MEMORY_BYTES = 64 << 20

Respond = Callable[[socket.socket, bytes], None]
"""A function that acts as a server: gets the connection and the correlation id of the first request."""


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def garbage(client: socket.socket, correlation: bytes) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def noise(client: socket.socket, correlation: bytes) -> None:
    client.sendall(frame(correlation + bytes(range(256))))


def short_frame(client: socket.socket, correlation: bytes) -> None:
    client.sendall(frame(b"\0"))


def empty_frame(client: socket.socket, correlation: bytes) -> None:
    client.sendall(frame(b""))


def wrong_correlation(client: socket.socket, correlation: bytes) -> None:
    client.sendall(frame(b"\x7f\xff\xff\xff\0\0\0\0\0\0"))


def truncated(client: socket.socket, correlation: bytes) -> None:
    client.sendall((1000).to_bytes(4, "big") + correlation + b"\0\0")
    client.shutdown(socket.SHUT_WR)


def half_closed(client: socket.socket, correlation: bytes) -> None:
    client.shutdown(socket.SHUT_WR)


def silent(client: socket.socket, correlation: bytes) -> None:
    time.sleep(5 * TIMEOUT_S)


def dripping(client: socket.socket, correlation: bytes) -> None:
    client.sendall((1000).to_bytes(4, "big") + correlation)
    for _ in range(100):
        time.sleep(TIMEOUT_S / 10)
        client.sendall(b"\0")


def huge_count(client: socket.socket, correlation: bytes) -> None:
    """Returns an ApiVersions response that announces two billion rows but has none."""
    client.sendall(frame(correlation + b"\0\0" + b"\xff\xff\xff\xff\x07" + bytes(16)))


def huge_frame(client: socket.socket, correlation: bytes) -> None:
    """Announces a frame below the limit, but sends only a few of its bytes."""
    client.sendall(((1 << 30) - 1).to_bytes(4, "big") + correlation + bytes(1000))
    time.sleep(2 * TIMEOUT_S)


def endless_tags(client: socket.socket, correlation: bytes) -> None:
    client.sendall(frame(correlation + b"\0\0\x01" + bytes(4) + b"\xff" * 200))


RESPONSES = [
    garbage,
    noise,
    short_frame,
    empty_frame,
    wrong_correlation,
    truncated,
    half_closed,
    silent,
    dripping,
    huge_count,
    huge_frame,
    endless_tags,
]

WITHOUT_RESPONSE = (silent, dripping, huge_frame)


def timeout_of(respond: Respond) -> float:
    """Returns the client's time limit for this server: short if the server never responds. Otherwise it is long,
    because even an immediate response may take seconds on a slow machine.
    """
    return TIMEOUT_S if respond in WITHOUT_RESPONSE else LIMIT_S


@contextlib.contextmanager
def hostile(respond: Respond) -> Iterator[str]:
    """Runs a server that breaks the protocol at the first request of each connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=talk, args=(client,), daemon=True).start()

    def talk(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            request = client.recv(1 << 16)
            respond(client, request[8:12])
            while client.recv(1 << 16):
                pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Checks that the body of the `with` statement ends in time and takes little memory."""
    tracemalloc.start()
    started_s = time.monotonic()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()
    assert time.monotonic() - started_s < LIMIT_S


@pytest.mark.parametrize("respond", RESPONSES)
def test_a_node_does_not_connect_to_a_server_that_breaks_the_protocol(respond: Respond) -> None:
    with hostile(respond) as address, bounded(), pytest.raises((ConnectionClosedError, TimeoutError)) as raised:
        kcore.connect(address, timeout=timeout_of(respond))
    assert str(raised.value)
    expected = TimeoutError if respond in WITHOUT_RESPONSE else ConnectionClosedError
    assert isinstance(raised.value, expected)


@pytest.mark.parametrize("respond", RESPONSES)
async def test_a_node_on_a_loop_does_not_connect_to_a_server_that_breaks_the_protocol(respond: Respond) -> None:
    with hostile(respond) as address, bounded(), pytest.raises((ConnectionClosedError, TimeoutError)):
        await kcore.connect_async(address, timeout=timeout_of(respond))


@pytest.mark.parametrize("respond", RESPONSES)
def test_the_connection_of_the_tools_fails_and_is_closed(respond: Respond) -> None:
    with hostile(respond) as address, bounded():
        host, port = address.split(":")
        connection = Connection(host, int(port), timeout_s=timeout_of(respond))
        with pytest.raises((ConnectionClosedError, TimeoutError)):
            connection.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        assert connection.closed


class Redirects:
    """Changes a broker's responses, so that each request to a coordinator is refused, or each look-up of a coordinator.

    Args:
        code: the error code.
        lookup: True to refuse FindCoordinator instead of the requests to the coordinator.
    """

    def __init__(self, code: ErrorCode, lookup: bool) -> None:
        self.code = code
        self.lookup = lookup
        self.count = 0

    def change(self, api: ApiKey, response: Any) -> None:
        if api is ApiKey.FIND_COORDINATOR:
            if self.lookup:
                self.count += 1
                response.coordinators[0].error_code = self.code
        elif not self.lookup:
            if api in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_FETCH):
                self.count += 1
                for each in getattr(response, "groups", None) or [response]:
                    each.error_code = self.code
            elif api is ApiKey.OFFSET_COMMIT:
                self.count += 1
                for topic in response.topics:
                    for row in topic.partitions:
                        row.error_code = self.code


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("lookup", [False, True], ids=["coordinator", "lookup"])
def test_endless_redirects_end_every_wait(bootstrap: str, name: str, lookup: bool, protocol: Any) -> None:
    """A broker always refuses to be the coordinator. Each call ends with an error at its time limit, and the client
    pauses between its retries.
    """
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if lookup else ErrorCode.NOT_COORDINATOR
    redirects = Redirects(code, lookup)
    kind = CoordinatorNotAvailableError if lookup else NotCoordinatorError
    with (
        RecordingProxy(bootstrap, on_response=redirects.change) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        node.topics.create(name, 1)
        node._calls.timeout_s = 2.0
        group = node.group(name)
        started_s = time.monotonic()
        with pytest.raises(kind):
            group.commit({(name, 0): 1})
        with pytest.raises(kind):
            group.committed()
        with pytest.raises(TimeoutError, match="has assigned no partitions to this member within 2 s"):
            group.join(name, protocol=protocol).start(timeout=2)
        with group.consume(name, protocol=protocol) as consumer:
            assert consumer.poll(1) == []
        elapsed_s = time.monotonic() - started_s
        assert elapsed_s < LIMIT_S
        assert redirects.count < 40 * elapsed_s
    assert redirects.count > 4


def test_a_response_without_the_partition_of_the_request_ends_the_wait(bootstrap: str, name: str) -> None:
    def drop(api: ApiKey, response: Any) -> None:
        if api is ApiKey.LIST_OFFSETS:
            response.topics = []

    with RecordingProxy(bootstrap, on_response=drop) as proxy, kcore.connect(proxy.bootstrap) as node:
        topic = node.topics.create(name, 1)
        with pytest.raises(MalformedResponseError, match=f"ListOffsets: the response lacks the offset of {name}-0"):
            topic.end_offsets()


def test_a_cluster_without_brokers_is_an_error(bootstrap: str, name: str) -> None:
    def drop(api: ApiKey, response: Any) -> None:
        if api is ApiKey.METADATA:
            response.brokers = []

    with RecordingProxy(bootstrap, on_response=drop) as proxy, kcore.connect(proxy.bootstrap) as node:
        node._calls.timeout_s = 1.0
        with pytest.raises(KafkaError):
            node.topics[name].append("x", partition=0)
