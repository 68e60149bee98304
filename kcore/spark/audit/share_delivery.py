"""Checks of the delivery state of share partitions (KIP-932): start offsets, delivery counts, state batches.

The engine's own state machine replays the log, and each record is compared with the state before it. After an
initialization, the state is not compared with earlier state, because AlterShareGroupOffsets may move the start offset
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kcore.printable import counted
from kcore.protocol.records.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from kcore.protocol.records.share_update import ShareUpdateKey, ShareUpdateValue
from kcore.share.batches import Batch, batches_of
from kcore.share.state import SharePartitionKey, key_of
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.finding import AuditObservation, Evidence
from kcore.spark.audit.share_groups import group_number
from kcore.spark.state.machines import share_machine

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard
    from kcore.spark.events.event import EventRow
    from kcore_ext.share.states import ShareState

COMPLETE: Final = frozenset({2, 4})
"""Delivery states of records whose delivery is complete: 2, acknowledged, and 4, archived."""
UNCHANGED: Final = -1


class ShareDelivery(Check):
    """The check that the delivery of records only advances."""

    __slots__ = ("_evidence", "_machine")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._machine: ShareShard = share_machine()
        self._evidence: dict[SharePartitionKey, Evidence] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {ShareSnapshotKey: self._snapshot, ShareUpdateKey: self._update}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._machine = share_machine()
        self._evidence.clear()

    def end(self) -> None:
        """Emits an `AuditObservation` for every live state, to compare with the lists of the groups."""
        for state in self._machine.states.values():
            key = key_of(state)
            evidence = self._evidence[key]
            self.log.emit(
                AuditObservation(
                    "share-state",
                    group_number(key.group_id),
                    key.topic_id.hex(),
                    key.partition,
                    max(state.create_timestamp, evidence.timestamp_ms),
                    -1,
                    evidence.topic,
                    evidence.partition,
                    evidence.offset,
                    group_id=key.group_id,
                )
            )

    def _snapshot(self, row: EventRow, key: ShareSnapshotKey, value: ShareSnapshotValue | None) -> None:
        share_partition = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        before = self._machine.states.get(share_partition)
        if value is not None:
            batches = batches_of(value.state_batches)
            begins = value.leader_epoch == 0 and not batches  # an initialization
            if self._check_batches(row, share_partition, batches) and before is not None and not begins:
                self._check_start(row, share_partition, before, value.start_offset)
                self._check_counts(row, share_partition, before, batches, value.start_offset)
                self._check_complete(row, share_partition, before, batches)
        self._replay(row, key, value, share_partition)

    def _update(self, row: EventRow, key: ShareUpdateKey, value: ShareUpdateValue | None) -> None:
        share_partition = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        before = self._machine.states.get(share_partition)
        if value is not None:
            batches = batches_of(value.state_batches)
            if self._check_batches(row, share_partition, batches) and before is not None:
                if value.start_offset != UNCHANGED:
                    self._check_start(row, share_partition, before, value.start_offset)
                self._check_complete(row, share_partition, before, batches)
        self._replay(row, key, value, share_partition)

    def _replay(self, row: EventRow, key: Any, value: Any, share_partition: SharePartitionKey) -> None:
        self._machine.replay(row.offset, -1, key, value)
        if share_partition in self._machine.states:
            self._evidence[share_partition] = self.log.evidence_of(row)
        else:
            self._evidence.pop(share_partition, None)

    # ---- the rules

    def _check_batches(self, row: EventRow, share_partition: SharePartitionKey, batches: Sequence[Batch]) -> bool:
        """Checks that the batches of a record ascend without overlaps; returns False if they do not.

        If they do not ascend, the caller skips the other checks, which need ascending batches.
        """
        end = -1
        for first, last, _, _ in batches:
            if first <= end or last < first:
                sentence = f"a record lists offsets {first} to {last} after offset {end}"
                self._report("share-batches-overlap", row, share_partition, sentence)
                return False
            end = last
        return True

    def _check_start(
        self, row: EventRow, share_partition: SharePartitionKey, before: ShareState, start_offset: int
    ) -> None:
        if start_offset < before.start_offset:
            sentence = f"the start offset fell from {before.start_offset} to {start_offset}"
            self._report("share-start-offset-decreased", row, share_partition, sentence)

    def _check_counts(
        self,
        row: EventRow,
        share_partition: SharePartitionKey,
        before: ShareState,
        batches: Sequence[Batch],
        start_offset: int,
    ) -> None:
        """Checks that a snapshot decreases no delivery count.

        Records before the snapshot's start offset are not checked.
        """
        for old, overlapping in _overlaps(before.batches, batches):
            first, last, _, count = old
            first = max(first, start_offset)  # the first offset that no batch of the snapshot has shown yet
            for new in overlapping:
                if new[0] > first:
                    break
                if new[3] < count and new[1] >= first:
                    self._delivery_count_decreased(row, share_partition, first, count, new[3])
                    return
                first = max(first, new[1] + 1)
            if first <= last:
                self._delivery_count_decreased(row, share_partition, first, count, 0)
                return

    def _delivery_count_decreased(
        self, row: EventRow, share_partition: SharePartitionKey, offset: int, was: int, now: int
    ) -> None:
        sentence = f"the delivery count of the record at offset {offset} fell from {was} to {now}"
        self._report("delivery-count-decreased", row, share_partition, sentence)

    def _check_complete(
        self, row: EventRow, share_partition: SharePartitionKey, before: ShareState, batches: Sequence[Batch]
    ) -> None:
        """Checks that no record is delivered again after its delivery was complete."""
        for old, overlapping in _overlaps(before.batches, batches):
            if old[2] not in COMPLETE:
                continue
            for new in overlapping:
                if new[3] > old[3]:
                    first, was = max(old[0], new[0]), old[3]
                    sentence = (
                        f"the record at offset {first} was complete after {counted(was, 'deliveries')}, but now has "
                        f"{new[3]}"
                    )
                    self._report("record-acknowledged-twice", row, share_partition, sentence)
                    return

    def _report(self, kind: str, row: EventRow, share_partition: SharePartitionKey, sentence: str) -> None:
        evidence = [self._evidence[share_partition]] if share_partition in self._evidence else []
        topic_id = share_partition.topic_id.hex()
        self.log.report(
            kind,
            [*evidence, self.log.evidence_of(row)],
            f"In {topic_id}-{share_partition.partition} of share group {share_partition.group_id}, {sentence}.",
            group_id=share_partition.group_id,
            about=(topic_id, share_partition.partition),
        )


def _overlaps(before: Iterable[Batch], after: Sequence[Batch]) -> Iterator[tuple[Batch, Sequence[Batch]]]:
    """Yields each batch of the earlier state, with the batches of the new record that overlap it.

    Both sequences of batches ascend.
    """
    low = 0
    for old in before:
        while low < len(after) and after[low][1] < old[0]:
            low += 1
        high = low
        while high < len(after) and after[high][0] <= old[1]:
            high += 1
        yield old, after[low:high]
