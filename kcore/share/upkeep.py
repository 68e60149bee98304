"""The periodic work of a share shard: snapshots of idle share partitions, and pruning of the log (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.runtime.machine import Outcome, Record
from kcore.runtime.shard_timer import ShardTimer
from kcore.share.state import snapshot_of

if TYPE_CHECKING:
    from kcore.share.shard import ShareShard

INTERVAL_MS = 300_000
"""Time in ms between two runs. A run writes a new snapshot of each share partition whose last snapshot is at least this
old."""

SLICE_STATES = 1_000
SLICE_RECORDS = 200
SLICE_BATCHES = 10_000
"""Maximum number of state batches in the snapshots of one slice, unless a single snapshot has more batches.

The limit ensures that the snapshots of a slice fit into one log batch.
"""


class UpkeepTimer(ShardTimer):
    """The timer of a share shard's periodic work.

    If the last snapshot of a share partition is older than `INTERVAL_MS`, the timer writes a new snapshot, called a
    *cold* snapshot. Older records can then be deleted.

    Args:
        machine: the shard's state machine.
    """

    __slots__ = ("_machine", "_running")

    def __init__(self, machine: ShareShard) -> None:
        self._machine = machine
        self._running = False
        self.timer = None

    def arm(self) -> None:
        """Arms the timer for one interval from now."""
        machine = self._machine
        self.timer = machine.context.schedule(machine.now.now_ms + INTERVAL_MS, self)

    def fire(self) -> None:
        """Prunes the log and starts a run of cold snapshots, unless share groups are off or a run is in progress."""
        self.arm()
        machine = self._machine
        if not machine.services.enabled():
            return
        prune(machine)
        if not self._running and machine.states:
            self._running = True
            machine.context.in_slices(self._run())

    def _run(self) -> Iterator[Outcome | None]:
        try:
            yield from snapshot_cold(self._machine)
        finally:
            self._running = False


def prune(machine: ShareShard) -> None:
    """Deletes the records below the oldest snapshot of the existing share partitions.

    A load of the shard does not need these records.
    """
    before = machine.states.lowest_offset()
    if before > 0 and before != machine.pruned_before:
        machine.services.prune(machine.context.shard.index, before)
        machine.pruned_before = before


def snapshot_cold(machine: ShareShard) -> Iterator[Outcome | None]:
    """Writes the cold snapshots that are due, in slices.

    As in Kafka, writes no snapshot while the last snapshot of every share partition is a cold snapshot. Otherwise each
    run would write the idle share partitions again.

    Yields:
        The outcome of each slice, which contains its snapshots; None if the slice has no snapshot.
    """
    if not machine.states.has_requested_snapshot():
        return
    records: list[Record] = []
    remaining, batches = SLICE_STATES, 0
    for state in machine.states.values():
        if records and batches + len(state.batches) > SLICE_BATCHES:
            yield Outcome(records)
            remaining, records, batches = SLICE_STATES, [], 0
        remaining -= 1
        # A state that was deleted between two slices has no group.
        if state.group_id is not None and machine.now.wall_ms - state.write_timestamp >= INTERVAL_MS:
            batches += len(state.batches)
            records.append(snapshot_of(state, machine.now.wall_ms, state.create_timestamp))
        if not remaining or len(records) >= SLICE_RECORDS:
            yield Outcome(records) if records else None
            remaining, records, batches = SLICE_STATES, [], 0
    if records:
        yield Outcome(records)
