"""The contract between the partition log and everything above it.

A `LogEngine` holds many partitions. A `PartitionLog` is one of them: record batches v2, contiguous offsets (but for the
gaps that compaction leaves, all of them below `cleaned_to`), a start, an end. Appends, rewrites, deletions, metadata
and snapshots are *staged* in memory and become durable together, all partitions at once, in `LogEngine.commit()`; if
that fails, all of it is as if it had never been staged.

Offsets of a partition: `log_start_offset <= high_watermark <= end_offset`. `end_offset` includes what is staged,
`high_watermark` is the committed end, and readers see only what lies below it.

Threads: one thread owns an engine (appends, seal, finish, fail, open, drop). Beside it one other thread may run
`write(write_set)` or `reclaim()`, and any number may read (`read`, `batches`, `find_by_timestamp`, `read_snapshot`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kcore.log.write_set import WriteSet
    from kcore_ext.batch import BatchBuilder


class PartitionKey(NamedTuple):
    """What names a partition: the topic's id (16 raw bytes) and the partition's index in the topic."""

    topic_id: bytes
    partition: int

    def __repr__(self) -> str:
        return f"{self.topic_id.hex()}-{self.partition}"


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first batch appended under it (KIP-101)."""

    epoch: int
    start_offset: int


class SnapshotInfo(NamedTuple):
    """The committed snapshot of a partition: state as of `offset`, in `chunk_count` chunks of `size_bytes` in all.

    `crc` is the CRC-32C of the chunks in order.
    """

    offset: int
    chunk_count: int
    size_bytes: int
    crc: int


class BatchSummary(NamedTuple):
    """A stored batch without its records: what its header says.

    `max_timestamp_ms` is -1 for a batch that compaction emptied: no record of it can be found by a timestamp.
    """

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int


class TimestampedBatch(NamedTuple):
    """A batch found by timestamp: its base offset and its largest record timestamp (milliseconds since the epoch)."""

    base_offset: int
    max_timestamp_ms: int


class Finding(NamedTuple):
    """One thing wrong that `LogEngine.verify` found.

    `partition` is None when the damage cannot be tied to one; `offset` likewise. `kind` is a stable word for programs
    (`crc`, `gap`, `overlap`, `header`, `start`, `epoch`, `snapshot`, `compaction`, `orphan`, `storage`), `detail` is
    for people.
    """

    partition: PartitionKey | None
    offset: int | None
    kind: str
    detail: str


class EngineStats(NamedTuple):
    """Sizes of an engine's storage, in bytes: the file, what of it is in use at most, and the tail kept in memory."""

    file_size_bytes: int
    used_bytes: int
    tail_size_bytes: int
    partition_count: int


