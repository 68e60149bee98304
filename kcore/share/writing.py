"""The choice between an update and a snapshot when the delivery state of a share partition changes (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.share.batches import combine
from kcore.share.state import snapshot_record, update_record

if TYPE_CHECKING:
    from kcore.runtime.machine import Record
    from kcore.share.batches import Batch
    from kcore.share.shard import ShareShard
    from kcore.share.state import SharePartitionKey
    from kcore_ext.share.states import ShareState


def write_record(
    machine: ShareShard,
    key: SharePartitionKey,
    state: ShareState,
    *,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: list[Batch],
) -> Record:
    """Returns the record of a change: an update, or a snapshot after enough updates since the last snapshot.

    Args:
        machine: the shard's state machine.
        key: the share partition.
        state: the state of the share partition.
        leader_epoch: the leader epoch of the record.
        start_offset: the new start offset; -1: no change.
        delivery_complete_count: the new number of offsets from the start offset on whose delivery is complete.
        batches: the batches with changed delivery states.
    """
    if state.updates < machine.max_updates:
        return update_record(
            key,
            state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=combine((), batches, start_offset),
        )
    if start_offset == -1:
        start_offset = state.start_offset
    wall_ms = machine.now.wall_ms
    return snapshot_record(
        key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        batches=combine(state.batches, batches, start_offset),
        create_timestamp=wall_ms,
        write_timestamp=wall_ms,
    )
