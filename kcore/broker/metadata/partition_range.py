"""The records of many new partitions of a topic, made, encoded and replayed together.

One decision creates up to 10,000 partitions. Single records for them take 100 ms, a range 20 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kcore.broker.metadata.records import partition_records
from kcore.runtime.machine import Record

if TYPE_CHECKING:
    from kcore_ext.batch import BatchBuilder

FEW_PARTITIONS = 100
"""Maximum number of new partitions of a topic for which the broker makes single records instead of a range."""

RECORD_OVERHEAD = 21
"""Maximum size of a record in a batch, without its key and value."""

MARK = 0x7FEEDDCC
"""A placeholder for the partition number in an encoded record. The numbers of the partitions then replace its bytes."""


class PartitionRange:
    """The records of new partitions of one topic, with consecutive numbers.

    Args:
        topic_id: the topic's id, 16 bytes.
        first: the number of the first partition.
        assignments: for each partition, the node ids of its replicas, the leader first.
    """

    __slots__ = ("assignments", "first", "topic_id")

    def __init__(self, topic_id: bytes, first: int, assignments: Sequence[tuple[int, ...]]) -> None:
        self.topic_id = topic_id
        self.first = first
        self.assignments = assignments

    def __len__(self) -> int:
        return len(self.assignments)

    def __iter__(self) -> Iterator[Record]:
        return iter(partition_records(self.topic_id, self.first, self.assignments))

    def values(self) -> list[bytes]:
        """Encodes the records. Records of partitions with the same nodes differ only in the partition's number."""
        halves: dict[tuple[int, ...], tuple[bytes, bytes]] = {}
        values = []
        for index, replicas in enumerate(self.assignments, self.first):
            found = halves.get(replicas)
            if found is None:
                found = halves[replicas] = self._halves(replicas)
            values.append(found[0] + index.to_bytes(4, "big") + found[1])
        return values

    def _halves(self, replicas: tuple[int, ...]) -> tuple[bytes, bytes]:
        """Encodes a record, and cuts it before and after the partition's number, its first field."""
        record = partition_records(self.topic_id, MARK, [replicas])[0]
        before, _, after = encode(record).partition(MARK.to_bytes(4, "big"))
        return before, after


MetadataItem = Record | PartitionRange
"""An element of a decision of the metadata shard: one record, or the records of many partitions."""


class MetadataBlock:
    """The records of a decision that contains ranges of partitions.

    Args:
        items: the records and ranges, in order.

    Attributes:
        items: the records and ranges, in order.
        size_bytes: the maximum size of the records in a batch, without the batch's header.
    """

    __slots__ = ("_size", "_values", "items", "size_bytes")

    def __init__(self, items: list[MetadataItem]) -> None:
        self.items = items
        self._size = record_count(items)
        self._values: list[bytes] = []
        for item in items:
            if isinstance(item, PartitionRange):
                self._values += item.values()
            else:
                self._values.append(encode(item))
        self.size_bytes = sum(map(len, self._values)) + RECORD_OVERHEAD * self._size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Record]:
        for item in self.items:
            if isinstance(item, PartitionRange):
                yield from item
            else:
                yield item

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds the records to a batch with room for `size_bytes`. Returns False if a record did not fit."""
        append = batch.append
        return all(append(timestamp_ms, None, value) for value in self._values)


def encode(record: Record) -> bytes:
    """Encodes the value of a metadata record."""
    assert record.value is not None, "the metadata log has no tombstones"
    return record.value.encode_value(record.version)


def new_partitions(topic_id: bytes, first: int, assignments: Sequence[tuple[int, ...]]) -> list[MetadataItem]:
    """Makes the records of a topic's new partitions, numbered from `first` on. Many partitions become one range."""
    if len(assignments) > FEW_PARTITIONS:
        return [PartitionRange(topic_id, first, assignments)]
    return [*partition_records(topic_id, first, assignments)]


def record_count(items: list[MetadataItem]) -> int:
    """Counts the records of a decision."""
    return sum(len(item) if isinstance(item, PartitionRange) else 1 for item in items)
