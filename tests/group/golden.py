"""Runs the golden scenarios of groups in this process and in virtual time.

`tests/golden` holds scripts of raw requests with Apache Kafka's responses. Here a script's connections end in a
`GroupContext` instead of a socket, and its sleeps and timeouts move the context's clock. Requests and responses pass
through `kwire`, an independent codec, and through kcore's. A connection serves its requests one after the other, as a
server must.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

from kcore.group.served_apis import group_apis
from kcore.group.shard import TOPIC_NAME
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import RequestContext
from kcore.runtime.cluster import SingleNodeCluster
from tests.group.context import Call, GroupContext

ROOT = Path(__file__).parents[1] / "golden"
sys.path.append(str(ROOT))  # the scripts import each other by plain names

import golden as script  # type: ignore[import-not-found]  # noqa: E402
import kwire  # type: ignore[import-not-found]  # noqa: E402

PARTITIONS = 3


class VirtualTime:
    """The module `time` for scripts, on a context's clock."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def sleep(self, seconds: float) -> None:
        self._context.advance(round(seconds * 1000))

    def monotonic(self) -> float:
        return self._context.clock.monotonic_ms() / 1000


class NoTransactions:
    """A transaction coordinator whose transactions contain every partition."""

    def verify(self, *_: Any, **__: Any) -> ErrorCode:
        return ErrorCode.NONE


class Node:
    """The served side: the APIs of groups, and the parts of topic APIs that scripts need to read the log."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.context = GroupContext(settings, {TOPIC_NAME: PARTITIONS}, PARTITIONS)
        cluster = SingleNodeCluster(1, "cluster")
        cluster.advertise("PLAINTEXT", "localhost", 9092)
        apis = group_apis(
            self.context.shards,
            config=self.context.config,
            topics=self.context.topics,
            cluster=cluster,
            verifier=NoTransactions(),
        )
        self.apis = {int(api.key): api for api in (deferred.make() for deferred in apis)}

    def fetch(self, partition: int, offset: int) -> bytes:
        """Returns the committed batches from an offset on."""
        return b"".join(batch for base, batch in self.context.log(partition).batches() if base >= offset)


class Connection:
    """A replacement of `kwire.Connection`: `address` is a Node."""

    def __init__(self, address: Node, client_id: str = "golden") -> None:
        self.node = address
        self.client_id = client_id
        self.behind: deque[Request] = deque()

    def close(self) -> None:
        """Changes nothing in a group."""

    def send(self, api: str, version: int, body: dict[str, Any]) -> Request:
        request = Request(self, api, version, body)
        self.behind.append(request)
        self.serve()
        return request

    def call(self, api: str, version: int, body: dict[str, Any], timeout_s: float = 15.0) -> dict[str, Any]:
        return self.send(api, version, body).result(timeout_s)

    def serve(self) -> None:
        """Serves the received requests, up to the first one that must wait."""
        while self.behind:
            request = self.behind[0]
            if request.call is None:
                request.begin()
            if not request.done:
                return
            self.behind.popleft()


class Request:
    """One request of a connection; a replacement of `kwire.Pending`."""

    def __init__(self, connection: Connection, api: str, version: int, body: dict[str, Any]) -> None:
        self.connection, self.api, self.version = connection, api, version
        self.body = body
        self.call: Any = None

    @property
    def done(self) -> bool:
        return self.call is not None and self.call.done

    def begin(self) -> None:
        """Starts serving the request."""
        node = self.connection.node
        schema = kwire.SCHEMAS[self.api + "Request"]
        api: Any = node.apis.get(schema["api_key"])
        if api is None:
            self.call = Shown(self, node)
            return
        data = kwire.encode(self.api + "Request", self.version, self.body)
        self.call = Call(api, self.version)
        context = node.context
        context.now.update()
        request_context = RequestContext(self.version, self.connection.client_id)
        context.complete(api, request_context, api.request_type.decode(data, self.version), self.call)

    def result(self, timeout_s: float = 15.0) -> dict[str, Any]:
        context = self.connection.node.context
        end_ms = context.clock.monotonic_ms() + round(timeout_s * 1000)
        self.connection.serve()
        while not self.done:
            left_ms = end_ms - context.clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError
            context.advance(min(context.until_next_timer_ms(left_ms), left_ms))
            self.connection.serve()
        self.connection.serve()
        if isinstance(self.call, Shown):
            return dict(self.call.response)
        name = self.api + "Response"
        return kwire.decode(name, self.version, self.call.response.encode(self.version))  # type: ignore[no-any-return]


class Shown:
    """The few responses about topics and logs that scripts need."""

    def __init__(self, request: Request, node: Node) -> None:
        self.done = True
        self.response = getattr(self, f"_{request.api.lower()}")(request.body, node)

    def _createtopics(self, body: dict[str, Any], node: Node) -> dict[str, Any]:
        for topic in body["topics"]:
            node.context.topics.add(topic["name"], topic["num_partitions"])
        return {"topics": [{"error_code": 0}]}

    def _metadata(self, body: dict[str, Any], node: Node) -> dict[str, Any]:
        info = node.context.topics.by_name(body["topics"][0]["name"])
        assert info is not None
        partitions = [{"partition_index": i, "leader_id": 1, "error_code": 0} for i in range(info.partitions)]
        return {"topics": [{"error_code": 0, "topic_id": info.topic_id.hex(), "partitions": partitions}]}

    def _listoffsets(self, body: dict[str, Any], node: Node) -> dict[str, Any]:
        topic = body["topics"][0]
        offsets = [
            node.context.log(p["partition_index"]).high_watermark if topic["name"] == TOPIC_NAME else 0
            for p in topic["partitions"]
        ]
        return {"topics": [{"partitions": [{"error_code": 0, "offset": offset} for offset in offsets]}]}

    def _fetch(self, body: dict[str, Any], node: Node) -> dict[str, Any]:
        (partition,) = body["topics"][0]["partitions"]
        records = node.fetch(partition["partition"], partition["fetch_offset"])
        return {"responses": [{"partitions": [{"records": records}]}]}


def settings_of(name: str) -> dict[str, Any]:
    """Returns the settings of a recorded area that affect groups."""
    lines = (ROOT / f"server{'-' + name if name else ''}.properties").read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {key: value for key, value in pairs.items() if key.startswith(("group.", "offsets."))}


def scenarios(area: str) -> list[str]:
    """Returns the names of an area's scenarios."""
    return [name for name, _ in script.scenarios(ROOT, [area])]


def differences(name: str) -> list[str]:
    """Runs one scenario; returns its differences from the recording."""
    ((_, function),) = script.scenarios(ROOT, [name])
    module = sys.modules.get(function.__module__)
    namespace = function.__globals__
    node = Node(settings_of(namespace.get("SETTINGS", "")))
    time = VirtualTime(node.context)
    assert module is None or vars(module) is not namespace, "each run has a module of its own"
    before = script.time, script.kwire.Connection
    script.time, script.kwire.Connection = time, Connection
    if "time" in namespace:
        namespace["time"] = time
    try:
        steps, failure = script.run(function, node)
    finally:
        script.time, script.kwire.Connection = before
    recorded = script.json.loads((ROOT / "recorded" / f"{name}.json").read_text())["steps"]
    found: list[str] = script.compare(recorded, steps)
    return [*found, failure] if failure else found
