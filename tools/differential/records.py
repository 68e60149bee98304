"""The records that a test program leaves in the logs of both servers, in a form that does not depend on the server.

The tool compares the logs of the test program's own topics batch by batch. In the internal topics, it compares only
records of the test program's groups and transactional ids: their keys, values, value versions and order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from kcore.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kcore.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kcore.protocol.records import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    UnknownRecord,
    decode_key,
    decode_value,
)
from kcore.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey
from kcore.protocol.topic_partition import TopicPartition
from kcore_ext.batch.header import parse_header, split_batches
from kcore_ext.batch.records import iter_entries, parse_control
from tools.differential.side import Side

INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
PARTITIONS: Final = 4
"""Number of partitions of each internal topic, as in `tests/apache/broker.py`."""
EARLIEST: Final = -2
LATEST: Final = -1
OWNERS: Final = ("group_id", "group", "transactional_id")
"""Fields of a record's key that name its group or its transactional id."""
MAX_BYTES: Final = 1 << 22
SHARE_STATE: Final = dict.fromkeys(("ShareSnapshotKey", "ShareUpdateKey"), "share state")
"""Name of a key class of `__share_group_state` -> type name. Adjacent records of one type are sorted together."""

Ends = dict[TopicPartition, int]


class _Entry(NamedTuple):
    """A record of an internal topic, or a marker.

    Attributes:
        batch: the header of the record's batch.
        key: the record's key; for a marker "commit" or "abort".
        value: the record's value.
    """

    batch: Any
    key: bytes | str
    value: bytes | None


def internal_ends(side: Side) -> Ends:
    """Returns the end offset of every partition of the internal topics."""
    return _offsets(side, dict.fromkeys(INTERNAL, PARTITIONS), LATEST)


def _offsets(side: Side, topics: dict[str, int], timestamp: int) -> Ends:
    """Returns the start or end offset of each partition.

    Args:
        side: the server to read from.
        topics: topic name -> number of partitions.
        timestamp: `EARLIEST` for the start offsets, `LATEST` for the end offsets.
    """
    rows = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in range(count)]
        )
        for name, count in topics.items()
    ]
    side.send(-1, ListOffsetsRequest(replica_id=-1, topics=rows), 7)
    response: Any = side.receive(-1)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code
    }


def _batches(side: Side, log_partition: TopicPartition, offset: int) -> Iterator[bytes]:
    """Yields the batches of a partition from an offset on."""
    while True:
        partition_request = FetchPartition(
            partition=log_partition.partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES
        )
        row = FetchTopic(topic=log_partition.topic, partitions=[partition_request])
        request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=[row])
        side.send(-1, request, 12)
        response: Any = side.receive(-1)
        partitions = [part for topic in response.responses for part in topic.partitions]
        data = bytes(partitions[0].records or b"") if partitions else b""
        spans = split_batches(data).batches
        if not spans:
            return
        for start, size in spans:
            batch = data[start : start + size]
            if parse_header(batch).next_offset > offset:
                yield batch
        offset = parse_header(data, spans[-1][0]).next_offset


def user_logs(side: Side, topics: dict[str, int]) -> dict[str, Any]:
    """Returns the logs of topics as plain values: first offset, end, and batches.

    Args:
        side: the server to read from.
        topics: name -> number of partitions.
    """
    if not topics:
        return {}
    starts, ends = _offsets(side, topics, EARLIEST), _offsets(side, topics, LATEST)
    return {
        str(log_partition): {
            "start": start,
            "end": ends.get(log_partition),
            "batches": [one for batch in _batches(side, log_partition, start) for one in side.plain(batch, "records")],
        }
        for log_partition, start in sorted(starts.items())
    }


def last_records(side: Side, topics: dict[str, int]) -> dict[str, Any]:
    """Returns what compaction keeps of the logs of topics without transactions, as plain values.

    Args:
        side: the server to read from.
        topics: name -> number of partitions.

    Returns:
        For each partition its start, its end, and for each key the offset and the value of the last record.
    """
    if not topics:
        return {}
    starts, ends = _offsets(side, topics, EARLIEST), _offsets(side, topics, LATEST)
    return {
        str(log_partition): {
            "start": start,
            "end": ends.get(log_partition),
            "records": {
                repr(key): (offset, value)
                for batch in _batches(side, log_partition, start)
                for offset, _, key, value in iter_entries(batch)
            },
        }
        for log_partition, start in sorted(starts.items())
    }


def internal_records(side: Side, ends: Ends, name: str) -> dict[str, list[Any]]:
    """Returns the records of a test program by group or transactional id, in the order of the log.

    Args:
        side: the server to read from.
        ends: the offsets from which to read.
        name: the beginning of the test program's names.
    """
    by_owner: dict[str, list[Any]] = {}
    for log_partition in sorted(ends):
        owners: dict[int, str] = {}  # the group that a producer has written to within its transaction
        for entry in _entries(side, log_partition, ends[log_partition]):
            producer_id = entry.batch.producer_id
            if isinstance(entry.key, str):
                owner = owners.pop(producer_id, "")
                if owner:
                    by_owner[owner].append({"marker": entry.key, "producer": side.plain(producer_id, "producer_id")})
                continue
            key = decode_key(log_partition.topic, entry.key)
            owner = _owner(key)
            if not owner.startswith(name):
                continue
            if entry.batch.is_transactional:
                owners[producer_id] = owner
            by_owner.setdefault(owner, []).append(_plain_entry(side, key, entry))
    return {owner: _in_fixed_order(rows) for owner, rows in by_owner.items()}


def _in_fixed_order(rows: list[dict[str, Any]]) -> list[Any]:
    """Sorts successive records of one type by their keys, because Kafka takes members and topics from hash maps.

    Records of `__share_group_state` are sorted by share partition, because Kafka's persister writes share partitions
    independently of each other.
    """
    runs = [list(run) for _, run in groupby(rows, lambda row: SHARE_STATE.get(row.get("type"), row.get("type")))]
    return [row for run in runs for row in sorted(run, key=lambda row: json.dumps(row.get("key"), default=repr))]


def _entries(side: Side, log_partition: TopicPartition, offset: int) -> Iterator[_Entry]:
    for batch in _batches(side, log_partition, offset):
        header = parse_header(batch)
        if header.is_control:
            yield _Entry(header, "commit" if parse_control(batch).is_commit else "abort", None)
            continue
        for _, _, key, value in iter_entries(batch):
            yield _Entry(header, key or b"", value)


def _owner(key: Any) -> str:
    for field in OWNERS:
        owner = getattr(key, field, None)
        if owner is not None:
            return str(owner)
    return ""


def _plain_entry(side: Side, key: Any, entry: _Entry) -> dict[str, Any]:
    value = decode_value(key, entry.value)
    name = f"unknown type {key.record_type}" if isinstance(key, UnknownRecord) else type(key).__name__
    plain: dict[str, Any] = {"type": name, "key": side.plain(key)}
    if entry.batch.is_transactional:
        plain["producer"] = side.plain(entry.batch.producer_id, "producer_id")
    if value is None:
        plain["value"] = None
    else:
        plain["version"] = int.from_bytes((entry.value or b"")[:2], "big")
        plain["value"] = side.plain(value)
        if isinstance(key, ConsumerGroupRegularExpressionKey):
            del plain["value"]["version"]  # the metadata's version, which counts the changes of all test programs
    return plain