class PartitionLog(ABC):
    """One partition's log. A handle stays valid until the partition is dropped or the engine closed."""

    __slots__ = ()

    key: PartitionKey
    """What names the partition."""
    log_start_offset: int
    """The first offset that readers may ask for (committed)."""
    end_offset: int
    """The offset of the next record to be appended, staged appends included (LEO)."""
    high_watermark: int
    """The committed end: what lies below is durable and readable."""
    leader_epoch: int
    """The newest leader epoch that appended, staged appends included; -1 when none has."""
    appended_bytes: int
    """Bytes of the batches that were appended and committed since the log was opened."""

    @property
    @abstractmethod
    def cleaned_to(self) -> int:
        """The committed offset below which the log is compacted: offsets may be missing there, and nowhere else."""

    @abstractmethod
    def append(self, batch: bytes | bytearray, leader_epoch: int) -> int:
        """Stage one record batch v2 at the end of the log.

        The batch is stamped with its base offset (= `end_offset`) and `leader_epoch`; both lie outside the batch's CRC.
        The bytes are copied, and the caller may reuse the buffer; a bytearray is stamped in place too.

        Returns the base offset. Raises FencedLeaderEpochError for an older epoch than the log's, InvalidBatchError for
        bytes that are not exactly one batch v2, PartitionDroppedError, LogClosedError.
        """

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Stage what a builder holds, as `append` does with the batch that it builds, without a copy in between."""
        return self.append(batch.build_bytearray(), leader_epoch)

    @abstractmethod
    def read(
        self, offset: int, max_bytes: int, upto_offset: int | None = None, at_least_one: bool = True
    ) -> list[bytes]:
        """Committed batches from the one that contains `offset` on, whole, at most `max_bytes` together.

        Where compaction has removed the batch that contained `offset`, they begin with the next one.

        Only batches that end below `upto_offset` (None: the high watermark). With `at_least_one` the first batch is
        returned even if it alone exceeds `max_bytes`, so that a reader always moves on.
        Raises OffsetOutOfRangeError when `offset` is below the log start or above the end; an offset between the
        limit and the end gives an empty list.
        """

    @abstractmethod
    def batches(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[tuple[int, bytes]]:
        """Committed batches as (base offset, batch), for loading and dumping; safe while others append.

        Begins with the batch that contains `start` (None: the log start) and ends before the first batch whose base
        offset is at or above `stop` (None: the high watermark when the iteration begins). Storage is read in bounded
        slices and nothing is held between them. Continuity is always checked, the CRC unless `check_crc` is False.
        If the log is compacted meanwhile, a batch may come that several were merged into, and its first records may
        have been in an earlier one already.
        Raises CorruptLogError at the first batch that is damaged, OffsetOutOfRangeError as `read` does (also midway,
        if retention overtakes the iteration).
        """

    @abstractmethod
    def runs(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[list[tuple[int, bytes]]]:
        """The same batches as `batches` gives, in lists as storage is read: for loads, which walk them in C."""

    @abstractmethod
    def delete_before(self, offset: int) -> None:
        """Stage the move of `log_start_offset` up to `offset`; lower or equal offsets change nothing.

        The batch that contains `offset` stays; those before it are gone for readers when the commit returns, and give
        back their space in `LogEngine.reclaim`. Raises OffsetOutOfRangeError above the high watermark.
        """

    @abstractmethod
    def rewrite(self, changes: Mapping[int, bytes | None], cleaned_to: int) -> None:
        """Stage a piece of compaction: put other batches in the place of committed ones, and let offsets be missing.

        `changes` says, by the base offset of a stored batch, what takes its place: a batch with the same base offset
        (it may reach over those that are removed behind it), or None: it goes. `cleaned_to` becomes the offset below
        which gaps are legal, if it is higher than before. The last batch of the log is never touched: it alone says
        where the log ends.

        Readers see all of it or nothing; a batch that retention has deleted meanwhile stays deleted. Raises
        OffsetOutOfRangeError for `cleaned_to` at or above the high watermark, InvalidBatchError for bytes that are no
        batch, have another base offset or end above what is compacted.
        """

    @abstractmethod
    def summaries(self, start: int, max_batches: int) -> list[BatchSummary]:
        """Headers of at most `max_batches` committed batches, from the one that contains `start` on."""

    @property
    @abstractmethod
    def epoch_entries(self) -> list[EpochEntry]:
        """Leader epochs and where each began, ascending, staged ones included (KIP-101, KIP-320)."""

    @property
    @abstractmethod
    def committed_epochs(self) -> list[EpochEntry]:
        """The same of what is committed: for readers, who see the log's start and end so, too."""

    @abstractmethod
    def find_by_timestamp(self, timestamp_ms: int) -> TimestampedBatch | None:
        """The first committed batch whose largest timestamp is at or after `timestamp_ms`; None when there is none."""

    @abstractmethod
    def max_timestamp_batch(self) -> TimestampedBatch | None:
        """The first committed batch that has the partition's largest timestamp; None for an empty log (KIP-734)."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes of the committed batches from the log start on."""

    @abstractmethod
    def put_snapshot_chunk(self, offset: int, index: int, chunk: bytes) -> None:
        """Stage chunk number `index` (0, 1, 2, ... in order) of a snapshot of the state as of `offset`.

        Index 0 begins a new snapshot and abandons one that was begun and not committed. Chunks may be spread over any
        number of commits; nobody sees them before `commit_snapshot` has been committed. Raises LogError for an index
        out of order, OffsetOutOfRangeError for an offset above the high watermark.
        """

    @abstractmethod
    def commit_snapshot(self, offset: int) -> None:
        """Stage the switch to the snapshot whose chunks were put for `offset`; atomic with the commit.

        Raises LogError when no chunk was put for that offset.
        """

    @property
    @abstractmethod
    def snapshot(self) -> SnapshotInfo | None:
        """The committed snapshot, or None."""

    @abstractmethod
    def read_snapshot(self) -> Iterator[bytes]:
        """The chunks of the committed snapshot in order; nothing when there is none.

        Raises CorruptLogError when a chunk is missing or the checksum does not match (after the last chunk).
        """

    @abstractmethod
    def drop_old_snapshots(self) -> None:
        """Let `LogEngine.reclaim` remove every snapshot but the committed one and the one being written."""


