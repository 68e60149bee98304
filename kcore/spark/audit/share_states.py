"""Checks of share partition state in `__share_group_state` (KIP-932): its three epochs.

The snapshot epoch increases with each snapshot; an update carries the epoch of the newest snapshot. The state epoch was
set by the last initialization. The leader epoch follows the partition's leader; an initialization resets it to 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.finding import Evidence
from kcore.spark.events.event import EventRow

UNCHANGED: Final = -1
"""The value with which a share update record leaves an epoch, offset or count unchanged."""


class _Epochs(NamedTuple):
    snapshot: int
    state: int
    leader: int
    evidence: Evidence


class ShareEpochs(Check):
    """The check of the snapshot, state and leader epochs of share partitions."""

    __slots__ = ("_last",)

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._last: dict[tuple[str, str, int], _Epochs] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {ShareSnapshotKey: self._snapshot, ShareUpdateKey: self._update}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._last.clear()

    def _snapshot(self, row: EventRow, key: ShareSnapshotKey, value: ShareSnapshotValue | None) -> None:
        share_partition = (key.group_id, bytes(key.topic_id).hex(), key.partition)
        if value is None:
            self._last.pop(share_partition, None)
            return
        begins = value.leader_epoch == 0 and not value.state_batches  # an initialization
        leader = UNCHANGED if begins else value.leader_epoch
        self._see(row, share_partition, value.snapshot_epoch, value.state_epoch, leader)
        self._last[share_partition] = _Epochs(
            value.snapshot_epoch, value.state_epoch, value.leader_epoch, self.log.evidence_of(row)
        )

    def _update(self, row: EventRow, key: ShareUpdateKey, value: ShareUpdateValue | None) -> None:
        if value is None:
            return
        share_partition = (key.group_id, bytes(key.topic_id).hex(), key.partition)
        self._see(row, share_partition, value.snapshot_epoch, UNCHANGED, value.leader_epoch)
        before = self._last.get(share_partition)
        leader, state = value.leader_epoch, UNCHANGED
        if before is not None:
            state = before.state
            leader = before.leader if leader == UNCHANGED else leader
        self._last[share_partition] = _Epochs(value.snapshot_epoch, state, leader, self.log.evidence_of(row))

    def _see(
        self, row: EventRow, share_partition: tuple[str, str, int], snapshot: int, state: int, leader: int
    ) -> None:
        before = self._last.get(share_partition)
        if before is None:
            return
        group_id, topic_id, partition = share_partition
        for name, was, now in (
            ("snapshot", before.snapshot, snapshot),
            ("state", before.state, state),
            ("leader", before.leader, leader),
        ):
            if now != UNCHANGED and now < was:
                self.log.report(
                    f"{name}-epoch-decreased",
                    [before.evidence, self.log.evidence_of(row)],
                    f"The {name} epoch of {topic_id}-{partition} in share group {group_id} fell from {was} to {now}.",
                    group_id=group_id,
                    about=(topic_id, partition),
                )
