"""The durable state of one share partition, and the records that change it (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_snapshot import StateBatch as SnapshotBatch
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue
from kcore.protocol.records.share_update import StateBatch as UpdateBatch
from kcore.runtime.machine import Record
from kcore.share.batches import batches_of, combine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcore.share.batches import Batch
    from kcore_ext.share.states import ShareState


class SharePartitionKey(NamedTuple):
    """The identity of a share partition.

    Attributes:
        group_id: the share group.
        topic_id: the topic's id, 16 bytes.
        partition: the number of the topic's partition.
    """

    group_id: str
    topic_id: bytes
    partition: int


def key_of(state: ShareState) -> SharePartitionKey:
    """Returns the key of a state's share partition. The state must be in a `ShareStates` table."""
    return SharePartitionKey(state.group_id, state.topic_id, state.partition)


def apply_snapshot(state: ShareState, offset: int, value: ShareSnapshotValue, max_updates: int) -> None:
    """Replaces a state by a snapshot.

    Args:
        state: the state to replace.
        offset: the record's offset.
        value: the snapshot.
        max_updates: the number of updates after which a WriteShareGroupState request writes a snapshot. As in Kafka, a
            snapshot that is written after fewer updates does not reset the count of updates.
    """
    state.put_snapshot(
        offset,
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        combine((), batches_of(value.state_batches), -1) if value.state_batches else (),
        value.create_timestamp,
        value.write_timestamp,
    )
    if state.updates >= max_updates:
        state.reset_updates()


def apply_update(state: ShareState, value: ShareUpdateValue) -> None:
    """Merges an update into a state."""
    start_offset = state.start_offset if value.start_offset == -1 else value.start_offset
    batches = combine(state.batches, batches_of(value.state_batches), start_offset)
    state.put_update(value.snapshot_epoch, value.leader_epoch, start_offset, value.delivery_complete_count, batches)


def snapshot_of(state: ShareState, wall_ms: int, create_timestamp: int | None = None) -> Record:
    """Returns a snapshot of a state, with the next snapshot epoch.

    Args:
        state: the state to store.
        wall_ms: the current time, in ms since the epoch.
        create_timestamp: the creation time in the record; None: `wall_ms`.
    """
    return snapshot_record(
        key_of(state),
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        batches=state.batches,
        create_timestamp=wall_ms if create_timestamp is None else create_timestamp,
        write_timestamp=wall_ms,
    )


def snapshot_record(
    key: SharePartitionKey,
    *,
    snapshot_epoch: int,
    state_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[Batch],
    create_timestamp: int,
    write_timestamp: int,
) -> Record:
    """Returns a ShareSnapshot record."""
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        create_timestamp=create_timestamp,
        write_timestamp=write_timestamp,
        state_batches=[
            SnapshotBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    return Record(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value)


def update_record(
    key: SharePartitionKey,
    snapshot_epoch: int,
    *,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Sequence[Batch],
) -> Record:
    """Returns a ShareUpdate record. `snapshot_epoch` is the epoch of the snapshot that it updates."""
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[
            UpdateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    return Record(ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value)


def tombstone(key: SharePartitionKey) -> Record:
    """Returns the record that deletes a share partition: a snapshot key without a value."""
    return Record(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None)
