"""The area of request shapes: any served version of nearly every API, with fields drawn from the request's declaration.

A field usually has a sensible value, and sometimes an unusual one: null, an empty or repeated array element, a negative
number, a name that does not exist, or a name that is not valid. `shape_values.py` lists the values.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.api_keys import ApiKey, request_class
from kcore_ext.codec.plan import ARRAY, STRUCT, FieldSpec
from tools.differential.data import Data
from tools.differential.groups import Groups
from tools.differential.program import Call, Step
from tools.differential.shape_values import APIS, CALLS, KINDS, NEVER_NULL, SETTINGS, VALUES
from tools.differential.share import Share
from tools.differential.side import CLIENT_IDS, NOW_MS, Side
from tools.differential.streams import Streams
from tools.differential.topics import CREATE
from tools.differential.transactions import Transactions, await_end

NAMES: Final = (
    "name", "topic", "topic_name", "topic_id", "group_id", "partition", "partition_index", "index", "transactional_id",
    "producer_id", "user", "entity_type", "entity", "subtopology_id", "member_id", "path", "resource_name",
)  # fmt: skip
"""Fields that identify a row of a request. If a request has a row twice, Kafka often combines the results."""
PRODUCER_FIELDS: Final = frozenset({"producer_id", "v3_and_below_producer_id", "producer_id_filters"})
TOPIC_ID: Final = "topic_id"


def _resolved(side: Side, name: str, value: Any) -> Any:
    """Replaces the names in a field's value by the ids that the server has chosen."""
    if name == TOPIC_ID and isinstance(value, str):
        return side.topic_id(value) if value else bytes(16)
    if name in PRODUCER_FIELDS and isinstance(value, str):
        return side.producers.get(value, (0, 0))[0]
    if name == "member_id" and isinstance(value, str):
        return side.members.get(value, (value, 0))[0]
    return value


def _message(side: Side, kind: Any, tree: Mapping[str, Any]) -> Any:
    values = {}
    for spec in kind.FIELDS:
        if spec.name not in tree:
            continue
        value = tree[spec.name]
        if spec.struct is None:
            if isinstance(value, list):
                value = [_resolved(side, spec.name, each) for each in value]
            else:
                value = _resolved(side, spec.name, value)
        elif isinstance(value, list):
            value = [_message(side, spec.struct, each) for each in value]
        elif value is not None:
            value = _message(side, spec.struct, value)
        values[spec.name] = value
    return kind(**values)


def _request(side: Side, api: str, version: int, tree: Mapping[str, Any]) -> tuple[Any, int]:
    return _message(side, request_class(ApiKey[api]), tree), version


def _learn(side: Side, response: Any, api: str, **_: Any) -> None:
    """Stores the ids of created topics."""
    if api == "CREATE_TOPICS":
        for topic in response.topics:
            if not topic.error_code:
                side.topic_ids[topic.name] = getattr(topic, "topic_id", bytes(16))


def _different(rows: list[Any]) -> list[Any]:
    """Removes the elements that name the same object as an earlier element."""
    kept: dict[str, Any] = {}
    for row in rows:
        key = [row.get(name) for name in NAMES if name in row][:1] if isinstance(row, dict) else row
        kept.setdefault(repr(key), row)
    return list(kept.values())


def _await_end(side: Side, tree: Mapping[str, Any], **_: Any) -> None:
    """Waits until the transaction of a request is complete."""
    await_end(side, tree.get("transactional_id"))


