"""The control server with hostile clients: random requests, many connections, slow connections, and internal
failures.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kcore.testing import Broker
from kcore.testing.control import operations, server
from kcore.testing.control.control import Control
from kcore.testing.control.fields import Field, check_object
from kcore.testing.control.openapi import PARAMETER
from kcore.testing.control.operations import OPERATIONS, Operation
from kcore.testing.control.server import MAX_CONNECTIONS, ControlServer
from tests.kit import wait_until

LIMITED = ("timeout", "seconds")  # fields that set the duration of the request


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=["jobs"]) as broker:
        yield broker


@pytest.fixture
def control(broker: Broker) -> Iterator[ControlServer]:
    with ControlServer(Control(broker), "127.0.0.1:0") as control:
        yield control


def connect(control: ControlServer) -> socket.socket:
    host, port = control.server_address[:2]
    return socket.create_connection((str(host), int(port)), timeout=30)


def send(control: ControlServer, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(control.url).netloc, timeout=10)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    return response.status, json.loads(content) if content else None


# ---- random requests

NAMES = st.sampled_from(["g", "jobs", "", "ü/?#", "a" * 300])
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def _value(field: Field) -> st.SearchStrategy[Any]:
    """Returns a strategy for valid values of a field, including the limits of its range."""
    low = -1 if field.minimum is None else field.minimum
    high = 3 if field.maximum is None else field.maximum
    if field.name in LIMITED:
        high = 0.01
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "string": st.sampled_from(field.enum) if field.enum else NAMES,
        "integer": st.sampled_from([low, low + 1, min(high, 2), high]).map(int),
        "number": st.floats(low, high),
        "boolean": st.booleans(),
        "array": st.lists(NAMES if isinstance(field.items, str) else _object(field.items), max_size=3),
        "object": st.just({}),
    }
    if field.name == "api":
        return st.sampled_from(["Fetch", ["Produce", "Heartbeat"], "*", [], "Nope"])
    if field.name == "partitions":
        return st.integers(1, 3)
    valid = st.one_of(*(strategies[each] for each in field.types))
    return valid | st.none() if field.nullable else valid


def _object(fields: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: _value(field) for field in fields if field.required or field.name == "timeout"}
    optional = {field.name: _value(field) for field in fields if field.name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def _body(operation: Operation) -> st.SearchStrategy[Any]:
    """Returns a strategy for bodies of an operation: valid bodies, bodies with a single wrong value, and arbitrary
    ones.
    """
    if not operation.body:
        return st.just({}) | ANYTHING
    valid = _object(operation.body)
    names = [field.name for field in operation.body if field.name not in LIMITED]
    if len(names) < len(operation.body):
        return valid
    spoilt = st.builds(lambda body, name, value: {**body, name: value}, valid, st.sampled_from(names), ANYTHING)
    return valid | spoilt | ANYTHING


REQUESTS = st.sampled_from(OPERATIONS).flatmap(
    lambda operation: st.tuples(
        st.just(operation),
        st.lists(NAMES | st.sampled_from(["1", "2", "99", "-1", "%"]), min_size=2, max_size=2),
        _body(operation),
    )
)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(REQUESTS, min_size=1, max_size=6))
def test_every_request_gets_a_described_response_and_the_broker_survives(
    control: ControlServer, requests: list[tuple[Operation, list[str], Any]]
) -> None:
    for operation, names, body in requests:
        words = iter(names)
        path = PARAMETER.sub(lambda _: quote(next(words), safe="") or "x", operation.path)  # noqa: B023
        status, found = send(control, operation.method, path, body)
        if status < 300:
            assert status == (operation.status if operation.response else 204)
            assert found is None or check_object(operation.response, found) is found
        else:
            assert status in {400, 404, 409}, (operation.path, body, status, found)
            assert set(found) == {"error", "message"}
    with contextlib.suppress(OSError):
        send(control, "POST", "/clock/resume")
    for path in ("/disk/free", "/disk/sync", "/connections/accept", "/groups/g/load-coordinator"):
        assert send(control, "POST", path) == (204, None)
    assert send(control, "DELETE", "/faults") == (204, None)
    status, found = send(control, "GET", "/broker")
    assert (status, set(found)) == (200, {"bootstrap", "connections"})


# ---- failures inside


def test_a_programming_error_gets_500(control: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("a mistake in kcore")

    changed = tuple(replace(each, run=fail) if each.path == "/broker" else each for each in operations.OPERATIONS)
    monkeypatch.setattr(server, "OPERATIONS", changed)
    assert send(control, "GET", "/broker") == (500, {"error": "internal_error", "message": "a mistake in kcore"})
    assert send(control, "GET", "/clock")[0] == 200


def test_a_group_that_cannot_be_moved_gets_409(control: ControlServer, broker: Broker) -> None:
    with broker.node.queue("jobs", group="shared") as queue:
        queue.take(max_wait=0.01) if hasattr(queue, "take") else None
        broker.wait_for(lambda b: "shared" in b.groups.ids())
        status, found = send(control, "POST", "/groups/shared/rebalance")
    assert (status, found["error"]) == (409, "conflict")
    assert found["message"] == "group shared is a share group: rebalance() supports only classic and consumer groups"


# ---- addresses and connections


def test_ipv6_loopback_addresses_are_served(broker: Broker) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    with ControlServer(Control(broker), "[::1]:0") as control:
        assert re.fullmatch(r"http://\[::1\]:\d+", control.url)
        assert send(control, "GET", "/broker")[0] == 200
        with connect(control) as connection:
            connection.sendall(b"GET /broker HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_connections_beyond_the_limit_get_503_and_closed_ones_make_room(control: ControlServer) -> None:
    connections = [connect(control) for _ in range(MAX_CONNECTIONS)]
    for connection in connections:
        connection.sendall(b"GET /clock HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200 ")
    with connect(control) as refused, refused.makefile("rb") as stream:
        head, _, body = stream.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert json.loads(body)["error"] == "service_unavailable"
    for connection in connections:
        connection.close()

    def accepted() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return send(control, "GET", "/clock")[0] == 200
        return False

    wait_until(accepted, "the server accepts a connection again")


@pytest.mark.parametrize("begin", [b"GET /bro", b"POST /topics HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"])
def test_a_request_that_comes_too_slowly_ends(
    begin: bytes, control: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    with connect(control) as connection:
        connection.sendall(begin)
        connection.settimeout(0.02)
        received = []
        for _ in range(500):  # an occasional byte does not keep a connection open
            with contextlib.suppress(TimeoutError):
                received.append(connection.recv(10_000))
                if not received[-1]:
                    break
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
        assert received[-1:] == [b""]
    assert begin.startswith(b"GET") or b"".join(received).startswith(b"HTTP/1.1 408 ")
    assert send(control, "GET", "/clock")[0] == 200


def test_the_end_of_the_server_ends_its_connections(broker: Broker) -> None:
    before = threading.active_count()
    with ControlServer(Control(broker), "127.0.0.1:0") as control:
        idle = connect(control)
        used = connect(control)
        used.sendall(b"GET /clock HTTP/1.1\r\n\r\n")
        assert used.recv(10_000).startswith(b"HTTP/1.1 200 ")
    assert idle.recv(1) == b""
    while used.recv(10_000):  # the rest of the response; a connection that is not ended raises TimeoutError
        pass
    idle.close()
    used.close()
    wait_until(lambda: threading.active_count() <= before, "the threads of the connections end")


def test_ten_thousand_faults_are_injected_soon_and_removed(control: ControlServer, broker: Broker) -> None:
    fault = {"action": "hold", "api": ["JoinGroup"], "group": "g"}
    status, found = send(control, "POST", "/faults/script", {"faults": [{**fault, "times": 1}] * 9_000})
    assert (status, len(found["faults"])) == (201, 9_000)
    for _ in range(100):
        broker.hold("Fetch", times=1)
    assert send(control, "POST", "/faults/script", {"faults": [fault] * 2_000})[0] == 409
    assert send(control, "DELETE", "/faults") == (204, None)
    assert broker.active_faults == []
