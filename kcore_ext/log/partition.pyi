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
"""What a handle stands for: a partition; one whose creation failed; one that is gone; a closed engine's."""

@final
class SealedPartition:
    """One partition's part of a round.

    Attributes:
        log: the partition.
        key: its name.
        number: its number in the store.
        bases: the base offset of each of `batches`.
        batches: what is appended.
        end_offset: the end behind the last batch.
        meta: its metadata; None when only batches or chunks were staged.
        chunks: of a snapshot that is being written; None without one.
        rewrites: what compaction puts in the place of stored batches, by base offset; None: nothing.
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
"""Bits of `EngineCore._torn`: a partition or its metadata is being staged; a round is sealed, finished or undone."""

class EngineCore:
    """The part of a log engine that runs once a round for each partition in it.

    Attributes:
        _torn: which changes are being made. A bit is set before the first step of a change that has several, and
            cleared after the last; if a call finds one set, an exception interrupted an earlier call.
    """

    _dirty: list[StagedPartitionLog]
    _tails: TailCache
    _torn: int

    def _seal_dirty(self) -> list[SealedPartition]:
        """Take everything that the dirty partitions have staged; none is dirty afterwards.

        An exception leaves some partitions sealed: the caller must discard everything staged.
        """

    def _finish_sealed(self, partitions: list[SealedPartition]) -> None:
        """Show the batches and the metadata of a durable round to readers.

        After an exception the call can be repeated; steps that were done are not done twice.
        """

class LogCore:
    """What one partition's log does for each batch and each round; `StagedPartitionLog` is the rest of it.

    Subclasses say what happens seldom: `_revive`, `_refuse`, `_refuse_batch`, `_begin_epoch`, `_rewritten`,
    `_mark_meta_durable`, `_out_of_range`, `_read_stored`.
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
        """See PartitionLog."""

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """See PartitionLog."""

    def read(
        self, offset: int, max_bytes: int, upto_offset: int | None = None, at_least_one: bool = True
    ) -> list[bytes]:
        """See PartitionLog."""

    def _stage(self) -> None:
        """Makes sure that the next round takes this partition."""

    def _revive(self) -> None: ...
    def _refuse(self) -> None: ...
    @staticmethod
    def _refuse_batch(batch: bytes | bytearray) -> NoReturn: ...
    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None: ...
    def _rewritten(self, rewrites: Mapping[int, bytes | None]) -> None: ...
    def _mark_meta_durable(self, meta: PartitionMeta) -> None: ...
    def _out_of_range(self, offset: int) -> NoReturn: ...
    def _read_stored(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> list[bytes]: ...

def journal_entries(partitions: list[SealedPartition], max_bytes: int) -> bytes | None:
    """Encode a round for the journal: partition number (uint32), base offset (int64), size (uint32), batch; repeated.

    Returns:
        None if the round has more than `max_bytes` of batches, or changes stored batches or snapshots.

    Raises:
        SystemError: a partition has more or fewer base offsets than batches.
    """

def sort_batches(write_sets: list[WriteSet], by_number: dict[int, list[tuple[int, bytes]]]) -> None:
    """Add the batches of rounds to those of their partitions, with their base offsets.

    After an exception the call can be repeated: batches at or below a partition's last base offset are left out.
    """

def log_pairs(by_number: dict[int, list[tuple[int, bytes]]]) -> tuple[list[tuple[bytes, bytes]], int]:
    """Return the keys of the log (partition number, base offset) with their batches, ascending.

    The second value is the number of bytes that these batches take as journal entries.
    """