class LogEngine(ABC):
    """Many partition logs with one durable commit for all of them."""

    __slots__ = ("__weakref__",)

    durability: str
    """What a commit survives: `fsync` (power loss), `os` (the end of the process), `memory` (nothing)."""
    node_epoch: int
    """How often this store has been opened before: 0 for a new one, one more at each open, durable when open returns.

    Durable at once rather than with the first commit, because epochs derived from it may reach clients before that.
    """

    @abstractmethod
    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """The partition's log; one that is absent is created (staged), beginning at `log_start_offset`.

        The same key gives the same handle until it is dropped. If the commit that would have created the partition
        fails, it is absent again; its handle stays usable and creates it anew with the next append.
        """

    @abstractmethod
    def get(self, key: PartitionKey) -> PartitionLog | None:
        """The partition's log, or None when there is no such partition."""

    @abstractmethod
    def partitions(self) -> list[PartitionKey]:
        """Every partition, staged creations included and staged drops not, in order of creation."""

    @abstractmethod
    def drop(self, key: PartitionKey) -> None:
        """Stage the removal of a partition; its handle refuses everything from now on. Unknown keys change nothing.

        Gone for good when the commit returns, also after a crash; its space comes back in `reclaim`.
        """

    @property
    @abstractmethod
    def dirty(self) -> bool:
        """Whether anything is staged that no round has taken yet."""

    @abstractmethod
    def seal(self) -> WriteSet:
        """Take everything staged into a round for `write`; what is staged from now on belongs to the next round.

        After an exception in here nothing is staged any more, as after a `write` that failed. Raises LogError when the
        previous round has been neither finished nor failed, and when an exception interrupted an earlier call.
        """

    @abstractmethod
    def write(self, write_set: WriteSet) -> None:
        """Make a sealed round durable, in one transaction. Touches the round and the storage only.

        May run on another thread beside appends and reads. Raises LogError; then nothing of the round is stored.
        """

    @abstractmethod
    def finish(self, write_set: WriteSet) -> None:
        """After `write` returned: move the high watermarks and let readers see the round.

        If an exception interrupts this, the round is shown all the same: at once, or when the next `commit` or `seal`
        fails and recovers.
        """

    @abstractmethod
    def fail(self, write_set: WriteSet, error: BaseException) -> None:
        """After `write` or `finish` raised `error`: forget the round and everything staged after it.

        End offsets, epochs, metadata, creations and drops go back to what is committed. That includes the round itself
        if it is durable (`WriteSet.is_durable`).
        """

    @abstractmethod
    def commit(self) -> None:
        """seal, write, finish; on failure fail, and the error goes on to the caller. Does nothing if not dirty."""

    def recover(self) -> None:
        """Bring memory back to what is stored, after an exception struck between the calls for a round.

        Settles a sealed round by whether it is durable and discards everything staged. For an owner that does not know
        how far it came, such as one interrupted between `seal` and `write`; no thread may be writing the round.
        If this fails, it can be repeated; `commit` and `seal` repeat it and fail until it has succeeded.
        """
        raise NotImplementedError

    @abstractmethod
    def rollback(self) -> None:
        """Forget everything staged that no round has taken."""

    @abstractmethod
    def get_meta(self, name: str) -> bytes | None:
        """The value put under `name`, staged values included; None when there is none."""

    @abstractmethod
    def put_meta(self, name: str, value: bytes | None) -> None:
        """Stage a named value of the engine's user (None removes it). A name is 1 to 500 bytes of UTF-8."""

    @abstractmethod
    def meta_names(self, prefix: str = "") -> list[str]:
        """The names that have a value, staged ones included, sorted."""

    @abstractmethod
    def reclaim(self, max_batches: int) -> bool:
        """Give back the space of at most `max_batches` deleted batches or chunks, in one transaction of its own.

        Returns whether there is more to do. Not staged and independent of rounds; raises LogError, which changes
        nothing.
        """

    @abstractmethod
    def verify(self, deep: bool = False) -> list[Finding]:
        """Look for damage; an empty list means none.

        Shallow: the first and the last batch of each partition. Deep: every batch (CRC, header, continuity, epochs),
        every snapshot, and entries that belong to nobody.
        """

    @abstractmethod
    def sync(self) -> None:
        """Force everything committed to the device, whatever the durability; raises LogError."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Sizes now."""

    @abstractmethod
    def close(self) -> None:
        """Discard what is staged, flush, release the folder. Closing twice is allowed; anything else raises after."""
