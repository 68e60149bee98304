"""Runner of the golden scenarios in one process and in virtual time, with a `BrokerContext` as the server.

The client side uses the codec of the recordings, the server side kcore's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey, request_class
from kcore.runtime import Pending, RequestContext
from tests.broker.context import BrokerContext

GOLDEN = Path(__file__).parents[2] / "golden"
sys.path.append(str(GOLDEN))

import golden  # noqa: E402
import kwire  # noqa: E402

KEYS = {"".join(word.capitalize() for word in key.name.split("_")): key for key in ApiKey}


def settings_of(file: str) -> Mapping[str, str]:
    """Returns the settings of the recorded servers that the control plane knows."""
    lines = (line.strip() for line in (GOLDEN / file).read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


class Answer:
    """A completed response to a request."""

    def __init__(self, api: str, version: int, frame: bytes) -> None:
        self.api, self.version, self.frame = api, version, frame

    def result(self, timeout_s: float = 15.0) -> dict[str, Any]:
        response: dict[str, Any] = kwire.decode(self.api + "Response", self.version, self.frame)
        return response


class Connection:
    """Counterpart of `kwire.Connection` without a socket."""

    def __init__(self, node: BrokerContext, client_id: str) -> None:
        self.node, self.client_id = node, client_id

    def send(self, api: str, version: int, body: dict[str, Any]) -> Answer:
        request = request_class(KEYS[api]).decode(kwire.encode(api + "Request", version, body), version)
        node = self.node
        node.now.update()
        served, context = node.apis[KEYS[api]], RequestContext(version, self.client_id)
        try:
            result = served.handle(context, request)
        except KafkaError as error:  # the engine makes the response, too
            result = served.error(context, request, error.code, error.message)
        node.finish()
        response = result.response if isinstance(result, Pending) else result
        return Answer(api, version, response.encode(version))

    def call(self, api: str, version: int, body: dict[str, Any], timeout_s: float = 15.0) -> dict[str, Any]:
        return self.send(api, version, body).result(timeout_s)

    def close(self) -> None:
        """Does nothing: there is no socket."""


class Trace(golden.Trace):  # type: ignore[misc]
    """A scenario's `t`, on a node in this process."""

    def __init__(self, node: BrokerContext) -> None:
        super().__init__(("in-process", 0))
        self.node = node

    def connect(self, label: str, client_id: str | None = None) -> Any:
        self.connections[label] = Connection(self.node, client_id or label)
        return golden.Client(self, label)

    def sleep(self, ms: int) -> None:
        self.node.clock.advance(ms)

    def topic(self, base: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name = str(self.name(base))
        result = self.node.create(name, partitions, configs=configs)
        assert not result.error_code, result
        self.topic_ids[name] = result.topic_id.hex()
        self.symbols["uuid", result.topic_id.hex()] = f"<topic {base}>"
        return name

    def coordinator(self, key: str, key_type: int = 0) -> None:
        """Does nothing: this node has no coordinators."""


def scenarios(area: str) -> dict[str, Any]:
    """Returns the scenarios of an area by name."""
    return {name.split("/")[1]: function for name, function in golden.scenarios(GOLDEN, [area], "*")}


def differences(area: str, name: str, scenario: Any, node: BrokerContext) -> list[str]:
    """Runs a scenario; lists the differences from Apache Kafka's responses."""
    trace = Trace(node)
    scenario(trace)
    steps = json.loads(json.dumps(trace.steps))
    recorded = json.loads((GOLDEN / "recorded" / area / f"{name}.json").read_text())["steps"]
    found: list[str] = golden.compare(recorded, steps)
    return found
