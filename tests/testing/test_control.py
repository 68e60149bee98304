"""The HTTP controls of a test broker: `kcore serve --control`."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import confluent_kafka
import pytest

from kcore.config.node import Config
from kcore.errors import ConfigError
from kcore.testing import Broker
from kcore.testing.control.control import Control
from kcore.testing.control.fields import check_object
from kcore.testing.control.openapi import PARAMETER, description, operation_id, text
from kcore.testing.control.operations import OPERATIONS
from kcore.testing.control.serve import broker_for
from kcore.testing.control.server import MAX_BODY, ControlServer
from tests.testing.clients import confluent_consumer, confluent_producer, fill, poll

Call = Callable[..., tuple[int, Any]]
DESCRIPTION = Path(__file__).parents[2] / "docs" / "control.openapi.json"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=["jobs"]) as broker:
        yield broker


@pytest.fixture
def server(broker: Broker) -> Iterator[ControlServer]:
    with ControlServer(Control(broker), "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def call(server: ControlServer) -> Call:
    """Returns a function that sends a request to the control server and checks the format of the response."""
    return caller(server.url)


def caller(url: str) -> Call:
    def send(method: str, path: str, /, **body: Any) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body else None)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        found = json.loads(content) if content else None
        if response.status >= 400:
            assert set(found) == {"error", "message"}, found
        else:
            _check_described(method, path, response.status, found)
        return response.status, found

    return send


def _check_described(method: str, path: str, status: int, found: Any) -> None:
    matching = [
        operation
        for operation in OPERATIONS
        if operation.method == method and re.fullmatch(PARAMETER.sub("[^/]+", operation.path), path)
    ]
    operation = min(matching, key=lambda operation: operation.path.count("{"))
    if operation.response:
        assert status == operation.status
        check_object(operation.response, found)
    else:
        assert (status, found) == (204, None)


def raw(server: ControlServer, data: bytes) -> tuple[int, bytes]:
    """Sends bytes. Returns the status and the body of the response."""
    host, port = server.server_address[:2]
    with socket.create_connection((str(host), int(port)), timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


# ---- faults that a real client meets


def test_a_client_sees_an_injected_error_and_its_commit_succeeds_later(broker: Broker, call: Call) -> None:
    fill(broker, "jobs", 1)
    fault = {"action": "fail", "api": "OffsetCommit", "error": "UNKNOWN_SERVER_ERROR", "group": "g"}
    status, injected = call("POST", "/faults", **fault)
    assert (status, injected["id"], injected["applied"]) == (201, 1, 0)
    consumer = confluent_consumer(broker)
    consumer.subscribe(["jobs"])
    (record,) = poll(consumer, 1)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        consumer.commit(message=record, asynchronous=False)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN
    assert call("GET", "/faults/1")[1] == {
        "id": 1,
        "action": "fail",
        "apis": ["OffsetCommit"],
        "description": "injected: fail OffsetCommit with UNKNOWN_SERVER_ERROR (group g)",
        "seen": 1,
        "applied": 1,
        "exhausted": True,
    }
    consumer.commit(message=record, asynchronous=False)
    offsets = [{"topic": "jobs", "partition": 0, "offset": 1}]
    assert call("POST", "/groups/g/assert-committed", offsets=offsets) == (204, None)
    assert call("GET", "/groups/g")[1]["offsets"] == offsets
    offsets[0]["offset"] = 2
    status, failed = call("POST", "/groups/g/assert-committed", offsets=offsets)
    assert (status, failed["error"]) == (409, "assertion_failed")
    assert failed["message"].startswith("offsets of group g: jobs-0: expected 2, committed 1\n\nhistory of group g\n")
    consumer.close()


def test_a_held_request_waits_for_its_release(broker: Broker, call: Call) -> None:
    assert call("POST", "/faults", action="hold", api=["Produce"], client_id="p")[0] == 201
    producer = confluent_producer(broker, client_id="p")
    producer.produce("jobs", b"work")
    assert call("POST", "/held/wait")[1] == {"held": [{"api": "Produce", "client_id": "p", "groups": []}]}
    assert call("POST", "/assert-at-rest")[0] == 409
    assert call("POST", "/held/release", client_id="other", keep_holding=True)[1] == {"released": 0}
    assert call("POST", "/held/release")[1] == {"released": 1}
    assert producer.flush(10) == 0
    assert call("POST", "/assert-at-rest")[0] == 204
    assert call("POST", "/faults/1/wait", applied=1)[1]["applied"] == 1


def test_an_expired_member_is_in_the_history(broker: Broker, call: Call) -> None:
    consumer = confluent_consumer(broker, client_id="worker")
    consumer.subscribe(["jobs"])
    fill(broker, "jobs", 1)
    poll(consumer, 1)
    status, group = call("POST", "/groups/g/wait", state="Stable", members=1)
    assert (status, group["kind"], [each["client_id"] for each in group["members"]]) == (200, "classic", ["worker"])
    assert group["members"][0]["partitions"] == [{"topic": "jobs", "partition": 0}]
    assert call("POST", "/groups/g/expire", client_id="worker") == (204, None)
    _, history = call("GET", "/groups/g/history")
    (left,) = [event for event in history["events"] if event["kind"] == "left"]
    assert left["cause"] == f"test: expire({group['members'][0]['member_id']})"
    assert history["table"] == broker.history("g").table()
    assert call("GET", "/groups")[1] == {"groups": ["g"]}
    consumer.close()


def test_records_that_are_processed_twice_or_skipped_fail_an_assertion(broker: Broker, call: Call) -> None:
    fill(broker, "jobs", 2)
    consumer = confluent_consumer(broker)
    consumer.subscribe(["jobs"])
    consumer.commit(message=poll(consumer, 2)[1], asynchronous=False)
    consumer.close()
    first, second = ({"topic": "jobs", "partition": 0, "offset": offset} for offset in (0, 1))
    assert call("POST", "/groups/g/assert-no-double-processing", records=[first, second]) == (204, None)
    assert call("POST", "/groups/g/assert-nothing-skipped", records=[first, second]) == (204, None)
    assert call("POST", "/groups/g/assert-no-double-processing", records=[first, first])[0] == 409
    assert call("POST", "/groups/g/assert-nothing-skipped", records=[second])[0] == 409


def test_a_script_and_random_faults_are_listed_and_removed(broker: Broker, call: Call) -> None:
    faults = [{"action": "fail", "api": "Produce", "error": 6}, {"action": "disconnect", "api": "Produce"}]
    status, script = call("POST", "/faults/script", faults=faults)
    assert (status, [each["id"] for each in script["faults"]]) == (201, [1, 2])
    assert call("GET", "/faults")[1] == script
    assert call("GET", "/faults/random")[0] == 404
    assert call("POST", "/faults/random", seed=7, probability=0.5) == (201, {"seed": 7, "injected": []})
    producer = confluent_producer(broker)
    producer.produce("jobs", b"work")
    assert producer.flush(20) == 0
    assert call("DELETE", "/faults/1") == (204, None)
    assert [each["id"] for each in call("GET", "/faults")[1]["faults"]] == [2]
    assert call("DELETE", "/faults") == (204, None)
    assert call("GET", "/faults")[1] == {"faults": []}
    assert call("GET", "/faults/random")[0] == 404
    assert broker.active_faults == []


def test_a_power_failure_loses_records_and_keeps_the_address(broker: Broker, call: Call) -> None:
    fill(broker, "jobs", 2)
    address = call("GET", "/broker")[1]["bootstrap"]
    assert call("POST", "/disk/stop-syncing") == (204, None)
    fill(broker, "jobs", 3)
    assert call("POST", "/broker/restart", how="power") == (204, None)
    assert call("GET", "/broker")[1] == {"bootstrap": address, "connections": 0}
    consumer = confluent_consumer(broker)
    high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("jobs", 0), timeout=10)[1]
    assert high == 2
    consumer.close()


def test_the_clock_advances_freezes_and_steps(broker: Broker, call: Call) -> None:
    frozen = call("POST", "/clock/freeze")[1]
    assert frozen["frozen"]
    assert call("POST", "/clock/advance", seconds=45)[1] == {"now": frozen["now"] + 45, "frozen": True}
    assert call("POST", "/clock/step-wall", seconds=-3600)[1] == {"now": frozen["now"] - 3555, "frozen": True}
    assert call("GET", "/clock")[1] == {"now": frozen["now"] - 3555, "frozen": True}
    assert call("POST", "/clock/resume")[1]["frozen"] is False


def test_every_other_control_reaches_the_broker(broker: Broker, call: Call) -> None:
    for path in ("/disk/fill", "/disk/free", "/disk/sync", "/connections/disconnect", "/connections/accept"):
        assert call("POST", path) == (204, None)
    assert call("POST", "/topics", name="more", partitions=3) == (204, None)
    assert broker.call(lambda engine: engine.topics.by_name("more")).partitions == 3  # type: ignore[union-attr]
    assert call("POST", "/topics", name="more", partitions=3) == (204, None)
    assert call("POST", "/connections/refuse", close=False) == (204, None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(broker.bootstrap.rpartition(":")[2])))
    assert call("POST", "/connections/accept") == (204, None)
    assert call("POST", "/producers/t/fence") == (204, None)
    group = f"/groups/{quote('a/b ü', safe='')}"
    for action in ("unload", "load", "move"):
        assert call("POST", f"{group}/{action}-coordinator") == (204, None)
    assert call("GET", group)[1]["group_id"] == "a/b ü"
    assert call("POST", f"{group}/unload-coordinator") == (204, None)
    assert call("GET", group)[1]["error"] == "NOT_COORDINATOR"
    assert call("POST", f"{group}/rebalance")[0] == 404


# ---- hostile and mistaken requests


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"action": "fail", "api": "Nope", "error": "NOT_COORDINATOR"}, "'Nope' is not an API of Kafka"),
        ({"action": "fail", "api": ["Fetch", "Nope"], "error": 3}, "'Nope' is not an API of Kafka"),
        ({"action": "fail", "api": [], "error": 3}, "api is empty"),
        ({"action": "fail", "api": [3], "error": 3}, "api[0] must be of type string"),
        ({"action": "fail", "api": "Fetch", "error": "NOPE"}, "'NOPE' is not an error of Kafka"),
        ({"action": "fail", "api": "Fetch", "error": True}, "error must be of type string or integer"),
        ({"action": "fail", "api": "Fetch"}, "action 'fail' needs the field 'error'"),
        ({"action": "hold", "api": "Fetch", "seconds": 1}, "action 'hold' has no field 'seconds'"),
        ({"action": "explode", "api": "Fetch"}, "action='explode': valid are fail, delay"),
        ({"action": "delay", "api": "Fetch", "seconds": 1e9}, "seconds=1000000000.0: the maximum is"),
        ({"action": "hold", "api": "Fetch", "times": 0}, "times=0: the minimum is 1"),
        ({"action": "hold", "api": "Fetch", "where": "x"}, "'where' is not a field of this request"),
        ({"action": "hold", "api": "Fetch", "group": "\ud800"}, "group has half a surrogate pair"),
        ({"action": "hold", "api": "Fetch", "group": "g" * 40_000}, "group has 40000 characters"),
        ({"action": "hold"}, "api is missing: "),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(body: dict[str, Any], message: str, call: Call, broker: Broker) -> None:
    status, found = call("POST", "/faults", **body)
    assert (status, found["error"]) == (400, "bad_request")
    assert found["message"].startswith(message)
    assert broker.active_faults == []


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"1", b"null", b'"x"', b"\xff", b"{'a': 1}", b'{"seconds": NaN}', b'{"seconds": 1e999}'),
        *(b'{"seconds": Infinity}', b'{"seconds": -1}', b'{"seconds": "1"}', b"[" * 100_000, b'{"a":' * 50_000),
        b'{"seconds": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_body_that_is_no_valid_object_is_refused(body: bytes, server: ControlServer) -> None:
    head = b"POST /clock/advance HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    status, found = raw(server, head + body)
    assert (status, json.loads(found)["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\n\r\n", 404),
        (b"GET /groups/%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /broker HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /broker HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /broker HTTP/3.0\r\n\r\n", 505),
        (b"PATCH /broker HTTP/1.1\r\n\r\n", 405),
        (b"DELETE /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"POST /faults HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}", 400),
        (b"POST /faults HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST /faults HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1) + b" " * (MAX_BODY + 1), 413),
        (b"POST /faults HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /disk/fill HTTP/1.1\r\nOrigin: http://example.com\r\n\r\n", 403),
        (b"POST /disk/fill HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 403),
        (b"GET /faults/" + b"9" * 5_000 + b" HTTP/1.1\r\n\r\n", 404),
        (b"GET /faults/x HTTP/1.1\r\n\r\n", 404),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else str(value),
)
def test_malformed_requests_get_a_status_and_json(request_: bytes, status: int, server: ControlServer) -> None:
    found, body = raw(server, request_)
    assert found == status
    assert set(json.loads(body)) == {"error", "message"}
    assert caller(server.url)("GET", "/broker")[0] == 200


def test_a_client_that_goes_on_sending_reads_the_response_to_its_refused_request(server: ControlServer) -> None:
    host, port = server.server_address[:2]
    with socket.create_connection((str(host), int(port)), timeout=30) as connection:
        connection.sendall(b"GET /" + b"x" * 100_000)
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 414"
        for _ in range(4):
            connection.sendall(b"x" * 100_000)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            head, _, body = stream.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 414 ")
    assert set(json.loads(body)) == {"error", "message"}


def test_unknown_apis_of_random_faults_leave_the_broker_unchanged(call: Call) -> None:
    assert call("POST", "/faults/random", apis=["Nope"])[0] == 400
    assert call("POST", "/faults", action="hold", api="Fetch")[0] == 201


def test_a_condition_that_stays_false_gets_409(call: Call) -> None:
    status, found = call("POST", "/groups/g/wait", state="Stable", timeout=0)
    assert (status, found["error"]) == (409, "assertion_failed")
    assert found["message"].startswith("'group g has state=Stable' is still false after 0 s")


def test_the_error_of_an_array_names_the_fields_of_its_elements(call: Call) -> None:
    status, found = call("POST", "/groups/g/assert-committed", offsets={"jobs-0": 5})
    message = "offsets must be of type array of objects with topic, partition, offset"
    assert (status, found["message"]) == (400, message)


def test_missing_members_and_groups_get_404(call: Call) -> None:
    assert call("POST", "/groups/g/expire", member_id="m")[0] == 404
    assert call("POST", "/groups/g/fence", client_id="c")[0] == 404
    assert call("POST", "/groups/g/fence")[0] == 400
    assert call("POST", "/groups/g/expire", member_id="m", client_id="c")[0] == 400


# ---- the description, and the command


def test_the_description_is_served_and_checked_in(server: ControlServer) -> None:
    status, body = raw(server, b"GET /openapi.json HTTP/1.0\r\n\r\n")
    assert (status, body.decode()) == (200, text())
    assert DESCRIPTION.read_text(encoding="utf-8") == text()
    found = description()
    assert found["openapi"] == "3.1.0"
    assert sum(len(each) for each in found["paths"].values()) == len(OPERATIONS)
    assert len({operation_id(operation) for operation in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.168.0.1:0", "example.com:0", ":0", "[::]:0"])
def test_addresses_that_other_machines_reach_are_refused(address: str, broker: Broker) -> None:
    with pytest.raises(ConfigError, match="only loopback addresses are valid"):
        ControlServer(Control(broker), address)


def test_a_data_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kcore\.data\.dir cannot be combined with --control"):
        broker_for(Config.of({"kcore.data.dir": "/nowhere"}))


def test_all_listeners_keep_their_addresses() -> None:
    """The operating system has selected the ports of the listeners. A restart keeps them, and so does a time in which
    the broker refuses connections.
    """
    config = Config.of({"listeners": "A://127.0.0.2:0,B://127.0.0.1:0", "group.max.size": "7"})
    config.set("listener.security.protocol.map", "A:PLAINTEXT,B:PLAINTEXT", "-c")
    with broker_for(config) as broker:
        before = broker.addresses
        assert list(before) == ["A", "B"]
        assert broker.bootstrap == f"127.0.0.2:{before['A'][1]}"
        assert broker.node.config.group_max_size == 7
        broker.restart(kill=True)
        assert broker.addresses == before
        broker.refuse_connections()
        broker.accept_connections()
        assert broker.addresses == before
        for address in before.values():
            socket.create_connection(address).close()


def test_the_command_serves_both_and_ends_cleanly() -> None:
    command = [sys.executable, "-m", "kcore", "serve", "--listen", "127.0.0.1:0", "--control"]
    options = ["-c", "group.max.size=7"]
    with subprocess.Popen([*command, "127.0.0.1:0", *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        control = process.stdout.readline()
        listening = process.stdout.readline()
        try:
            call = caller(control.removeprefix("kcore: control at ").strip())
            bootstrap = listening.removeprefix("kcore: PLAINTEXT listening on ").strip()
            assert call("GET", "/broker")[1]["bootstrap"] == bootstrap
            assert call("POST", "/topics", name="jobs") == (204, None)
            assert call("POST", "/broker/restart", how="kill") == (204, None)
            assert call("GET", "/broker")[1]["bootstrap"] == bootstrap
            consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
            assert set(consumer.list_topics(timeout=20).topics) >= {"jobs"}
            consumer.close()
        finally:
            process.terminate()
        assert process.wait(30) == 0
    refused = subprocess.run([*command, "0.0.0.0:0"], capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("kcore: --control 0.0.0.0:0: only loopback addresses are valid")
