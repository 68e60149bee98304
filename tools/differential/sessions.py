"""Random requests of fetch sessions (KIP-227), for the comparison with Apache Kafka.

The requests add partitions to a session, change and forget them, and delete and recreate their topics.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import delete_records, delete_topics, fetch
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import APPEND, CREATE

LIMIT_BYTES: Final = 1 << 20
NEW: Final = 0
FINAL: Final = -1


def _fetch(
    side: Side,
    client: str,
    epoch: str,
    rows: dict[str, list[tuple[int, int]]],
    forgotten: dict[str, list[int]],
    version: int,
) -> tuple[Any, int]:
    """Builds a Fetch request and its version.

    `epoch` is `new`, `final`, or a number that is added to the next epoch of the client's session. `rows` maps a topic
    to pairs of partition and offset.
    """
    session_id, known = side.fetch_sessions.get(client, (0, 1))
    number = {"new": NEW, "final": FINAL}.get(epoch)
    topics = [
        fetch.FetchTopic(
            topic=name,
            topic_id=side.topic_id(name),
            partitions=[
                fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=LIMIT_BYTES)
                for partition, offset in partitions
            ],
        )
        for name, partitions in rows.items()
    ]
    dropped = [
        fetch.ForgottenTopic(topic=name, topic_id=side.topic_id(name), partitions=partitions)
        for name, partitions in forgotten.items()
    ]
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=LIMIT_BYTES,
        session_id=0 if number == NEW else session_id,
        session_epoch=known + int(epoch) if number is None else number,
        topics=topics,
        forgotten_topics_data=dropped,
    ), version


def _learn_fetch(side: Side, response: fetch.FetchResponse, client: str, epoch: str, **_: Any) -> None:
    if epoch == "new" and not response.error_code:
        side.fetch_sessions[client] = (response.session_id, 1)
    elif epoch == "0" and not response.error_code:
        session_id, known = side.fetch_sessions.get(client, (0, 1))
        side.fetch_sessions[client] = (session_id, known + 1)


def _delete(side: Side, name: str) -> tuple[Any, int]:
    return delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name)], timeout_ms=10_000), 6


def _delete_records(side: Side, topic: str, partition: int, offset: int) -> tuple[Any, int]:
    row = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [delete_records.DeleteRecordsTopic(name=topic, partitions=[row])]
    return delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=5_000), 2


class Sessions:
    """Lists of random requests that read two topics in the fetch sessions of two clients."""

    NAME = "sessions"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "produce": APPEND,
        "fetch": Call(_fetch, _learn_fetch),
        "delete": Call(_delete, changes_metadata=True),
        "delete_records": Call(_delete_records),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 15 to 35 random requests."""
        drawer = _Drawer(chance, name)
        first = [Step(0, "create_topic", {"name": topic, "partitions": 2}) for topic in drawer.topics[:2]]
        return first + [drawer.step() for _ in range(chance.randrange(15, 35))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.topics = [f"{name}-a", f"{name}-b", f"{name}-none"]
        self.versions = {number: chance.choice([7, 11, 12, 13, 15, 17, 18]) for number in range(2)}

    def step(self) -> Step:
        kinds = {self._fetch: 12, self._produce: 6, self._delete: 1, self._create: 1, self._delete_records: 1}
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        call, arguments = kind()
        number = self.chance.randrange(2)
        if call == "fetch":
            version = self.versions[number]
            if self.chance.random() < 0.05:
                version = self.chance.choice([7, 12, 13, 16])
            arguments |= {"client": CLIENT_IDS[number], "version": version}
        return Step(number, call, arguments)

    def _topic(self) -> str:
        return self.chance.choices(self.topics, [8, 5, 1])[0]

    def _fetch(self) -> tuple[str, dict[str, Any]]:
        rows: dict[str, list[tuple[int, int]]] = {}
        forgotten: dict[str, list[int]] = {}
        epoch = self.chance.choices(["new", "0", "final", "1", "-1"], [4, 16, 1, 1, 1])[0]
        for _ in range(self.chance.choice([1, 2, 3]) if epoch == "new" else self.chance.choice([0, 0, 1, 2])):
            partition = self.chance.choices([0, 1, 2], [5, 5, 1])[0]
            parts = rows.setdefault(self._topic(), [])
            if partition not in {number for number, _ in parts}:
                parts.append((partition, self.chance.choice([0, 0, 1, 2, 5])))
        if epoch != "new" and self.chance.random() < 0.2:
            forgotten[self._topic()] = self.chance.sample([0, 1, 2], self.chance.choice([1, 2]))
        return "fetch", {"epoch": epoch, "rows": rows, "forgotten": forgotten}

    def _produce(self) -> tuple[str, dict[str, Any]]:
        topic = self.chance.choice(self.topics[:2])
        return "produce", {
            "topic": topic,
            "partition": self.chance.choice([0, 1]),
            "counts": [self.chance.choice([1, 2])],
        }

    def _delete(self) -> tuple[str, dict[str, Any]]:
        return "delete", {"name": self.chance.choice(self.topics[:2])}

    def _create(self) -> tuple[str, dict[str, Any]]:
        return "create_topic", {"name": self.chance.choice(self.topics[:2]), "partitions": 2}

    def _delete_records(self) -> tuple[str, dict[str, Any]]:
        topic = self.chance.choice(self.topics[:2])
        return "delete_records", {"topic": topic, "partition": 0, "offset": self.chance.choice([1, -1, 9])}
