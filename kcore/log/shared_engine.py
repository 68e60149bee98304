"""The log engine of one node over a store that several nodes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kcore.log.engine import TAIL_SIZE_BYTES, StagedLogEngine
from kcore.log.errors import FailureReason, LogError
from kcore.log.interface import PartitionKey, PartitionLog
from kcore.log.partition import StagedPartitionLog
from kcore.log.write_set import ClusterChanges, LeaderChange, NewPartition, PartitionMeta, StoredPartition
from kcore.protocol.uuids import METADATA_TOPIC_ID
from kcore_ext.log.partition import CLOSED, DROPPED

if TYPE_CHECKING:
    from kcore.log.storage import Leadership, ReclaimTask, SharedStorage
    from kcore.log.write_set import WriteSet

METADATA: Final = PartitionKey(METADATA_TOPIC_ID, 0)
"""The metadata log. Its leader is the controller, which alone creates, moves and removes partitions."""


class SharedLogEngine(StagedLogEngine):
    """A LogEngine with handles only for the partitions that this node leads or follows.

    `adopt` makes handles, `release` closes them. The storage refuses a write set with a partition that this node does
    not lead any more (`FencedWriteError`). The staged changes are then discarded, as after any failed write.

    Args:
        storage: the storage through which this node accesses the store.
        durability: `fsync` or `os`, as the storage was opened.
        tail_size_bytes: the limit of the newest batches kept in memory.
    """

    __slots__ = ("_created", "_moved", "_removed", "_sweeps", "durability", "shared")

    def __init__(
        self, storage: SharedStorage, durability: str = "fsync", tail_size_bytes: int = TAIL_SIZE_BYTES
    ) -> None:
        self.durability = durability
        self.shared = storage
        self._forget_changes()
        self._sweeps = False  # True if the store may have removed partitions that are not reclaimed
        super().__init__(storage, tail_size_bytes)

    @property
    def name(self) -> str:
        """Implements `LogEngine.name`."""
        return "in the cluster's store"

    # -- leadership

    def adopt(self, partitions: Sequence[Leadership]) -> list[PartitionLog]:
        """Takes over partitions that this node leads now: reads them, and returns handles to append to them.

        If a partition was followed before, its handle is kept. The call reads the store, so it may block.

        Raises:
            FencedWriteError: this node does not lead the named partitions. No partition is taken over.
            StoreUnavailableError: the store cannot be reached. No partition is taken over.
            LogError: a partition has staged changes under its present epoch.
        """
        self._require_adoptable(partitions)
        return self.install(self.shared.adopt(partitions), partitions)

    def install(self, stored: Sequence[StoredPartition], partitions: Sequence[Leadership]) -> list[PartitionLog]:
        """Makes handles of partitions that another thread has read with `SharedStorage.adopt`.

        Raises:
            StoreUnavailableError: the store cannot be reached. No partition is taken over.
            LogError: a partition has staged changes under its present epoch. No partition is taken over.
        """
        self._require_adoptable(partitions)
        if any(partition.key == METADATA for partition in partitions):
            # Before the first change: with an old next number, a controller would give new partitions the numbers of
            # others.
            removed, self._next_number = self.shared.removed_numbers()
            self._garbage.update(dict.fromkeys(removed))
        logs: list[PartitionLog] = []
        for found, owned in zip(stored, partitions, strict=True):
            log = self._show_stored(found)
            log.owned_epoch = owned.leader_epoch
            if found.garbage:
                self._garbage[found.meta.number] = log
            logs.append(log)
        return logs

    def follow(self, key: PartitionKey) -> PartitionLog | None:
        """Returns a handle to read a partition of another leader up to its present end; None if it does not exist.

        A later call updates the start and the end of the same handle. If this node has taken over the partition,
        returns the partition's handle unchanged.
        """
        self._require_open()
        if self.owns(key):
            return self._logs[key]
        found = self.shared.look_up(key)
        return None if found is None else self._show_stored(found)

    def show(self, found: StoredPartition) -> PartitionLog:
        """Updates a followed partition to the state that another thread has read with `SharedStorage.look_up`."""
        self._require_open()
        log = self._logs.get(found.key)
        # This node has taken over the partition, or the handle shows a newer state already.
        if log is not None and (log.owned_epoch >= 0 or found.end_offset < log.high_watermark):
            return log
        return self._show_stored(found)

    def owns(self, key: PartitionKey) -> bool:
        """Returns True if this node has taken over a partition and may write to it."""
        log = self._logs.get(key)
        return log is not None and log.owned_epoch >= 0

    def disown(self, key: PartitionKey) -> None:
        """Makes a partition of this node a followed partition: its handle can still be read, but refuses writes."""
        self._require_open()
        log = self._logs.get(key)
        if log is not None:
            self._require_idle(key)
            log.owned_epoch = -1
            self._forget_garbage(log)

    def release(self, key: PartitionKey) -> None:
        """Closes the handle of a partition that another node leads; unknown keys change nothing.

        Raises:
            LogError: the partition has staged changes; commit first.
        """
        self._require_open()
        log = self._logs.get(key)
        if log is not None:
            self._require_idle(key)
            del self._logs[key]
            self._close_handle(log, CLOSED)

    def _require_adoptable(self, partitions: Sequence[Leadership]) -> None:
        """Raises LogError if the log is closed, or if a partition has changes that are not committed."""
        self._require_open()
        for partition in partitions:
            self._require_idle(partition.key)

    def _require_idle(self, key: PartitionKey) -> None:
        log = self._logs.get(key)
        if log is not None and (log._staged or log._sealed is not None):
            raise LogError(f"{key} has changes that are not committed", FailureReason.MISUSE)

    def _show_stored(self, found: StoredPartition) -> StagedPartitionLog:
        """Returns the handle of a partition, created or updated from `found`, the partition's state in the store."""
        log = self._logs.get(found.key)
        if log is None:
            log = self._logs[found.key] = StagedPartitionLog(
                self, found.key, found.meta, found.end_offset, durable=True
            )
            return log
        if found.end_offset != log.high_watermark or found.meta != log._durable_meta:
            # Batches of another leader are not in memory, and the index by time does not have them.
            log._tail.clear()
            log._time_index = None
            log._meta = log._durable_meta = found.meta
            log.log_start_offset = found.meta.log_start_offset
            log.end_offset = log.high_watermark = found.end_offset
            log.leader_epoch = found.meta.epochs[-1].epoch if found.meta.epochs else -1
        return log

    def _close_handle(self, log: StagedPartitionLog, state: int) -> None:
        log._state = state
        log._tail.clear()
        self._forget_garbage(log)

    def _forget_garbage(self, log: StagedPartitionLog) -> None:
        if self._garbage.get(log._number) is log:
            del self._garbage[log._number]

    # -- the controller's changes

    @property
    def controller_epoch(self) -> int:
        """The epoch in which this node leads the metadata log; -1 if it does not."""
        log = self._logs.get(METADATA)
        return -1 if log is None else log.owned_epoch

    def create(self, key: PartitionKey, leader: int, leader_epoch: int) -> None:
        """Stages a new partition with its leader. Only the controller may call `create`, `move` and `remove`."""
        self._require_whole()
        meta = PartitionMeta(self._next_number, 0, (), None)
        self._next_number += 1
        self._new_numbers = True
        self._created[key] = NewPartition(PartitionKey(*key), meta, leader, leader_epoch)

    def move(self, key: PartitionKey, leader: int, leader_epoch: int, previous_epoch: int) -> None:
        """Stages a new leader of a partition. Of several moves in a write set, only the last move reaches the store."""
        self._require_whole()
        created, moved = self._created.get(key), self._moved.get(key)
        if created is not None:
            self._created[key] = created._replace(leader=leader, leader_epoch=leader_epoch)
            return
        if moved is not None:
            previous_epoch = moved.previous_epoch
        self._moved[key] = LeaderChange(PartitionKey(*key), leader, leader_epoch, previous_epoch)

    def remove(self, key: PartitionKey) -> None:
        """Stages the removal of a partition from the store; `reclaim` frees its space."""
        self._require_whole()
        self._moved.pop(key, None)
        if self._created.pop(key, None) is None:
            self._removed.append(PartitionKey(*key))

    # -- overrides of the engine of one node

    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """Returns the handle of a partition that this node has taken over or follows.

        Raises:
            LogError: this node has neither taken over nor followed the partition. Only the controller creates
                partitions, with `create`.
        """
        self._require_open()
        log = self._logs.get(key)
        if log is None:
            raise LogError(f"{key} is not led by this node", FailureReason.MISUSE)
        return log

    def drop(self, key: PartitionKey) -> None:
        """Discards the staged changes of a partition and closes its handle.

        The partition stays in the store until the controller calls `remove`.
        """
        self._require_open()
        log = self._logs.pop(key, None)
        if log is not None:
            if log._staged:
                self._dirty.remove(log)
                log._discard()
            self._close_handle(log, DROPPED)

    @property
    def dirty(self) -> bool:
        """Implements `LogEngine.dirty`."""
        return bool(self._created or self._moved or self._removed) or super().dirty

    def _take_staged(self) -> WriteSet:
        """Moves all staged changes, including the controller's, into a write set."""
        changes = None
        if self._created or self._moved or self._removed or self._metas:
            changes = ClusterChanges(
                self.controller_epoch,
                tuple(self._created.values()),
                tuple(self._moved.values()),
                tuple(self._removed),
            )
        sealed = super()._take_staged()
        if changes is not None:
            sealed.cluster = changes
            self._forget_changes()
        return sealed

    def commit(self) -> None:
        """Implements `LogEngine.commit`."""
        if (self._created or self._moved or self._removed) and not (self._dirty or self._metas or self._drops):
            self.rollback()
            raise LogError("changes of leaders need their record in the metadata log", FailureReason.MISUSE)
        super().commit()

    def _show(self, write_set: WriteSet) -> None:
        super()._show(write_set)
        if write_set.cluster is not None and write_set.cluster.removed:
            self._sweeps = True

    def _discard_staged(self) -> None:
        self._forget_changes()
        super()._discard_staged()

    def _forget_staged(self) -> None:
        self._forget_changes()
        super()._forget_staged()

    def _forget_changes(self) -> None:
        self._created: dict[PartitionKey, NewPartition] = {}
        self._moved: dict[PartitionKey, LeaderChange] = {}
        self._removed: list[PartitionKey] = []

    def _add_garbage(self, log: StagedPartitionLog) -> None:
        if log.owned_epoch >= 0:
            super()._add_garbage(log)

    def _reclaim_task(self, number: int, log: StagedPartitionLog | None) -> ReclaimTask:
        task = super()._reclaim_task(number, log)
        return task._replace(leader_epoch=self.controller_epoch if log is None else log.owned_epoch)

    def reclaim(self, max_batches: int) -> bool:
        """Implements `LogEngine.reclaim`.

        Entries of partitions that other nodes have taken over are left to those nodes.
        """
        decides = self.controller_epoch >= 0
        for number, log in list(self._garbage.items()):
            if not decides if log is None else self._logs.get(log.key) is not log or log.owned_epoch < 0:
                del self._garbage[number]
        if self._sweeps and decides:
            self._sweeps = False
            try:
                self._garbage.update(dict.fromkeys(self.shared.removed_numbers()[0]))
            except BaseException:
                self._sweeps = True  # the next call tries again
                raise
        return super().reclaim(max_batches)

    def _shut(self, why: str) -> None:
        self._forget_changes()
        super()._shut(why)
