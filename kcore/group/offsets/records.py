"""The records of committed offsets, and their conversion to the objects in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.protocol.schema import ZERO_UUID
from kcore.runtime.machine import Record
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcore.group.offsets.store import OffsetStore
    from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitValue
    from kcore.protocol.records.offset_commit import OffsetCommitValue

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1
INT64_MAX = (1 << 63) - 1

RECORD_BYTES: Final = 100
"""Upper bound of a tombstone's size in bytes, without the names in it."""

MAX_CHAR_BYTES: Final = 4
"""Maximum number of bytes that one character of a group id takes in UTF-8."""


def expire_timestamp(retention_time_ms: int, now_ms: int) -> int:
    """Returns the expiration time of an offset that was committed with a retention time.

    Args:
        retention_time_ms: the retention time in an OffsetCommit of v2-4; -1 if `offsets.retention.minutes` applies.
        now_ms: milliseconds since the epoch.

    Returns:
        The expiration time in milliseconds since the epoch, limited to an int64. `NO_EXPIRY` if `retention_time_ms` is
        -1.
    """
    if retention_time_ms == NO_EXPIRY:
        return NO_EXPIRY
    return min(now_ms + retention_time_ms, INT64_MAX)


def tombstone(group_id: str, topic: str, partition: int) -> Record:
    """Returns the record that removes the committed and the pending offsets of a partition."""
    return Record(CommitKey(group_id, topic, partition), None)


def tombstones_of_group(store: OffsetStore, group_id: str, max_bytes: int) -> tuple[list[Record], bool]:
    """Returns records that remove offsets of a group, for DeleteGroups.

    The partitions with committed offsets come first. Partitions that have only pending offsets follow.

    Args:
        store: the offsets.
        group_id: the group whose offsets are removed.
        max_bytes: maximum size of the records in the log. The result may exceed it by the size of the last record.

    Returns:
        The records, and True if they remove all offsets of the group.
    """
    records: list[Record] = []
    size_bytes = 0
    for topic, partition in _partitions_of_group(store, group_id):
        if size_bytes >= max_bytes:
            return records, False
        records.append(tombstone(group_id, topic, partition))
        size_bytes += tombstone_bytes(group_id, topic)
    return records, True


def _partitions_of_group(store: OffsetStore, group_id: str) -> Iterator[tuple[str, int]]:
    materialised = store.topics(group_id)
    for topic, partitions in materialised.items():
        for partition in partitions:
            yield topic, partition
    for topic, open_partitions in store.pending_topics(group_id).items():
        present = materialised.get(topic, {})
        for partition in open_partitions:
            if partition not in present:
                yield topic, partition


def tombstone_bytes(group_id: str, topic: str) -> int:
    """Returns an upper bound of the size of an offset's tombstone in the log, in bytes."""
    return RECORD_BYTES + MAX_CHAR_BYTES * len(group_id) + len(topic)


def materialised(record_offset: int, value: OffsetCommitValue) -> OffsetAndMetadata:
    """Converts an offset record to the object that the store keeps in memory.

    Args:
        record_offset: the record's offset in the log.
        value: the record's value, decoded from any version.
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
    """Converts an offset record with a key of version 0 to the object that the store keeps in memory."""
    return OffsetAndMetadata(
        record_offset, value.offset, NO_LEADER_EPOCH, value.metadata, value.commit_timestamp, NO_EXPIRY, ZERO_UUID
    )
