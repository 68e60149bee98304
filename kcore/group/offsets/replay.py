"""Replay of offset records and of transaction markers: the only code that changes offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.group.offsets.records import materialised, materialised_legacy
from kcore.protocol.records.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record
    from kcore_ext.group.offset_block import OffsetBlock


def replay_commit(
    shard: GroupShard, offset: int, producer_id: int, key: CommitKey, value: OffsetAndMetadata | None
) -> None:
    """Applies a committed offset or its tombstone. An offset of an unknown group creates a simple group.

    Args:
        shard: the state to change.
        offset: the record's offset in the shard's log.
        producer_id: the producer of the record's transaction, -1 for none.
        key: group, topic and partition.
        value: the offset; None removes it.
    """
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    group = shard.groups.get(key.group)
    if group is None:
        group = shard.get_or_create_group(key.group)
    # Use the group's string as the key, so that all offsets of the group share one string object.
    shard.offsets.put(producer_id, group.group_id, key.topic, key.partition, value.place(offset))


def replay_pending_block(shard: GroupShard, offset: int, producer_id: int, block: OffsetBlock[Record]) -> None:
    """Applies the offsets of a transactional commit. `offset` is the offset of its first record in the log."""
    group = shard.groups.get(block.group_id)
    if group is None:
        group = shard.get_or_create_group(block.group_id)
    shard.offsets.put_pending(producer_id, group.group_id, offset, block)


def replay_offset(
    shard: GroupShard, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None
) -> None:
    """Applies an offset record that was decoded by the codec of the log, with the same effect as `replay_commit`."""
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    group = shard.get_or_create_group(key.group)
    shard.offsets.put(producer_id, group.group_id, key.topic, key.partition, materialised(offset, value))


def replay_legacy_offset(
    shard: GroupShard, offset: int, producer_id: int, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> None:
    """Applies an offset record with a key of version 0, with the same effect as `replay_commit`."""
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    group = shard.get_or_create_group(key.group)
    shard.offsets.put(producer_id, group.group_id, key.topic, key.partition, materialised_legacy(offset, value))


def replay_marker(shard: GroupShard, offset: int, producer_id: int, producer_epoch: int, commit: bool) -> None:
    """Applies a transaction marker. The log has checked the producer's epoch."""
    shard.offsets.complete(producer_id, commit)


REPLAY: dict[type, Callable[[GroupShard, int, int, Any, Any], None]] = {
    CommitKey: replay_commit,
    OffsetCommitKey: replay_offset,
    LegacyOffsetCommitKey: replay_legacy_offset,
}
"""Class of a record's key -> function that replays the record, for the records of offsets."""
