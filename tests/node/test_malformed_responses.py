"""Responses that can be decoded but not used: each operation ends in time, with an error that names its cause.

A proxy changes the responses of a real server: it omits or repeats rows, names other topics, and replaces numbers,
texts and bytes. It also truncates responses, and changes their lengths and correlation ids.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kcore
from kcore.errors import ConnectionClosedError, KafkaError, KcoreError, MalformedResponseError, PartitionErrors
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.schema import Struct
from kcore.testing import Broker
from kcore.testing.server import ServerProcess
from tests.node.conftest import SETTINGS
from tests.recording_proxy import RecordingProxy

LIMIT_S = 60.0
"""Time limit of an operation. Only an operation that never ends reaches it."""
CLEAR = (KafkaError, PartitionErrors, KcoreError, TimeoutError, ConnectionClosedError)
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 7, 32_000, 2**31 - 1, 2**63 - 1)
TEXTS = ("", "other", "x" * 1_000, "\u202e", None)


def change(random_: random.Random, message: Any) -> str | None:
    """Changes one field of a message, or of a struct in it. Returns the name of the field, or None if there is nothing
    to change.
    """
    names = [getattr(each, "name", each) for each in type(message).FIELDS]
    random_.shuffle(names)
    for name in names:
        value = getattr(message, name)
        if isinstance(value, (tuple, list)):
            if value and isinstance(value[0], Struct) and random_.random() < 0.65:
                found = change(random_, random_.choice(value))
                if found is not None:
                    return f"{name}.{found}"
            new: Any = random_.choice([(), tuple(value) * 2, tuple(reversed(value)), tuple(value)[:-1]])
        elif isinstance(value, Struct):
            found = change(random_, value)
            if found is not None:
                return f"{name}.{found}"
            continue
        elif isinstance(value, bool):
            new = not value
        elif isinstance(value, int):
            new = random_.choice(NUMBERS)
        elif isinstance(value, str):
            new = random_.choice(TEXTS)
        elif isinstance(value, bytes):
            new = random_.choice([b"", value[:-1], value + b"x", b"\xff" * len(value), value[: len(value) // 2], None])
        else:
            new = random_.choice([(), "x", b"x"])
        if new != value:
            setattr(message, name, new)
            return str(name)
    return None


class Hostile:
    """A response handler of the proxy, which changes responses.

    Args:
        random_: the random number generator that selects the changes.
        rate: the share of responses that are changed.
        only: the API whose responses are changed, or None for every API except ApiVersions.
    """

    def __init__(self, random_: random.Random, rate: float, only: ApiKey | None) -> None:
        self._random = random_
        self._rate = rate
        self._only = only
        self._lock = threading.Lock()
        self.changed: list[str] = []
        self.proxy: RecordingProxy | None = None

    def __call__(self, api: ApiKey, response: Any) -> None:
        with self._lock:
            if api is not self._only and (self._only is not None or api is ApiKey.API_VERSIONS):
                return
            if self._random.random() < self._rate:
                self._change(api, response)

    def _change(self, api: ApiKey, response: Any) -> None:
        assert self.proxy is not None
        version = next(each.version for each in reversed(self.proxy.requests) if each.api is api)
        for _ in range(5):
            copy = type(response).decode(response.encode(version), version, 0)
            name = change(self._random, copy)
            try:
                copy.encode(version)
            except Exception:
                continue  # no server can send such a message
            for field in type(response).FIELDS:
                setattr(response, getattr(field, "name", field), getattr(copy, getattr(field, "name", field)))
            self.changed.append(f"{api.name} {name}")
            return


def consume(node: kcore.Node, name: str, protocol: Any) -> None:
    with node.group(name).consume(name, protocol=protocol) as consumer:
        consumer.poll(0.3)
        consumer.commit()


def produce(node: kcore.Node, name: str) -> None:
    with node.producer() as producer:
        producer.append(name, "v")
        producer.flush()


def transact(node: kcore.Node, name: str) -> None:
    with node.transaction(name) as transaction:
        transaction.append(name, "v")


def work(node: kcore.Node, name: str) -> None:
    with node.queue(name, group=f"{name}-q") as queue:
        job = queue.get(0.3)
        if job is not None:
            job.accept()


OPERATIONS: dict[str, Callable[[kcore.Node, str], object]] = {
    "create": lambda node, name: node.topics.create(f"{name}-new", 2),
    "append": lambda node, name: node.topics[name].append("x", key="k"),
    "ends": lambda node, name: node.topics[name].end_offsets(),
    "at": lambda node, name: node.topics[name].offsets_at(1.0),
    "read": lambda node, name: node.topics[name].read(0, 0),
    "read batches": lambda node, name: node.topics[name].read_batches(0, 0),
    "describe": lambda node, name: (node.topics[name].describe(), node.topics.describe([name])),
    "config": lambda node, name: (node.topics[name].config(), node.topics[name].set_config({"retention.ms": 1_000})),
    "list": lambda node, name: (node.topics.list(), node.groups.list(), node.users.list()),
    "grow": lambda node, name: node.topics[name].grow(3),
    "commit": lambda node, name: node.group(name).commit({(name, 0): 1}),
    "committed": lambda node, name: (node.group(name).committed(), node.groups.committed([name])),
    "groups": lambda node, name: (node.group(name).describe(), node.groups.describe([name]), node.group(name).lag()),
    "classic": lambda node, name: consume(node, name, "classic"),
    "consumer": lambda node, name: consume(node, name, "consumer"),
    "producer": produce,
    "transaction": transact,
    "queue": work,
    "delete": lambda node, name: (node.group(name).delete(), node.topics[name].delete()),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ServerProcess(settings=SETTINGS) as process:
        yield process.bootstrap


def ends_in_time(operation: Callable[[], object]) -> Exception | None:
    """Runs an operation on a separate thread, which must end in time. Returns the operation's error."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            operation()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "the operation does not end"
    return errors[0] if errors else None


