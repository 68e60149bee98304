"""Random requests about compacted topics, for the comparison with Apache Kafka.

The requests write keys and tombstones, and delete records. The cleaners of both servers run in between. With `--logs`,
the tool compares the starts and ends of the logs and the last record of each key.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import produce
from kcore_ext.batch.builder import BatchBuilder
from tools.differential.admin import TOPIC, Admin
from tools.differential.data import Data
from tools.differential.members import Members
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, NOW_MS, Side
from tools.differential.topics import CREATE

CLEANED_MS: Final = 6_000
"""Time until the cleaners of both servers have compacted a log and removed old segments, in ms."""
START_MS: Final = NOW_MS - 3_600_000
"""The timestamp of the first record, in ms since the epoch."""
ROLL_MS: Final = 1_000
SETTINGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "delete"},
)
"""Topic settings in addition to `COMPACTED`."""
COMPACTED: Final = {
    "cleanup.policy": "compact", "segment.ms": str(ROLL_MS), "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "86400000",
}  # fmt: skip
Record = tuple[bytes, bytes | None]


def _produce(side: Side, topic: str, records: list[Record], at_ms: int) -> tuple[Any, int]:
    """Builds a Produce request with one batch. Its timestamp is `at_ms` after `START_MS`."""
    builder = BatchBuilder(1 << 20, base_timestamp_ms=START_MS + at_ms)
    for key, value in records:
        builder.append(START_MS + at_ms, key, value)
    data = produce.PartitionProduceData(index=0, records=builder.build())
    row = produce.TopicProduceData(name=topic, partition_data=[data])
    return produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[row]), 11


class Compaction:
    """Lists of random requests that write to a compacted topic, with pauses in which the cleaners run."""

    NAME = "compaction"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "produce": Call(_produce),
        "pause": Members.CALLS["pause"],
        "change": Admin.CALLS["change"],
        **{name: Data.CALLS[name] for name in ("list_offsets", "delete")},
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns a topic, and two to four bursts of requests, each with a pause for the cleaners."""
        drawer = _Drawer(chance, name)
        settings = COMPACTED | chance.choice(SETTINGS)
        steps = [Step(0, "create_topic", {"name": drawer.topic, "partitions": 1, "settings": settings})]
        bursts = chance.choice([2, 3, 4])
        for number in range(bursts):
            steps += [drawer.write() for _ in range(chance.randrange(4, 16))]
            if number == bursts - 1 and settings["cleanup.policy"] == "delete":
                steps.append(drawer.expire())  # not earlier, because a later write could be deleted at any moment
            steps.append(Step(0, "pause", {"ms": CLEANED_MS}))
            steps += [drawer.read() for _ in range(chance.randrange(3, 8))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.topic = f"{name}-a"
        self.at_ms = 0

    def write(self) -> Step:
        """Returns the step that appends a batch or deletes records."""
        client = self.chance.randrange(len(CLIENT_IDS))
        self.at_ms += self.chance.choice([0, 100, ROLL_MS + 1, ROLL_MS + 1])
        if self.chance.random() < 0.04:
            return Step(client, "delete", {"rows": [(self.topic, 0, self.chance.randrange(12))], "version": 2})
        keys = [b"k", b"l", b"m", b"n"]
        records: list[Record] = [
            (self.chance.choice(keys), None if self.chance.random() < 0.2 else b"%d" % self.at_ms)
            for _ in range(self.chance.choice([1, 1, 2, 4]))
        ]
        arguments = {"topic": self.topic, "records": records, "at_ms": self.at_ms}
        return Step(client, "produce", arguments)

    def expire(self) -> Step:
        """Returns the step that lets the oldest segments expire."""
        changes = [("retention.bytes", 0, str(self.chance.choice([0, 100, 200, 400])))]
        arguments = {"resource": TOPIC, "name": self.topic, "changes": changes, "check": False, "version": 1}
        return Step(0, "change", arguments)

    def read(self) -> Step:
        """Returns a step that shows the log."""
        client = self.chance.randrange(len(CLIENT_IDS))
        stamps = [-1, -2, -4, NOW_MS]
        rows = [(self.topic, 0, self.chance.choice(stamps), -1)]
        return Step(client, "list_offsets", {"rows": rows, "version": 9, "isolation": self.chance.randrange(2)})
