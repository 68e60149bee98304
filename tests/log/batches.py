"""Record batches of format 2 for tests of the log, made without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from crc32c import crc32c

from kcore.log import LogEngine, PartitionKey, PartitionLog
from kcore.log.repair_partition import PartitionPlan
from kcore.log.repair_plan import Plan

TOPIC = bytes(range(16))


class AnyRecords:
    """A record check for repairs that accepts all records, because the tests' batches do not contain valid records."""

    def refusal(self, key: PartitionKey, base: int, batch: bytes) -> str | None:
        return None

    def amend(self, plan: Plan, batches: Callable[[PartitionPlan], Iterator[tuple[int, bytes]]]) -> None: ...


def key(partition: int = 0, topic: bytes = TOPIC) -> PartitionKey:
    return PartitionKey(topic, partition)


def batch(records: int = 1, size_bytes: int = 20, max_timestamp_ms: int = 1000, fill: int = 0) -> bytearray:
    """Returns a batch with a valid header and CRC. After the header, it has `size_bytes` bytes of value `fill`."""
    rest = (
        struct.pack(">hiqqqhii", 0, records - 1, 0, max_timestamp_ms, -1, -1, -1, records) + bytes([fill]) * size_bytes
    )
    return bytearray(struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc32c(rest)) + rest)


def stamped(data: bytes | bytearray, base_offset: int, leader_epoch: int) -> bytes:
    """Returns the batch `data` as the log stores it: with its base offset and leader epoch."""
    return struct.pack(">q", base_offset) + data[8:12] + struct.pack(">i", leader_epoch) + data[16:]


def fill(log: PartitionLog, engine: LogEngine, count: int, leader_epoch: int = 0, **kwargs: int) -> list[bytes]:
    """Appends and commits `count` batches. Returns the stored batches."""
    stored = []
    for _ in range(count):
        data = batch(**kwargs)
        stored.append(stamped(data, log.append(data, leader_epoch), leader_epoch))
    engine.commit()
    return stored


def split(value: bytes) -> list[bytes]:
    """Splits consecutive batches by their length fields."""
    batches = []
    while value:
        size = 12 + struct.unpack_from(">i", value, 8)[0]
        batches.append(value[:size])
        value = value[size:]
    return batches


def contents(log: PartitionLog) -> list[bytes]:
    return [data for _, data in log.batches()]
