from abc import abstractmethod
from collections.abc import Mapping
from typing import Final, NoReturn, final

from kcore.log.engine import StagedLogEngine
from kcore.log.interface import PartitionKey
from kcore.log.partition import StagedPartitionLog
from kcore.log.write_set import PartitionMeta, SnapshotChunk, WriteSet
from kcore_ext.batch import BatchBuilder
from kcore_ext.log.tail_cache import PartitionTail, TailCache

LIVE: Final[int]
ABSENT: Final[int]
DROPPED: Final[int]
CLOSED: Final[int]
"""LIVE, ABSENT, DROPPED and CLOSED are the states of a partition's handle. In this order: the partition exists, its
creation failed, it was dropped, the engine is closed.
"""

@final
class SealedPartition:
    """One partition's part of a write set.

    Attributes:
        log: the handle of the partition.
        key: the partition's key.
        number: the partition's number in the store.
        batches: the appended batches.
        end_offset: the end after the last batch.
        meta: the new metadata; None if only batches or chunks were staged.
        chunks: the chunks of a snapshot that is being written; None without one.
        rewrites: the replacements of stored batches by compaction, by base offset; a value None deletes a batch.
    """

    @property
    def log(self) -> StagedPartitionLog: ...
    @property
    def key(self) -> PartitionKey: ...
    @property
    def number(self) -> int: ...
    @property
    def batches(self) -> list[bytes]: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def meta(self) -> PartitionMeta | None: ...
    @property
    def chunks(self) -> list[SnapshotChunk] | None: ...
    @property
    def rewrites(self) -> dict[int, bytes | None]: ...

STAGING: Final[int]
COMMITTING: Final[int]
"""STAGING and COMMITTING are the bits of `EngineCore._interrupted_change`. STAGING: a change is being staged.
COMMITTING: a write set is being sealed, finished or undone.
"""

class EngineCore:
    """The part of a log engine that runs in each commit, for each partition with changes.

    Attributes:
        _interrupted_change: the changes in progress. A bit is set before the first step of a change with several steps,
            and cleared after the last. If a call finds a bit set, an exception has interrupted an earlier call.
    """

    _dirty: list[StagedPartitionLog]
    _tails: TailCache
    _interrupted_change: int
    _garbage: dict[int, StagedPartitionLog | None]

    def _seal_dirty(self) -> list[SealedPartition]:
        """Seals the staged changes of all dirty partitions, by ascending number. No partition is dirty afterwards.

        An exception leaves some partitions sealed: the caller must then discard all staged changes.
        """

    def _show(self, write_set: WriteSet) -> None:
        """Makes a durable write set visible to readers: its batches, the metadata of its partitions, and the removal of
        its dropped partitions.

        If an exception interrupts the call, the call can be repeated. A repeated step has no further effect.
        """

class LogCore:
    """The part of `StagedPartitionLog` that runs for each batch and each commit.

    In rare cases it calls abstract methods, which `StagedPartitionLog` implements.
    """

    key: PartitionKey
    log_start_offset: int
    end_offset: int
    high_watermark: int
    leader_epoch: int
    appended_bytes: int
    _engine: StagedLogEngine
    _number: int
    _state: int
    _staged: bool
    _sealed: SealedPartition | None
    _batches: list[bytes]
    _rewrites: dict[int, bytes | None]
    _tail: PartitionTail

    def append(self, batch: bytes | bytearray, leader_epoch: int) -> int:
        """Implements `PartitionLog.append`."""

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Implements `PartitionLog.append_built`."""

    def read(
        self, offset: int, max_bytes: int, upto_offset: int | None = None, at_least_one: bool = True
    ) -> list[bytes]:
        """Implements `PartitionLog.read`."""

    def _stage(self) -> None:
        """Adds this partition to the engine's list of partitions with staged changes, if it is not in the list."""

    @abstractmethod
    def _revive(self) -> None:
        """Handles a call on a handle that is not live: stages a failed creation again, refuses any other state."""

    @abstractmethod
    def _refuse(self) -> None:
        """Raises the error of a handle whose partition was dropped or whose engine is closed."""

    @staticmethod
    @abstractmethod
    def _refuse_batch(batch: bytes | bytearray) -> NoReturn:
        """Raises the error for bytes that are not a batch of format 2."""

    @abstractmethod
    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Refuses an epoch below the current epoch. Adds a newer epoch to the staged metadata."""

    @abstractmethod
    def _rewritten(self, rewrites: Mapping[int, bytes | None]) -> None:
        """Removes batches from memory after compaction has replaced them in the storage."""

    @abstractmethod
    def _mark_meta_durable(self, meta: PartitionMeta) -> None:
        """Stores `meta` as the durable metadata. The call can be repeated after an exception."""

    @abstractmethod
    def _out_of_range(self, offset: int) -> NoReturn:
        """Raises OffsetOutOfRangeError."""

    @abstractmethod
    def _read_stored(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes]:
        """Reads batches that are no longer in memory, as `read` does; `limit` is at most the high watermark."""
