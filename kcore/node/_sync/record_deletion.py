# Made by tools/generate_sync.py from _async/record_deletion.py: change that file, then run the program.
"""Deletion of the records before an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.errors import raise_partition_errors
from kcore.node._sync.calls import Calls
from kcore.node.arguments import MAX_OFFSET, is_whole
from kcore.node.requests import list_offsets_request, listed_offsets
from kcore.node.types import TopicPartition
from kcore.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kcore.protocol.messages.list_offsets import ListOffsetsRequest

END = -1
"""Special timestamp in ListOffsets requests, which requests the end offset of a partition."""
TIMEOUT_MS = 30_000


def delete_records(calls: Calls, offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """Deletes the records before offsets, and returns the new start offsets.

    The function replaces None by the end of the partition once, before the first request. If it repeats the request
    after a lost response, it therefore deletes no newer records.

    Args:
        calls: the node's requests.
        offsets: partition -> the offset of the first record to keep; None: no record is kept.

    Raises:
        KafkaError, PartitionErrors: the server refused partitions. The records of other partitions may be deleted.
        TypeError: an offset is neither an int nor None.
        ValueError: an offset is negative or too large.
    """
    for partition, offset in offsets.items():
        if offset is not None and not is_whole(offset):
            raise TypeError(f"the offset of {partition} is {offset!r}; valid: an int, or None for all records")
        if offset is not None and not 0 <= offset <= MAX_OFFSET:
            raise ValueError(f"the offset of {partition} is {offset}; valid: 0 or more, or None for all records")
    ends = _ends(calls, [partition for partition, offset in offsets.items() if offset is None])
    known = {partition: ends[partition] if offset is None else offset for partition, offset in offsets.items()}
    deleted = calls.call_leaders(known, _request, _start_offsets)
    return {partition: deleted[partition] for partition in sorted(deleted)}


def _ends(calls: Calls, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Looks up the high watermark of each partition."""

    def make_request(requested: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        return list_offsets_request(requested, "read_uncommitted", calls.transport.leader_epoch)

    return calls.call_leaders(dict.fromkeys(partitions, END), make_request, listed_offsets)


def _request(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for (topic, partition), offset in offsets.items():
        row = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics.setdefault(topic, []).append(row)
    rows = [DeleteRecordsTopic(name=topic, partitions=rows) for topic, rows in topics.items()]
    return DeleteRecordsRequest(topics=rows, timeout_ms=TIMEOUT_MS)


def _start_offsets(response: Any, total: int) -> dict[TopicPartition, int]:
    rows = {
        TopicPartition(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions
    }
    if len(rows) < total:
        raise LookupError(f"the response has {len(rows)} of {total} partitions")
    raise_partition_errors("deletion of records", {key: row.error_code for key, row in rows.items()}, total)
    return {key: row.low_watermark for key, row in rows.items()}