class Unclear(logging.Handler):
    """A log handler that collects unexpected exceptions: all that are not errors of the client API."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, CLEAR):
            self.found.append(f"{record.getMessage()}: {error!r}")


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.2, 1.0]),
    only=st.sampled_from([None, None, ApiKey.METADATA, ApiKey.FIND_COORDINATOR]),
)
def test_an_operation_ends_with_a_clear_error(
    server: str, name: str, seed: int, rate: float, only: ApiKey | None
) -> None:
    topic = f"t{uuid.uuid4().hex[:12]}"
    with kcore.connect(server) as node:
        node.topics.create(topic, 2)
    hostile = Hostile(random.Random(seed), rate, only)
    logs = Unclear()
    logging.getLogger("kcore").addHandler(logs)
    try:
        with RecordingProxy(server, on_response=hostile) as proxy:
            hostile.proxy = proxy

            def operate() -> None:
                with kcore.connect(proxy.bootstrap, timeout=0.3) as node:
                    node._calls.timeout_s = 0.3
                    OPERATIONS[name](node, topic)

            error = ends_in_time(operate)
    finally:
        logging.getLogger("kcore").removeHandler(logs)
    assert error is None or (isinstance(error, CLEAR) and str(error)), (hostile.changed, error)
    assert logs.found == []


def without(attribute: str) -> Callable[[ApiKey, Any], None]:
    def drop(api: ApiKey, response: Any) -> None:
        if hasattr(response, attribute) and api is not ApiKey.API_VERSIONS:
            setattr(response, attribute, ())

    return drop


@pytest.mark.parametrize(
    ("operation", "attribute", "api"),
    [
        ("append", "responses", "Produce"),
        ("describe", "topics", "Metadata"),
        ("commit", "coordinators", "FindCoordinator"),
        ("read", "responses", "Fetch"),
        ("delete", "results", "DeleteGroups"),
    ],
)
def test_the_error_names_the_broker_and_the_api(server: str, operation: str, attribute: str, api: str) -> None:
    topic = f"t{uuid.uuid4().hex[:12]}"
    with kcore.connect(server) as node:
        node.topics.create(topic, 2)
        node.group(topic).commit({(topic, 0): 0})
    with RecordingProxy(server, on_response=without(attribute)) as proxy, kcore.connect(proxy.bootstrap) as node:
        node._calls.timeout_s = 0.5
        with pytest.raises(MalformedResponseError) as raised:
            OPERATIONS[operation](node, topic)
        assert (raised.value.broker, raised.value.api) == (f"the broker at {proxy.bootstrap}", api)
        assert str(raised.value).startswith(
            f"UNKNOWN_SERVER_ERROR: the broker at {proxy.bootstrap} sent an invalid response to {api}: "
        )


def without_rows(requested: ApiKey, attribute: str) -> Callable[[ApiKey, Any], None]:
    def drop(api: ApiKey, response: Any) -> None:
        if api == requested:
            setattr(response, attribute, ())

    return drop


@pytest.mark.parametrize(
    ("api", "attribute", "call", "cause"),
    [
        (
            ApiKey.LIST_OFFSETS,
            "topics",
            lambda node: node.topics.end_offsets([("t", 0)]),
            "ListOffsets: the response lacks the offset of t-0",
        ),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            "transaction_states",
            lambda node: node.transactions.describe("tx"),
            "DescribeTransactions: the response lacks the transactional id 'tx'",
        ),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            "transaction_states",
            lambda node: node.transactions.terminate("tx"),
            "DescribeTransactions: the response lacks the transactional id 'tx'",
        ),
    ],
)
def test_the_error_names_the_row_that_a_response_lacks(
    api: ApiKey, attribute: str, call: Callable[[kcore.Node], object], cause: str
) -> None:
    """Before, `describe` left the id out, `terminate` raised a KeyError, and `end_offsets` did not name the broker."""
    with (
        Broker(topics={"t": 1}) as broker,
        RecordingProxy(broker.bootstrap, on_response=without_rows(api, attribute)) as proxy,
        kcore.connect(proxy.bootstrap) as node,
    ):
        with pytest.raises(MalformedResponseError) as raised:
            call(node)
        sent = f"UNKNOWN_SERVER_ERROR: the broker at {proxy.bootstrap} sent an invalid response to {cause}"
        assert str(raised.value) == sent


def test_a_consumer_continues_after_responses_that_cannot_be_used(server: str) -> None:
    """The consumer's threads do not end. A poll raises the error, and later polls return the records."""
    topic = f"t{uuid.uuid4().hex[:12]}"
    broken = {ApiKey.OFFSET_FETCH: "groups", ApiKey.FETCH: "responses", ApiKey.JOIN_GROUP: "members"}
    left = dict.fromkeys(broken, 2)

    def damage(api: ApiKey, response: Any) -> None:
        if left.get(api):
            left[api] -= 1
            if api is ApiKey.JOIN_GROUP:
                for member in response.members:
                    member.metadata = b"\xff"
            elif api is ApiKey.FETCH:
                for topic_ in response.responses:
                    for row in topic_.partitions:
                        row.records = b"\xff" * 80
            else:
                setattr(response, broken[api], ())

    with kcore.connect(server) as node:
        node.topics.create(topic, 1)
        node.topics[topic].append("x")
    errors: list[Exception] = []
    with RecordingProxy(server, on_response=damage) as proxy, kcore.connect(proxy.bootstrap) as node:
        group = node.group(topic)
        with group.consume(topic, protocol="classic", reset="earliest") as consumer:
            records: list[Any] = []
            for _ in range(100):
                try:
                    records += consumer.poll(1.0)
                except KafkaError as error:
                    errors.append(error)
                if records:
                    break
    assert [record.value for record in records] == [b"x"]
    kinds = [type(error).__name__ for error in errors]
    assert kinds
    assert set(kinds) <= {"MalformedResponseError", "CorruptMessageError"}


