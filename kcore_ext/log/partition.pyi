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
        bases: the base offset of each of `batches`.
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
    def bases(self) -> list[int]: ...
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
    _bases: list[int]
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

def journal_entry(
    partitions: list[SealedPartition], max_bytes: int, identity: bytes, number: int, flags: int
) -> bytes | None:
    """Encodes the new batches of a write set as an entry of the journal. `kcore.log.journal_file` describes the layout.

    Args:
        partitions: the partitions of the write set.
        max_bytes: the maximum size of all batches.
        identity: the 16 bytes that identify the journal.
        number: the number of the entry in the journal, from 0.
        flags: the flags of the entry.

    Returns:
        The entry; None if the batches exceed `max_bytes`, or if the write set has changes other than new batches.

    Raises:
        SystemError: a partition has more or fewer base offsets than batches.
        ValueError: the identity does not have 16 bytes.
    """

def sort_batches(write_sets: list[WriteSet], by_number: dict[int, list[tuple[int, bytes]]]) -> None:
    """Adds the batches of write sets, with their base offsets, to the lists of their partitions.

    The call can be repeated after an exception: it skips batches at or below a partition's last base offset.
    """

MAX_VALUE_BYTES: Final = 1_338
"""The maximum size of a value with several batches. Three such values fill a page of LMDB.

Each value costs a call of LMDB, for which the thread releases the GIL and waits for it again. Small batches therefore
share values.

LMDB stores a value of more than 2,018 bytes in pages that have no key. If the device wrote such a page to a wrong
place, the value would have sound batches of another partition, and nothing would show this. A smaller value is in one
page together with its key, so `check_pages` and the order of the keys show such a write.
"""

def log_pairs(by_number: dict[int, list[tuple[int, bytes]]]) -> tuple[list[tuple[bytes, bytes]], int]:
    """Converts sorted batches to the key-value pairs of the log's storage.

    Consecutive batches of a partition share a value of up to `MAX_VALUE_BYTES`. A larger batch is a value of its own.

    Args:
        by_number: the result of `sort_batches`.

    Returns:
        A tuple of two values. The first value is the pairs (key, value), ascending; a key consists of the partition
        number and the base offset of the first batch in the value. The second value is the size of all batches in
        journal entries, without entry headers.
    """