class Shapes:
    """Programs that set up two topics, three groups and a transactional id, and then send requests of any shape."""

    NAME = "shapes"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "produce": Data.CALLS["produce"],
        "init": Transactions.CALLS["init"],
        "commit": Groups.CALLS["commit"],
        "beat": Groups.CALLS["beat"],
        "share_beat": Share.CALLS["beat"],
        "streams_beat": Streams.CALLS["beat"],
        "request": Call(_request, _learn),
        "writing_request": Call(_request, _learn, changes_metadata=True),
        "transaction_request": Call(_request, _learn, settle=_await_end),
        "waiting_request": Call(_request, _learn, waits=True),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a few requests that set up the objects of the test program, and 6 to 14 random requests."""
        drawer = ShapesDrawer(chance, name, count=chance.choice([1, 3, 6]))
        return drawer.setup(0.5) + [drawer.step() for _ in range(chance.randrange(6, 14))]


class ShapesDrawer:
    """Draws the requests of a test program.

    Args:
        chance: the source of random numbers.
        name: the name of the test program.
        count: number of APIs that the test program uses.
    """

    def __init__(self, chance: random.Random, name: str, count: int) -> None:
        self.chance = chance
        self.name = name
        self.unusual = chance.choice([0.03, 0.1, 0.2])
        # Each test program uses a few APIs: their combinations become frequent.
        self.apis = chance.sample(sorted(APIS), count)

    def setup(self, frequency: float) -> list[Step]:
        """Returns the steps that create the objects: two topics, and each other object with `frequency`."""
        name = self.name
        steps = [
            Step(0, "create_topic", {"name": f"{name}-a", "partitions": 2}),
            Step(0, "create_topic", {"name": f"{name}-b", "partitions": 1}),
        ]
        offsets = [(f"{name}-a", 0, 5, "note"), (f"{name}-b", 0, 7, "")]
        batch = {"keys": [None, b"k"], "size": 1, "stamps": [NOW_MS, NOW_MS], "damage": ""}
        optional = [
            ("produce", {"rows": [(f"{name}-a", 0)], "acks": -1, "timeout_ms": 5_000, "version": 9, **batch}),
            ("commit", {"group": f"{name}-g", "member": None, "delta": 0, "offsets": offsets, "version": 8}),
            (
                "init",
                {
                    "tid": f"{name}-t", "timeout_ms": 60_000, "known": "none", "delta": 0, "version": 4,
                    "known_as": f"{name}-t",
                },
            ),
            (
                "beat",
                {
                    "group": f"{name}-c", "member": "consumer-one", "epoch": "join", "names": [f"{name}-a"],
                    "owned": "empty", "version": 1,
                },
            ),
            (
                "share_beat",
                {"group": f"{name}-s", "member": "share-one", "epoch": "join", "names": [f"{name}-b"]},
            ),
            (
                "streams_beat",
                {
                    "group": f"{name}-k", "member": "streams-one", "epoch": "join", "topology": [([f"{name}-a"], [])],
                    "owned": "empty", "process": "p-one",
                },
            ),
        ]  # fmt: skip
        return steps + [Step(0, call, arguments) for call, arguments in optional if self.chance.random() < frequency]

    def step(self) -> Step:
        """Returns one request."""
        api = self.chance.choice(self.apis)
        kind = request_class(ApiKey[api])
        version = self.chance.randint(kind.MIN_VERSION, kind.MAX_VERSION)
        if api == "INIT_PRODUCER_ID":
            version = min(version, 5)
        tree = self._tree(api, kind, version)
        SETTINGS.get(api, lambda *_: None)(tree, self.chance, self.name)
        call = next((call for call, apis in CALLS.items() if api in apis), "request")
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, {"api": api, "version": version, "tree": tree})

    def _tree(self, api: str, kind: Any, version: int) -> dict[str, Any]:
        return {
            spec.name: self._value(api, kind, spec, version)
            for spec in kind.FIELDS
            if spec.versions[0] <= version <= spec.versions[1]
        }

    def _odd(self) -> bool:
        return self.chance.random() < self.unusual

    def _value(self, api: str, kind: Any, spec: FieldSpec, version: int) -> Any:
        nullable = spec.nullable[0] <= version <= spec.nullable[1] and spec.name not in NEVER_NULL
        if nullable and self._odd():
            return None
        if spec.kind == ARRAY:
            count = self.chance.choice([0, 2, 2, 3]) if self._odd() else self.chance.choice([1, 1, 1, 2])
            rows = [self._element(api, kind, spec, version) for _ in range(count)]
            return _different(rows)
        return self._element(api, kind, spec, version)

    def _element(self, api: str, kind: Any, spec: FieldSpec, version: int) -> Any:
        if spec.struct is not None and STRUCT in (spec.kind, spec.item):
            return self._tree(api, spec.struct, version)
        for key in (f"{api}.{spec.name}", f"{kind.__name__}.{spec.name}", spec.name):
            if key in VALUES:
                sane, odd = VALUES[key]
                break
        else:
            sane, odd = KINDS[spec.item if spec.kind == ARRAY else spec.kind]
        value = self.chance.choice(odd if odd and self._odd() else sane)
        return value.replace("~", self.name) if isinstance(value, str) else value