# ---- frames


class Frames:
    """A proxy that replaces the frames of a server's responses.

    Args:
        bootstrap: the address of the server.
        respond: returns the bytes that the client receives in place of a frame.
    """

    def __init__(self, bootstrap: str, respond: Callable[[bytes], bytes]) -> None:
        self._target = bootstrap
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        host, port = self._target.split(":")
        with client, socket.create_connection((host, int(port))) as target:
            try:
                while (request := frame(client)) is not None:
                    target.sendall(len(request).to_bytes(4, "big") + request)
                    response = frame(target)
                    if response is None:
                        return
                    client.sendall(self._respond(len(response).to_bytes(4, "big") + response))
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


def frame(source: socket.socket) -> bytes | None:
    size = exactly(source, 4)
    return None if size is None else exactly(source, int.from_bytes(size, "big"))


def exactly(source: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            return None
        data += part
    return data


@settings(max_examples=30)
@given(data=st.data())
def test_damaged_frames_end_the_connection_with_a_clear_error(server: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["cut", "size", "correlation", "byte", "insert"]))
    at = data.draw(st.integers(0, 400))
    value = data.draw(st.integers(0, 255))

    def damaged(response: bytes) -> bytes:
        position = at % len(response)
        if kind == "cut":  # the length of the frame is that of the cut response
            body = response[4:][: max(position - 4, 0)]
            return len(body).to_bytes(4, "big") + body
        if kind == "size":
            return bytes([value]) + response[1:]
        if kind == "correlation":
            return response[:4] + bytes([value, 1, 2, 3]) + response[8:]
        if kind == "byte":
            return response[:position] + bytes([value]) + response[position + 1 :]
        return response[:position] + bytes([value]) * 9 + response[position:]

    frames = Frames(server, damaged)

    def operate() -> None:
        with kcore.connect(frames.bootstrap, timeout=0.3) as node:
            node._calls.timeout_s = 0.3
            node.topics.list()

    try:
        error = ends_in_time(operate)
        assert error is None or (isinstance(error, CLEAR) and str(error)), (kind, at, value, error)
    finally:
        frames.close()


@pytest.mark.parametrize("size", [2, 6, 20])
def test_the_error_of_a_truncated_response_names_broker_api_and_version(server: str, size: int) -> None:
    def truncated(response: bytes) -> bytes:
        body = response[4:][: 4 + size]
        return len(body).to_bytes(4, "big") + body

    frames = Frames(server, truncated)
    with pytest.raises(ConnectionClosedError, match=r"127.0.0.1:\d+: malformed response to ApiVersions in version 3: "):
        kcore.connect(frames.bootstrap)
    frames.close()
