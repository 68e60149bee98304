"""Runs recorded scenarios against one group shard in virtual time: no server, no sleep, no thread.

The scenarios are those of `tests/golden`: the scripts that recorded Apache Kafka's responses, with their recordings.
Requests and responses pass through `kwire`, an independent codec, on one side and through kcore's on the other. Topics
and transactions are not part of a group shard; the test plays them.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcore.errors import KafkaError
from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.describe_groups import DescribeGroupsApi
from kcore.group.apis.heartbeat import HeartbeatApi
from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_delete import OffsetDeleteApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.log import PartitionKey
from kcore.runtime import Pending, RequestContext
from tests.group.context import CONSUMER_OFFSETS_ID
from tests.group.offsets.world import OffsetsContext

GOLDEN = Path(__file__).parents[2] / "golden"
if str(GOLDEN) not in sys.path:
    sys.path.insert(0, str(GOLDEN))

import golden  # noqa: E402  (the path above makes it importable)
import kwire  # noqa: E402

OFFSET_APIS = (OffsetCommitApi, OffsetFetchApi, OffsetDeleteApi, TxnOffsetCommitApi)
GROUP_APIS = (SyncGroupApi, HeartbeatApi, LeaveGroupApi, DescribeGroupsApi, DeleteGroupsApi)


class VirtualPending:
    """A request without a response yet."""

    def __init__(self, world: World, api: str, version: int) -> None:
        self.world, self.api, self.version = world, api, version
        self.answer: dict[str, Any] | None = None

    def result(self, timeout_s: float = 15.0) -> dict[str, Any]:
        """Returns the response; advances virtual time until it is complete, at most `timeout_s`."""
        end_ms = self.world.clock.monotonic_ms() + int(timeout_s * 1000)
        while self.answer is None:
            now_ms = self.world.clock.monotonic_ms()
            if now_ms >= end_ms:
                raise TimeoutError(f"{self.api} v{self.version} is not answered")
            next_ms = self.world.wheel.next_deadline_ms()
            self.world.advance(min(end_ms, max(next_ms, now_ms)) - now_ms if next_ms >= 0 else end_ms - now_ms)
        return self.answer


class VirtualConnection:
    """One client's connection: serves its requests one at a time, in order."""

    def __init__(self, world: World, client_id: str) -> None:
        self.world, self.client_id = world, client_id
        self._waiting: deque[tuple[VirtualPending, Any]] = deque()
        self._busy = False

    def close(self) -> None:
        """Does nothing: no client reads the responses."""
        self._waiting.clear()

    def send(self, api: str, version: int, body: dict[str, Any]) -> VirtualPending:
        pending = VirtualPending(self.world, api, version)
        self._waiting.append((pending, body))
        self._serve()
        return pending

    def call(self, api: str, version: int, body: dict[str, Any], timeout_s: float = 15.0) -> dict[str, Any]:
        return self.send(api, version, body).result(timeout_s)

    def _serve(self) -> None:
        while self._waiting and not self._busy:
            pending, body = self._waiting.popleft()
            self._busy = True

            def take(response: dict[str, Any], pending: VirtualPending = pending) -> None:
                pending.answer = response
                self._busy = False

            self.world.serve(pending.api, pending.version, body, self.client_id, take)

    def wake(self) -> None:
        """Serves the requests behind one that has completed meanwhile."""
        if not self._busy:
            self._serve()


