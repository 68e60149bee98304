"""Random requests about records in ordinary topics, for the comparison with Apache Kafka.

The requests write valid, damaged and unusual batches, read by offset and by time, delete records, and use leader
epochs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import delete_records, fetch, list_offsets, offset_for_leader_epoch, produce
from kcore_ext.batch.builder import BatchBuilder
from tools.differential.program import Call, Step
from tools.differential.side import CLIENT_IDS, NOW_MS, Side
from tools.differential.topics import CREATE

SETTINGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"max.message.bytes": "300"},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"},
)
"""Topic settings that determine which batches the broker accepts."""


def _batch(keys: list[bytes | None], size: int, stamps: list[int], damage: str) -> bytes:
    if damage == "empty":
        return b""
    builder = BatchBuilder(1 << 20, base_timestamp_ms=stamps[0])
    for key, stamp in zip(keys, stamps, strict=True):
        builder.append(stamp, key, b"v" * size)
    batch = bytearray(builder.build())
    if damage == "crc":
        batch[-1] ^= 1
    elif damage == "cut":
        del batch[-3:]
    elif damage == "magic":
        batch[16] = 1
    elif damage == "future magic":
        batch[16] = 3
    elif damage == "twice":
        batch += bytes(batch)
    elif damage == "length":
        batch[11] ^= 1
    elif damage == "offset":
        batch[7] = 9
    return bytes(batch)


def _produce(
    side: Side, rows: list[tuple[str, int]], acks: int, timeout_ms: int, version: int, **batch: Any
) -> tuple[Any, int]:
    records = _batch(**batch)
    topics: dict[str, list[Any]] = {}
    for topic, partition in rows:
        topics.setdefault(topic, []).append(produce.PartitionProduceData(index=partition, records=records))
    data = [
        produce.TopicProduceData(name=name, topic_id=side.topic_id(name), partition_data=partitions)
        for name, partitions in topics.items()
    ]
    return produce.ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=data), version


def _fetch(
    side: Side, rows: list[tuple[str, int, int, int, int]], max_bytes: int, version: int, isolation: int
) -> tuple[Any, int]:
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset, limit, epoch in rows:
        partition_request = fetch.FetchPartition(
            partition=partition,
            current_leader_epoch=epoch if version >= 9 else -1,
            fetch_offset=offset,
            partition_max_bytes=limit,
        )
        topics.setdefault(topic, []).append(partition_request)
    requested_topics = [
        fetch.FetchTopic(topic=name, topic_id=side.topic_id(name), partitions=parts) for name, parts in topics.items()
    ]
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, isolation_level=isolation, topics=requested_topics
    ), version


def _list_offsets(side: Side, rows: list[tuple[str, int, int, int]], version: int, isolation: int) -> tuple[Any, int]:
    topics: dict[str, list[Any]] = {}
    for topic, partition, timestamp, epoch in rows:
        partition_request = list_offsets.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=epoch if version >= 4 else -1, timestamp=timestamp
        )
        topics.setdefault(topic, []).append(partition_request)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation if version >= 2 else 0,
        topics=[list_offsets.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    ), version


def _delete(side: Side, rows: list[tuple[str, int, int]], version: int) -> tuple[Any, int]:
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset in rows:
        partition_request = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics.setdefault(topic, []).append(partition_request)
    return delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=5_000,
    ), version


def _epoch_end(side: Side, topic: str, partition: int, current: int, epoch: int, version: int) -> tuple[Any, int]:
    partition_request = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    row = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[partition_request])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-2 if version < 3 else -1, topics=[row]
    ), version


class Data:
    """Lists of random requests that write, read and delete records of two topics with different settings."""

    NAME = "data"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "produce": Call(_produce),
        "fetch": Call(_fetch),
        "list_offsets": Call(_list_offsets),
        "delete": Call(_delete),
        "epoch_end": Call(_epoch_end),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics and 10 to 30 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        steps = [
            Step(0, "create_topic", {"name": topic, "partitions": 2, "settings": chance.choice(SETTINGS)})
            for topic in topics
        ]
        drawer = _Drawer(chance, topics)
        steps += [drawer.step() for _ in range(chance.randrange(10, 30))]
        return steps


class _Drawer:
    def __init__(self, chance: random.Random, topics: list[str]) -> None:
        self.chance = chance
        self.topics = topics
        self.unusual = 0.3 if chance.random() < 0.5 else 0.05

    def step(self) -> Step:
        kinds = [self._produce, self._fetch, self._list_offsets, self._delete, self._epoch_end]
        (kind,) = self.chance.choices(kinds, [10, 6, 5, 2, 1])
        call, arguments = kind()
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, arguments)

    def _place(self) -> tuple[str, int]:
        topic = self.chance.choice(self.topics) if self.chance.random() < 0.95 else f"{self.topics[0]}-none"
        return topic, self.chance.choices([0, 1, 2, -1], [60, 34, 4, 2])[0]

    def _places(self) -> list[tuple[str, int]]:
        return list(dict.fromkeys(self._place() for _ in range(self.chance.choice([1, 1, 1, 2]))))

    def _produce(self) -> tuple[str, dict[str, Any]]:
        count = self.chance.choice([1, 1, 2, 3])
        damages = ["crc", "cut", "magic", "future magic", "twice", "length", "empty", "offset"]
        late = [NOW_MS] * 8 + [NOW_MS - 3_600_000, NOW_MS + 7_200_000, -1]
        unusual = self.chance.random() < self.unusual
        return "produce", {
            "rows": self._places(),
            "acks": self.chance.choices([-1, 1, 5], [80, 18, 2])[0],
            "timeout_ms": 5_000,
            "version": self.chance.randrange(3, 14),
            "keys": [self.chance.choice([None, b"k", b"l"]) for _ in range(count)],
            "size": self.chance.choice([1, 1, 100, 250]),
            "stamps": [self.chance.choice(late) if unusual else NOW_MS for _ in range(count)],
            "damage": self.chance.choice(damages) if unusual else "",
        }

    def _fetch(self) -> tuple[str, dict[str, Any]]:
        offsets = [0, 0, 1, 2, 4, 100, -1]
        limits = [1 << 20, 1 << 20, 1, 100, 0]
        return "fetch", {
            "rows": [
                (
                    *topic_partition,
                    self.chance.choice(offsets),
                    self.chance.choice(limits),
                    self.chance.choice([-1, -1, 0, 1]),
                )
                for topic_partition in self._places()
            ],
            "max_bytes": self.chance.choice([1 << 20, 1 << 20, 1, 150]),
            "version": self.chance.randrange(4, 19),
            "isolation": self.chance.randrange(2),
        }

    def _list_offsets(self) -> tuple[str, dict[str, Any]]:
        stamps = [-1, -1, -2, -2, -3, -4, -5, NOW_MS, NOW_MS + 1, NOW_MS - 3_600_000, 0]
        return "list_offsets", {
            "rows": [
                (*topic_partition, self.chance.choice(stamps), self.chance.choice([-1, -1, 0, 1]))
                for topic_partition in self._places()
            ],
            "version": self.chance.randrange(1, 12),
            "isolation": self.chance.randrange(2),
        }

    def _delete(self) -> tuple[str, dict[str, Any]]:
        return "delete", {
            "rows": [
                (*topic_partition, self.chance.choice([-1, 0, 1, 3, 50, -2])) for topic_partition in self._places()
            ],
            "version": self.chance.choice([0, 1, 2]),
        }

    def _epoch_end(self) -> tuple[str, dict[str, Any]]:
        topic, partition = self._place()
        return "epoch_end", {
            "topic": topic,
            "partition": partition,
            "current": self.chance.choice([-1, 0, 1]),
            "epoch": self.chance.choice([0, 0, 1, -1]),
            "version": self.chance.choice([2, 3, 4]),
        }
