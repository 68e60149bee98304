"""The records of committed offsets, and their conversion to the objects in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Record
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

if TYPE_CHECKING:
    from kcore.group.offsets.store import OffsetStore
    from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitValue
    from kcore.protocol.records.offset_commit import OffsetCommitValue

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1
INT64_MAX = (1 << 63) - 1


def expire_timestamp(retention_time_ms: int, now_ms: int) -> int:
    """Returns the expiration time of an offset that was committed with a retention time.

    Args:
        retention_time_ms: as in OffsetCommit v2-4; -1 for the group's own retention.
        now_ms: milliseconds since the epoch.

    Returns:
        Milliseconds since the epoch, at most the largest that a record can hold; `NO_EXPIRY` for none.
    """
    if retention_time_ms == NO_EXPIRY:
        return NO_EXPIRY
    return min(now_ms + retention_time_ms, INT64_MAX)


def tombstone(group_id: str, topic: str, partition: int) -> Record:
    """Returns the record that removes an offset, materialised and pending."""
    return Record(CommitKey(group_id, topic, partition), None)


def tombstones(group_id: str, partitions: Iterable[tuple[str, int]]) -> list[Record]:
    """Returns the records that remove a group's offsets of the given (topic, partition) pairs."""
    return [tombstone(group_id, topic, partition) for topic, partition in partitions]


def tombstones_of_group(store: OffsetStore, group_id: str) -> list[Record]:
    """Returns the records that remove all offsets of a group (DeleteGroups): materialised ones, then merely pending
    ones."""
    materialised = store.topics(group_id)
    records = tombstones(group_id, ((topic, p) for topic, partitions in materialised.items() for p in partitions))
    for topic, partitions in store.pending_topics(group_id).items():
        present = materialised.get(topic, {})
        records += tombstones(group_id, ((topic, p) for p in partitions if p not in present))
    return records


def materialised(record_offset: int, value: OffsetCommitValue) -> OffsetAndMetadata:
    """Returns the object in memory for an offset record.

    Args:
        record_offset: the record's offset in the log.
        value: its value, decoded from any version.
    """
    return OffsetAndMetadata(
        record_offset,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def materialised_legacy(record_offset: int, value: LegacyOffsetCommitValue) -> OffsetAndMetadata:
    """Returns the object in memory for an offset record with a key of version 0."""
    return OffsetAndMetadata(
        record_offset, value.offset, NO_LEADER_EPOCH, value.metadata, value.commit_timestamp, NO_EXPIRY, ZERO_UUID
    )
