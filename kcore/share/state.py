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

    from kcore.share.batches import Batch, Batches


class SharePartitionKey(NamedTuple):
    """The identity of a share partition.

    Attributes:
        group_id: the share group.
        topic_id: the topic's id, 16 bytes.
        partition: the partition.
    """

    group_id: str
    topic_id: bytes
    partition: int


class ShareState:
    """The state of one share partition. Only `ShareShard.replay` changes it.

    Attributes:
        snapshot_epoch: the number of the last snapshot.
        state_epoch: increases when the group initializes the share partition.
        leader_epoch: the leader epoch of the last Read.
        start_offset: the first offset that may be delivered; -1 if the group's reset policy decides.
        delivery_complete_count: the number of offsets from `start_offset` on whose delivery is complete; -1 if unknown.
        batches: the delivery states from `start_offset` on.
        create_timestamp: the time of the last snapshot that a request caused.
        write_timestamp: the time of the last snapshot.
        highest_state_epoch: requests with a lower state epoch are fenced.
        highest_leader_epoch: requests with a lower leader epoch are fenced.
        updates: the number of updates since the last snapshot that it caused; smaller after a load of a pruned log.
        snapshot_offset: the offset of the last snapshot; the log below the lowest one can be deleted.
    """

    __slots__ = (
        "batches",
        "create_timestamp",
        "delivery_complete_count",
        "highest_leader_epoch",
        "highest_state_epoch",
        "leader_epoch",
        "snapshot_epoch",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "updates",
        "write_timestamp",
    )

    def __init__(self) -> None:
        self.snapshot_epoch = 0
        self.state_epoch = 0
        self.leader_epoch = 0
        self.start_offset = -1
        self.delivery_complete_count = -1
        self.batches: Batches = ()
        self.create_timestamp = -1
        self.write_timestamp = -1
        self.highest_state_epoch = -1
        self.highest_leader_epoch = -1
        self.updates = 0
        self.snapshot_offset = -1

    def apply_snapshot(self, offset: int, value: ShareSnapshotValue, max_updates: int) -> None:
        """Replaces the state by a snapshot.

        Args:
            offset: the record's offset.
            value: the snapshot.
            max_updates: the number of updates after which a Write makes a snapshot. As in Kafka, the count of updates
                starts again only at a snapshot that this limit caused.
        """
        self.snapshot_epoch = value.snapshot_epoch
        self.state_epoch = value.state_epoch
        self.leader_epoch = value.leader_epoch
        self.start_offset = value.start_offset
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = combine((), batches_of(value.state_batches), -1) if value.state_batches else ()
        self.create_timestamp = value.create_timestamp
        self.write_timestamp = value.write_timestamp
        self.highest_state_epoch = max(self.highest_state_epoch, value.state_epoch)
        self.highest_leader_epoch = max(self.highest_leader_epoch, value.leader_epoch)
        self.snapshot_offset = offset
        if self.updates >= max_updates:
            self.updates = 0

    def apply_update(self, value: ShareUpdateValue) -> None:
        """Merges an update into the state."""
        self.snapshot_epoch = value.snapshot_epoch
        if value.start_offset != -1:
            self.start_offset = value.start_offset
        if value.leader_epoch != -1:
            self.leader_epoch = value.leader_epoch
            self.highest_leader_epoch = max(self.highest_leader_epoch, value.leader_epoch)
        self.delivery_complete_count = value.delivery_complete_count
        self.batches = combine(self.batches, batches_of(value.state_batches), self.start_offset)
        self.updates += 1

    def snapshot(self, key: SharePartitionKey, wall_ms: int, create_timestamp: int | None = None) -> Record:
        """Returns a snapshot of the present state, with the next snapshot epoch.

        Args:
            key: the share partition.
            wall_ms: the present time.
            create_timestamp: the creation time in the record; None: the present time.
        """
        return snapshot_record(
            key,
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            batches=self.batches,
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
    """Returns a ShareUpdate record, which belongs to the last snapshot with its snapshot epoch."""
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
    """Returns the record that deletes a share partition. Its key is a snapshot key."""
    return Record(ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None)
