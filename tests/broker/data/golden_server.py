"""Runner of the golden scenarios in one process and in virtual time, with a `DataPlane` as the server.

The client side uses the codec of the recordings, the server side kcore's. This module replaces what the data plane does
not have (topics, producer ids, the transaction coordinator) by direct calls.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from kcore.errors import CloseConnectionError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Pending
from tests.broker.data.context import DataPlane

GOLDEN = Path(__file__).parents[2] / "golden"
ROUND_MS = 10


def load_golden() -> tuple[ModuleType, ModuleType]:
    """Imports the script vocabulary and codec of the recordings (`golden`, `kwire`)."""
    if str(GOLDEN) not in sys.path:
        sys.path.append(str(GOLDEN))
    import golden
    import kwire

    return golden, kwire


golden, kwire = load_golden()


class Coordinator:
    """A transaction coordinator that confirms every request and adds partitions at once."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.writes: dict[str, set[tuple[str, int]]] = {}

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Any, add: bool, done: Any
    ) -> None:
        if add:
            self.writes.setdefault(transactional_id, set()).update(partitions)
        known = self.writes.get(transactional_id, set())
        done({p: ErrorCode.NONE if p in known else ErrorCode.INVALID_TXN_STATE for p in partitions})


class Connection:
    """Counterpart of `kwire.Connection` without a socket. It serves one request at a time, as in Kafka."""

    def __init__(self, server: Server, client_id: str) -> None:
        self.server = server
        self.client_id = client_id
        self.queue: list[Request] = []
        self.closed = False

    def send(self, api: str, version: int, body: dict[str, Any]) -> Request:
        request = Request(self, api, version, kwire.encode(api + "Request", version, body))
        self.queue.append(request)
        self.serve()
        return request

    def serve(self) -> None:
        """Serves the requests in order, up to one that is parked."""
        for request in self.queue:
            if self.closed:
                break
            if not request.served:
                request.serve()
            if request.parked:
                break
        self.queue = [request for request in self.queue if not request.arrived]

    def call(self, api: str, version: int, body: dict[str, Any], timeout_s: float = 15.0) -> dict[str, Any]:
        return self.send(api, version, body).result(timeout_s)

    def close(self) -> None:
        self.closed = True


class Request:
    """A sent request and its response."""

    def __init__(self, connection: Connection, api: str, version: int, body: bytes) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.body = body
        self.served = False
        self.answer: Any = None
        self.frame: bytes | None = None

    @property
    def parked(self) -> bool:
        return isinstance(self.answer, Pending) and not self.answer.done and self.answer.parked

    @property
    def arrived(self) -> bool:
        if self.served and self.frame is None:
            response = self.answer.response if isinstance(self.answer, Pending) else self.answer
            if response is not None:
                self.frame = response if isinstance(response, bytes) else response.encode(self.version)
        return self.frame is not None

    def serve(self) -> None:
        self.served = True
        try:
            self.answer = self.connection.server.handle(self)
        except CloseConnectionError:
            self.connection.close()

    def result(self, timeout_s: float = 15.0) -> dict[str, Any]:
        server = self.connection.server
        for _ in range(int(timeout_s * 1000) // ROUND_MS + 1):
            server.plane.commit()
            server.serve_all()
            if self.arrived:
                assert self.frame is not None
                return kwire.decode(self.api + "Response", self.version, self.frame)
            if self.connection.closed:
                raise ConnectionError("closed by the server")
            server.plane.advance(ROUND_MS)
        raise TimeoutError(self.api)


class Server:
    """The node that serves the scenarios."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.plane = DataPlane(wall_ms=int(time.time() * 1000), verifier=self.coordinator)
        self.connections: list[Connection] = []
        self.producer_ids = iter(range(1000, 10**9))
        self.kinds = {
            api.request_type.__name__: api.request_type  # type: ignore[attr-defined]
            for api in self.plane.apis.values()
        }

    def connect(self, client_id: str) -> Connection:
        connection = Connection(self, client_id)
        self.connections.append(connection)
        return connection

    def serve_all(self) -> None:
        for connection in self.connections:
            connection.serve()
        self.plane.commit()

    def handle(self, request: Request) -> Any:
        kind = self.kinds.get(request.api + "Request")
        if kind is not None:
            message = kind.decode(request.body, request.version)
            return self.plane.send(message, request.version, request.connection.client_id)
        body = kwire.decode(request.api + "Request", request.version, request.body)
        response = getattr(self, "answer_" + request.api)(body)
        return kwire.encode(request.api + "Response", request.version, response)

    # ---- stand-ins for the control plane and the transaction coordinator

    def answer_ApiVersions(self, body: dict[str, Any]) -> dict[str, Any]:
        return {}

    def answer_Metadata(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body["topics"][0]["name"]
        epoch = self.plane.partition(name).leader_epoch
        return {"topics": [{"name": name, "partitions": [{"partition_index": 0, "leader_epoch": epoch}]}]}

    def answer_InitProducerId(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"producer_id": next(self.producer_ids), "producer_epoch": 0}

    def answer_EndTxn(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ends a transaction of transaction.version 2: the markers carry the producer's next epoch."""
        producer_id, epoch = body["producer_id"], body["producer_epoch"] + 1
        for topic, index in sorted(self.coordinator.writes.pop(body["transactional_id"], set())):
            partition = self.plane.partition(topic, index)
            partition.append_marker(producer_id, epoch, 0, body["committed"], self.plane.now.wall_ms, 2)
        self.plane.commit()
        return {"producer_id": producer_id, "producer_epoch": epoch}


class Trace(golden.Trace):  # type: ignore[misc]
    """A scenario's `t`, on a server in this process."""

    def __init__(self, server: Server) -> None:
        super().__init__(("in-process", 0))
        self.server = server

    def connect(self, label: str, client_id: str | None = None) -> Any:
        self.connections[label] = self.server.connect(client_id or label)
        return golden.Client(self, label)

    def sleep(self, ms: int) -> None:
        self.server.plane.advance(ms)

    def topic(self, base: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = str(self.name(base))
        settings = {key: int(value) if value.isdigit() else value for key, value in (configs or {}).items()}
        topic = self.server.plane.topic(name, partitions)
        self.server.plane.settings[name] = settings
        self.server.plane.partitions.on_config_changed(2, name)
        self.topic_ids[name] = topic.topic_id.hex()
        self.symbols["uuid", topic.topic_id.hex()] = f"<topic {base}>"
        return name

    def coordinator(self, key: str, key_type: int = 0) -> None:
        pass


def scenarios(area: str) -> dict[str, Any]:
    """Returns the scenarios of an area by name."""
    return {name.split("/")[1]: function for name, function in golden.scenarios(GOLDEN, [area], "*")}


def run(scenario: Any, server: Server) -> list[Any]:
    """Runs a scenario; returns its recording as JSON values."""
    trace = Trace(server)
    scenario(trace)
    steps: list[Any] = json.loads(json.dumps(trace.steps))
    return steps


def recorded(area: str, name: str) -> list[Any]:
    """Returns the recorded responses of Apache Kafka."""
    steps: list[Any] = json.loads((GOLDEN / "recorded" / area / f"{name}.json").read_text())["steps"]
    return steps
