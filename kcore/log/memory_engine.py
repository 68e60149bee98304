"""The log in memory, for the durability `memory`, simulations and tests. Nothing survives the process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from kcore.log.batch_header import base_offset, last_offset, offsets_and_timestamp
from kcore.log.engine import StagedLogEngine
from kcore.log.errors import CorruptLogError, LogError
from kcore.log.interface import BatchSummary, Finding, PartitionKey
from kcore.log.storage import ReclaimTask, Storage
from kcore.log.write_set import PartitionMeta, StoredPartition, WriteSet
from kcore_ext.util.lock import Lock

if TYPE_CHECKING:
    from kcore_ext.log.partition import SealedPartition


class _MemoryPartition:
    """One partition's batches, ascending by base offset, and its snapshot chunks by (offset, index)."""

    __slots__ = ("chunks", "end_offset", "lists", "size_bytes")

    def __init__(self) -> None:
        # One tuple, replaced as a whole when batches are deleted: readers on other threads see a consistent pair.
        self.lists: tuple[list[int], list[bytes]] = ([], [])
        self.chunks: dict[tuple[int, int], bytes] = {}
        self.size_bytes = 0
        self.end_offset = 0  # after the last written batch


class MemoryStorage(Storage):
    """The committed state, in dictionaries.

    It outlives its engine. Opening another engine on the same storage is a restart, which increases the node epoch by
    one.
    """

    __slots__ = (
        "_dropped",
        "_keys",
        "_lock",
        "_metas",
        "_next_number",
        "_opened",
        "_partitions",
        "_unfinished",
        "node_epoch",
    )

    def __init__(self) -> None:
        self._partitions: dict[int, _MemoryPartition] = {}
        self._keys: dict[PartitionKey, PartitionMeta] = {}
        self._metas: dict[str, bytes] = {}
        self._dropped: dict[int, None] = {}
        self._next_number = 0
        self._opened = False
        self._lock = Lock()
        self._unfinished: WriteSet | None = None  # a write set that may be written in part
        self.node_epoch = 0

    def load(self) -> tuple[list[StoredPartition], list[int], int]:
        """Implements `Storage.load`."""
        if self._unfinished is not None:
            self._apply(self._unfinished)
            self._unfinished = None
        if self._opened:
            self.node_epoch += 1
        self._opened = True
        found = [self._stored(key, meta) for key, meta in self._keys.items()]
        found.sort(key=lambda partition: partition.meta.number)
        return found, list(self._dropped), self._next_number

    def _stored(self, key: PartitionKey, meta: PartitionMeta) -> StoredPartition:
        partition = self._partitions[meta.number]
        _, batches = partition.lists
        end = max(meta.log_start_offset, last_offset(batches[-1]) + 1 if batches else 0)
        garbage = bool(batches) and last_offset(batches[0]) < meta.log_start_offset
        kept = None if meta.snapshot is None else meta.snapshot.offset
        garbage = garbage or any(offset != kept for offset, _ in partition.chunks)
        return StoredPartition(key, meta, end, garbage)

    # -- for a store that several nodes share (`kcore.cluster.memory_store`)

    def create(self, key: PartitionKey, meta: PartitionMeta) -> None:
        """Adds an empty partition to the committed state."""
        self._partitions[meta.number] = _MemoryPartition()
        self._keys[key] = meta
        self._next_number = max(self._next_number, meta.number + 1)

    def forget(self, key: PartitionKey) -> None:
        """Removes a partition; `reclaim` deletes its entries."""
        self._dropped[self._keys.pop(key).number] = None

    def look_up(self, key: PartitionKey) -> StoredPartition | None:
        """Returns the present state of a partition, or None."""
        meta = self._keys.get(key)
        return None if meta is None else self._stored(key, meta)

    def removed_numbers(self) -> tuple[list[int], int]:
        """Returns the numbers of removed partitions whose entries are not reclaimed yet, and the next free number."""
        return list(self._dropped), self._next_number

    def keys_by_number(self) -> dict[int, PartitionKey]:
        """Returns the names of all partitions by number."""
        return {meta.number: key for key, meta in self._keys.items()}

    def write(self, write_set: WriteSet) -> None:
        """Implements `Storage.write`.

        Completes the write set even if an exception interrupts it, and then raises the exception.
        """
        with self._lock:
            if self._unfinished is not None:
                raise LogError("a write was interrupted: the log must be opened again")
            self._check(write_set)
            self._unfinished = write_set
            try:
                self._apply(write_set)
                write_set.is_durable = True
                self._unfinished = None
            except BaseException:
                self._apply(write_set)
                write_set.is_durable = True
                self._unfinished = None
                raise

    def resolve_write(self) -> None:
        """Implements `Storage.resolve_write`: does nothing, because `write` itself completes an interrupted write."""

    def _check(self, write_set: WriteSet) -> None:
        """Refuses invalid appends before the first change."""
        for sealed in write_set.partitions:
            partition = self._partitions.get(sealed.number)
            if partition is None or not sealed.batches:
                continue
            first = base_offset(sealed.batches[0])
            if first < partition.end_offset:
                raise CorruptLogError(sealed.key, first, f"append below the stored end {partition.end_offset}")

    def _apply(self, write_set: WriteSet) -> None:
        """Writes a write set. Can be repeated after an exception: finished steps change nothing."""
        for sealed in write_set.partitions:
            self._write_partition(sealed)
        for log in write_set.drops:
            self._keys.pop(log.key, None)
            self._dropped[log._number] = None
        # If one write set drops a partition and creates it again, the creation is newer.
        for sealed in write_set.partitions:
            if sealed.meta is not None and all(sealed.log is not log for log in write_set.drops):
                self._keys[sealed.key] = sealed.meta
        for name, value in write_set.metas.items():
            if value is None:
                self._metas.pop(name, None)
            else:
                self._metas[name] = value
        if write_set.next_number:
            self._next_number = write_set.next_number

    def _write_partition(self, sealed: SealedPartition) -> None:
        partition = self._partitions.get(sealed.number)
        if partition is None:
            partition = self._partitions[sealed.number] = _MemoryPartition()
        if sealed.rewrites:
            self._rewrite(partition, sealed.rewrites)
        bases, batches = partition.lists
        if sealed.batches and partition.end_offset < sealed.end_offset:
            new_bases = [base_offset(batch) for batch in sealed.batches]
            if not bases or bases[-1] < new_bases[0]:
                # Batches first: a reader that sees a base offset must find its batch. Batches of an interrupted attempt
                # have no base offset in the list yet, and are replaced.
                batches[len(bases) :] = sealed.batches
                bases.extend(new_bases)
            partition.end_offset = sealed.end_offset
            partition.size_bytes += sum(map(len, sealed.batches))
        for chunk in sealed.chunks or ():
            replaced = partition.chunks.get((chunk.offset, chunk.chunk_index), b"")
            partition.chunks[chunk.offset, chunk.chunk_index] = chunk.data
            partition.size_bytes += len(chunk.data) - len(replaced)

    @staticmethod
    def _rewrite(partition: _MemoryPartition, rewrites: dict[int, bytes | None]) -> None:
        """Replaces stored batches in a copy of the lists, because readers may use the current lists."""
        bases, batches = partition.lists
        start = bisect_left(bases, min(rewrites))
        stop = bisect_right(bases, max(rewrites))
        new_bases: list[int] = []
        new_batches: list[bytes] = []
        grown = 0
        for at in range(start, stop):
            batch = rewrites.get(bases[at], batches[at])
            grown += len(batch or b"") - len(batches[at])
            if batch is not None:
                new_bases.append(bases[at])
                new_batches.append(batch)
        partition.lists = (
            bases[:start] + new_bases + bases[stop:],
            batches[:start] + new_batches + batches[stop:],
        )
        partition.size_bytes += grown

    def slice(self, number: int, offset: int, limit: int, max_bytes: int, max_batches: int) -> list[tuple[int, bytes]]:
        """Implements `Storage.slice`."""
        partition = self._partitions.get(number)
        if partition is None:
            return []
        bases, batches = partition.lists
        count = len(bases)
        position = max(bisect_right(bases, offset, 0, count) - 1, 0)
        if position < count and last_offset(batches[position]) < offset:
            position += 1
        found = []
        size = 0
        stop = min(count, position + max_batches)
        while position < stop and bases[position] < limit:
            found.append((bases[position], batches[position]))
            size += len(batches[position])
            if size >= max_bytes:
                break
            position += 1
        return found

    def summaries(self, number: int, offset: int, limit: int, max_batches: int) -> list[BatchSummary]:
        """Implements `Storage.summaries`."""
        return [
            BatchSummary(*offsets_and_timestamp(batch), len(batch))
            for _, batch in self.slice(number, offset, limit, 1 << 62, max_batches)
        ]

    def snapshot_chunk(self, number: int, offset: int, index: int) -> bytes | None:
        """Implements `Storage.snapshot_chunk`."""
        partition = self._partitions.get(number)
        return None if partition is None else partition.chunks.get((offset, index))

    def get_meta(self, name: str) -> bytes | None:
        """Implements `Storage.get_meta`."""
        return self._metas.get(name)

    def meta_names(self, prefix: str) -> list[str]:
        """Implements `Storage.meta_names`."""
        return sorted(name for name in list(self._metas) if name.startswith(prefix))

    def reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        """Implements `Storage.reclaim`."""
        with self._lock:
            return self._reclaim(tasks, max_entries)

    def _reclaim(self, tasks: list[ReclaimTask], max_entries: int) -> int:
        remaining = max_entries
        done = 0
        for task in tasks:
            partition = self._partitions.get(task.number)
            if partition is not None:
                remaining = self._reclaim_partition(partition, task, remaining)
                if remaining < 0:
                    return done
            if task.forget:
                self._partitions.pop(task.number, None)
                self._dropped.pop(task.number, None)
            done += 1
        return done

    @staticmethod
    def _reclaim_partition(partition: _MemoryPartition, task: ReclaimTask, remaining: int) -> int:
        """Deletes up to `remaining` entries.

        Returns how many more entries may be deleted, or -1 if some of the task's entries remain because the limit was
        reached.
        """
        bases, batches = partition.lists
        count = len(bases)
        if task.below_offset is not None:
            count = max(bisect_right(bases, task.below_offset) - 1, 0)
            if count < len(bases) and last_offset(batches[count]) < task.below_offset:
                count += 1
        cut = min(count, remaining)
        if cut:
            partition.lists = (bases[cut:], batches[cut:])
            partition.size_bytes -= sum(map(len, batches[:cut]))
            remaining -= cut
        if cut < count:
            return -1
        if task.keep_snapshots is not None:
            old = [at for at in list(partition.chunks) if at[0] not in task.keep_snapshots]
            for at in old[:remaining]:
                partition.size_bytes -= len(partition.chunks.pop(at))
            if len(old) > remaining:
                return -1
            remaining -= len(old)
        return remaining

    def stray_entries(self, known: dict[int, PartitionKey]) -> list[Finding]:
        """Implements `Storage.stray_entries`."""
        return [
            Finding(None, None, "orphan", f"entries of unknown partition number {number}")
            for number in self._partitions
            if number not in known and number not in self._dropped
        ]

    def sync(self) -> None:
        """Implements `Storage.sync`. It does nothing, since there is no device."""

    def sizes(self) -> tuple[int, int]:
        """Implements `Storage.sizes`."""
        used = sum(partition.size_bytes for partition in list(self._partitions.values()))
        return 0, used

    def close(self) -> None:
        """Implements `Storage.close`. The state stays for the next engine."""


class MemoryLogEngine(StagedLogEngine):
    """A LogEngine without a disk.

    Args:
        storage: the storage of a closed engine, to continue from its committed state; None for a new one.
        tail_size_bytes: the maximum size of the newest batches that readers find without the storage. These batches
            need no further memory, because the storage has the same objects. By default, all reads use the storage.
    """

    __slots__ = ("storage",)

    durability = "memory"

    def __init__(self, storage: MemoryStorage | None = None, tail_size_bytes: int = 0) -> None:
        self.storage = MemoryStorage() if storage is None else storage
        super().__init__(self.storage, tail_size_bytes)