class World(OffsetsContext):
    """The shard, with the topics and transactions that the scenarios need."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(settings)
        self.connections: list[VirtualConnection] = []
        self.producers: dict[str, int] = {}
        self.last_end = ""
        self.apis: dict[str, Any] = {}
        for kind in OFFSET_APIS:
            self.apis[kind.__name__.removesuffix("Api")] = self.api(kind)
        self.apis["JoinGroup"] = JoinGroupApi(self.shards, self.config)
        for kind in GROUP_APIS:
            self.apis[kind.__name__.removesuffix("Api")] = kind(self.shards)

    def serve(
        self, api: str, version: int, body: dict[str, Any], client_id: str, take: Callable[[dict[str, Any]], None]
    ) -> None:
        """Serves one request; `take` gets the response now or later."""
        played = getattr(self, f"play_{api}", None)
        if played is not None:
            take(played(body))
            return
        served = self.apis[api]
        context = RequestContext(version, client_id)
        request = served.request_type.decode(kwire.encode(f"{api}Request", version, body), version)

        def answered(response: Any) -> None:
            take(kwire.decode(f"{api}Response", version, response.encode(version)))

        self.now.update()
        try:
            result = served.handle(context, request)
        except KafkaError as error:
            result = served.error(context, request, error.code, error.message)
        if isinstance(result, Pending):
            result.on_complete(answered)
        else:
            answered(result)
        self.finish()

    def finish(self) -> None:
        super().finish()
        for connection in getattr(self, "connections", ()):
            connection.wake()

    # ---- simulated parts of a cluster

    def play_DeleteTopics(self, body: dict[str, Any]) -> dict[str, Any]:
        for name in body["topic_names"]:
            self.delete_topic(name)
        return {"responses": [{"name": name, "error_code": 0} for name in body["topic_names"]]}

    def play_InitProducerId(self, body: dict[str, Any]) -> dict[str, Any]:
        producer_id = self.producers[body["transactional_id"]] = 1_000 + len(self.producers)
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}

    def play_AddOffsetsToTxn(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"error_code": 0}

    def play_EndTxn(self, body: dict[str, Any]) -> dict[str, Any]:
        self.end_transaction(body["producer_id"], body["committed"], body["producer_epoch"])
        self.last_end = "CompleteCommit" if body["committed"] else "CompleteAbort"
        return {"error_code": 0}

    def play_DescribeTransactions(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"transaction_states": [{"transaction_state": self.last_end}]}


class VirtualClient(golden.Client):  # type: ignore[misc]
    """A client whose polling sleeps in virtual time."""

    def until(
        self,
        api: str,
        version: int,
        done: Callable[[dict[str, Any]], bool],
        every_ms: int = 50,
        tries: int = 200,
        **body: Any,
    ) -> dict[str, Any]:
        for _ in range(tries):
            response: dict[str, Any] = self.quiet(api, version, **body)
            if done(response):
                step = {"client": self.label, "api": api, "version": version}
                self.trace.steps.append({**step, "eventually": self.trace.clean(response)})
                return response
            self.trace.sleep(every_ms)
        raise AssertionError(f"{api}: condition not reached; last {response}")


class VirtualTrace(golden.Trace):  # type: ignore[misc]
    """A scenario's trace, with a shard instead of a server."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(("virtual", 0))
        self.run = "0123456789"
        self.world = World(settings)

    def connect(self, label: str, client_id: str | None = None) -> VirtualClient:
        connection = self.connections[label] = VirtualConnection(self.world, client_id or label)
        self.world.connections.append(connection)
        return VirtualClient(self, label)

    def sleep(self, ms: int) -> None:
        self.world.advance(ms)

    def topic(self, base: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        name: str = self.name(base)
        topic_id = self.world.topics.add(name, partitions).topic_id.hex()
        self.topic_ids[name] = topic_id
        self.symbols["uuid", topic_id] = f"<topic {base}>"
        return name

    def coordinator(self, key: str, key_type: int = 0) -> None:
        """Does nothing: the coordinator is always available; nothing was written before the scenario."""

    def log(
        self,
        label: str,
        topic: str = "__consumer_offsets",
        key: str | None = None,
        ordered: bool = True,
        as_sets: tuple[str, ...] = (),
    ) -> list[dict[str, Any]]:
        log = self.world.engine.open(PartitionKey(CONSUMER_OFFSETS_ID, 0))
        events: list[dict[str, Any]] = []
        for _, data in log.batches():
            for batch in kwire.read_batches(bytes(data)):
                owner = {"producer_id": batch["producer_id"], "producer_epoch": batch["producer_epoch"]}
                if batch["control"]:
                    kind = {0: "abort", 1: "commit"}[int.from_bytes(batch["records"][0]["key"][2:4], "big")]
                    events.append({"marker": kind, **owner})
                    continue
                for record in batch["records"]:
                    event = kwire.read_event(topic, record["key"], record["value"])
                    if key is None or key in event["key"].values():
                        if batch["transactional"]:
                            event["in_transaction"] = owner
                        events.append(event)
        if key is not None:
            seen = {e["in_transaction"]["producer_id"] for e in events if "in_transaction" in e}
            events = [e for e in events if "marker" not in e or e["producer_id"] in seen]
        self.steps.append({"log": label, "events": self.clean(events, "records" if ordered else "")})
        return events


def settings(name: str) -> dict[str, str]:
    """Returns the settings of a recorded server that a group shard has. "" is the default server."""
    lines = (GOLDEN / f"server{'-' + name if name else ''}.properties").read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {key: value for key, value in pairs.items() if key.startswith(("group.", "offset", "offsets."))}


def differences(full_name: str, scenario: Callable[[Any], None]) -> list[str]:
    """Runs a scenario; returns the differences from Kafka's responses as text."""
    trace = VirtualTrace(settings(scenario.__globals__.get("SETTINGS", "")))
    scenario(trace)
    recorded = json.loads((GOLDEN / "recorded" / f"{full_name}.json").read_text())["steps"]
    found: list[str] = golden.compare(recorded, trace.steps)
    return found
