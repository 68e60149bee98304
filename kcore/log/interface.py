"""The interface of the partition log.

A `LogEngine` has many partitions. A `PartitionLog` is one of them: a sequence of record batches v2 with a start and an
end. Offsets are contiguous, except for gaps that compaction leaves; all gaps are below `cleaned_to`. Appends, rewrites,
deletions, metadata and snapshots are *staged* in memory. `LogEngine.commit()` makes the staged changes of all
partitions durable as a whole, or discards all of them if it fails.

Offsets of a partition: `log_start_offset <= high_watermark <= end_offset`. `end_offset` includes staged batches,
`high_watermark` is the committed end, and readers see only batches below it.

Threads: one thread owns an engine (appends, seal, finish, fail, open, drop). At the same time another thread may run
`write(write_set)` or `reclaim()`, and a third thread may run the functions that `move_beside` passes to it. Any number
of threads may read (`read`, `batches`, `find_by_timestamp`, `read_snapshot`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kcore.log.write_set import WriteSet
    from kcore_ext.batch import BatchBuilder


class PartitionKey(NamedTuple):
    """The name of a partition: the topic's id (16 raw bytes) and the partition's index in the topic."""

    topic_id: bytes
    partition: int

    def __repr__(self) -> str:
        return f"{self.topic_id.hex()}-{self.partition}"


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of the first batch appended in that epoch (KIP-101)."""

    epoch: int
    start_offset: int


class SnapshotInfo(NamedTuple):
    """The committed snapshot of a partition: state as of `offset`, in `chunk_count` chunks with a total size of
    `size_bytes`.

    `crc` is the CRC-32C of the chunks in order.
    """

    offset: int
    chunk_count: int
    size_bytes: int
    crc: int


class BatchSummary(NamedTuple):
    """Fields from the header of a stored batch.

    `max_timestamp_ms` is -1 for a batch that compaction has left without records; a search by timestamp does not find
    such a batch.
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
    """One problem that `LogEngine.verify` found.

    `partition` and `offset` are None if they are unknown. `kind` is a stable word for programs (`crc`, `gap`,
    `overlap`, `header`, `start`, `epoch`, `snapshot`, `compaction`, `orphan`, `storage`), `detail` is for people.
    """

    partition: PartitionKey | None
    offset: int | None
    kind: str
    detail: str


class EngineStats(NamedTuple):
    """The sizes of an engine's storage.

    Attributes:
        file_size_bytes: the size of the storage's file.
        used_bytes: an upper bound of the used part of the file.
        tail_size_bytes: the size of the newest batches, which are kept in memory.
        partition_count: the number of partitions.
    """

    file_size_bytes: int
    used_bytes: int
    tail_size_bytes: int
    partition_count: int


class PartitionLog(ABC):
    """One partition's log. A handle stays valid until the partition is dropped or the engine closed."""

    __slots__ = ()

    key: PartitionKey
    """The name of the partition."""
    log_start_offset: int
    """The committed log start offset: the first offset that readers may request."""
    end_offset: int
    """The log end offset (LEO): the offset of the next appended record, after all staged records."""
    high_watermark: int
    """The committed end: batches below it are durable and readable."""
    leader_epoch: int
    """The newest leader epoch of all committed and staged appends; -1 if there is none."""
    appended_bytes: int
    """Bytes of the batches that were appended and committed since the log was opened."""

    @property
    @abstractmethod
    def cleaned_to(self) -> int:
        """The committed offset below which the log is compacted: offsets may be missing only there.

        Kafka calls this offset the cleaner checkpoint. The first dirty offset is this offset or `log_start_offset`, the
        larger of the two.
        """

    @abstractmethod
    def append(self, batch: bytes | bytearray, leader_epoch: int) -> int:
        """Stages one record batch v2 at the end of the log.

        The log writes the base offset (= `end_offset`) and `leader_epoch` into the batch; the batch's CRC covers
        neither field. The log copies the bytes, so the caller may reuse the buffer. If the buffer is a bytearray, the
        log also sets both fields in the buffer.

        Returns the base offset. Raises FencedLeaderEpochError for an older epoch than the log's, InvalidBatchError for
        bytes that are not exactly one batch v2, PartitionDroppedError, LogClosedError.
        """

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Stages the batch of a builder, as `append` does with a built batch, but without a copy."""
        return self.append(batch.build_bytearray(), leader_epoch)

    @abstractmethod
    def read(
        self, offset: int, max_bytes: int, upto_offset: int | None = None, at_least_one: bool = True
    ) -> list[bytes]:
        """Returns whole committed batches of at most `max_bytes` in total, beginning with the batch that contains
        `offset`.

        If compaction has removed the batch that contained `offset`, the result begins with the next batch.

        The result has only batches that end below `upto_offset` (None: the high watermark), and a bounded number of
        them. With `at_least_one` the first batch is returned even if it alone exceeds `max_bytes`, so that a reader
        always makes progress. Raises OffsetOutOfRangeError if `offset` is below the log start or above the end. For an
        offset between `upto_offset` and the end the list is empty.
        """

    @abstractmethod
    def batches(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[tuple[int, bytes]]:
        """Yields committed batches as (base offset, batch), for loading and dumping; safe during appends.

        Begins with the batch that contains `start` (None: the log start). Ends before the first batch whose base offset
        is at or above `stop` (None: the high watermark when the iteration begins). The storage is read in bounded
        slices, and no transaction stays open between them. Checks that the offsets are contiguous and, unless
        `check_crc` is False, the CRC of each batch. If the log is compacted during the iteration, a returned batch may
        be merged from several batches. Its first records may then repeat records of an earlier returned batch.

        Raises CorruptLogError at the first damaged batch. Raises OffsetOutOfRangeError as `read` does, and during the
        iteration if retention has deleted the next batch.
        """

    @abstractmethod
    def runs(
        self, start: int | None = None, stop: int | None = None, check_crc: bool = True
    ) -> Iterator[list[tuple[int, bytes]]]:
        """Yields the batches of `batches` in lists, as the storage reads them, for loads that process a list in C."""

    @abstractmethod
    def delete_before(self, offset: int) -> None:
        """Stages the move of `log_start_offset` up to `offset`; lower or equal offsets change nothing.

        The batch that contains `offset` stays. Earlier batches are invisible to readers after the commit, and
        `LogEngine.reclaim` frees their space. Raises OffsetOutOfRangeError above the high watermark.
        """

    @abstractmethod
    def rewrite(self, changes: Mapping[int, bytes | None], cleaned_to: int) -> None:
        """Stages a step of compaction: replaces or removes committed batches, so that offsets may be missing.

        `changes` maps the base offset of a stored batch to its replacement, or to None to remove the batch. A
        replacement has the same base offset, and may also cover the offsets of removed batches after it. `cleaned_to`
        becomes the offset below which gaps are legal, if it is higher than before. The last batch of the log cannot be
        changed, because it alone determines the end of the log.

        Readers see all changes or none. A batch that retention has deleted in the meantime stays deleted. Raises
        OffsetOutOfRangeError if `cleaned_to` is at or above the high watermark. Raises InvalidBatchError for bytes that
        are not a batch, have another base offset or end above `cleaned_to`.
        """

    @abstractmethod
    def summaries(self, start: int, max_batches: int) -> list[BatchSummary]:
        """Returns the headers of at most `max_batches` committed batches, from the one that contains `start` on."""

    @property
    @abstractmethod
    def epoch_entries(self) -> list[EpochEntry]:
        """The leader epochs and their start offsets, ascending, including staged ones (KIP-101, KIP-320)."""

    @property
    @abstractmethod
    def committed_epochs(self) -> list[EpochEntry]:
        """The committed leader epochs and their start offsets. Readers see these, but no staged epochs."""

    @abstractmethod
    def index_steps(self) -> Iterator[int]:
        """Reads the batch headers that `find_by_timestamp`, `max_timestamp_batch` and `size_bytes` need, in steps.

        Without this call, the next call of one of these methods reads all the headers in one step, which may take long.

        Yields:
            The cost of each step in microseconds, except for the last step.
        """

    @abstractmethod
    def find_by_timestamp(self, timestamp_ms: int, after_offset: int = -1) -> TimestampedBatch | None:
        """Returns the first committed batch whose largest timestamp is at or after `timestamp_ms`, or None.

        Args:
            timestamp_ms: the timestamp to find.
            after_offset: only batches with a higher base offset count.
        """

    @abstractmethod
    def max_timestamp_batch(self) -> TimestampedBatch | None:
        """Returns the first committed batch with the partition's largest timestamp; None for an empty log (KIP-734)."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Returns the size of the committed batches from the log start on."""

    @abstractmethod
    def put_snapshot_chunk(self, offset: int, index: int, chunk: bytes) -> None:
        """Stages chunk number `index` (0, 1, 2, ... in order) of a snapshot of the state as of `offset`.

        Index 0 begins a new snapshot and discards an uncommitted one. Chunks may be spread over any number of commits;
        they are invisible until `commit_snapshot` has been committed. Raises LogError for an index out of order,
        OffsetOutOfRangeError for an offset above the high watermark.
        """

    @abstractmethod
    def commit_snapshot(self, offset: int) -> None:
        """Stages the switch to the snapshot whose chunks were put for `offset`. The next commit makes the switch.

        Raises LogError if no chunk was put for that offset.
        """

    @property
    @abstractmethod
    def snapshot(self) -> SnapshotInfo | None:
        """The committed snapshot, or None."""

    @abstractmethod
    def read_snapshot(self) -> Iterator[bytes]:
        """Yields the chunks of the committed snapshot in order, none if there is no snapshot.

        Raises CorruptLogError if a chunk is missing, or after the last chunk if the checksum does not match.
        """

    @abstractmethod
    def drop_old_snapshots(self) -> None:
        """Allows `LogEngine.reclaim` to remove every snapshot except the committed one and the one being written."""


class LogEngine(ABC):
    """A set of partition logs with one durable commit for all of them."""

    __slots__ = ("__weakref__",)

    @property
    def name(self) -> str:
        """The name of the log in log lines: its data folder, if it has one."""
        return "in memory"

    durability: str
    """The failure that a commit survives: `fsync` (power loss), `os` (the end of the process), `memory` (none)."""
    node_epoch: int
    """The number of earlier openings of this store: 0 for a new store.

    The constructor makes the number durable, because epochs derived from it may reach clients before the first commit.
    """

    @abstractmethod
    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """Returns the partition's log. Stages the creation of a missing partition, which begins at `log_start_offset`.

        Until the partition is dropped, all calls with its key return the same handle. If the commit of the creation
        fails, the partition is missing again. Its handle stays usable: the next append creates the partition again,
        unless `permit_recreation` forbids this.
        """

    @abstractmethod
    def permit_recreation(self, permitted: bool) -> None:
        """Sets whether an append to a partition whose creation failed creates the partition again or raises LogError.

        Before the first call, such an append creates the partition again.
        """

    @abstractmethod
    def get(self, key: PartitionKey) -> PartitionLog | None:
        """Returns the partition's log, or None if there is no such partition."""

    @abstractmethod
    def partitions(self) -> list[PartitionKey]:
        """Returns every partition in order of creation, including staged creations and excluding staged drops."""

    @abstractmethod
    def drop(self, key: PartitionKey) -> None:
        """Stages the removal of a partition; its handle refuses every later call. Unknown keys change nothing.

        The removal is durable when the commit returns; `reclaim` frees the space.
        """

    @property
    @abstractmethod
    def dirty(self) -> bool:
        """True if any staged change is in no write set yet."""

    @abstractmethod
    def seal(self) -> WriteSet:
        """Moves all staged changes into a write set for `write`; later changes belong to the next write set.

        If this raises, all staged changes are discarded, as after a failed `write`. Raises LogError if the previous
        write set is neither finished nor failed, or if an exception interrupted an earlier call.
        """

    @abstractmethod
    def write(self, write_set: WriteSet) -> None:
        """Makes a sealed write set durable, in one transaction. Accesses only the write set and the storage.

        May run on another thread, in parallel with appends and reads. If it raises, `fail` determines whether the write
        set is stored.
        """

    @abstractmethod
    def finish(self, write_set: WriteSet) -> None:
        """Moves the high watermarks and makes the write set visible to readers, after `write` returned.

        If an exception interrupts this method, the write set still becomes visible: at once, or when the next `commit`
        or `seal` fails and recovers.
        """

    @abstractmethod
    def fail(self, write_set: WriteSet, error: BaseException) -> None:
        """Discards the write set and all changes staged after it, because `write` or `finish` has raised `error`.

        End offsets, epochs, metadata, creations and drops are reset to the committed state. If the storage has stored
        the write set in spite of the error (`WriteSet.is_durable`), the committed state includes it.
        """

    @abstractmethod
    def commit(self) -> None:
        """Calls `seal`, `write` and `finish`; after an error calls `fail` and raises the error. Does nothing if not
        dirty.
        """

    @property
    def uncertain(self) -> bool:
        """True if exceptions interrupted a commit and then the recovery from it: memory may differ from the file.

        Reads return a state from before the commit. `recover`, and the next `commit` or `seal`, try again to determine
        the result of the commit.
        """
        return False

    @abstractmethod
    def recover(self) -> None:
        """Resets memory to the stored state, after an exception interrupted the steps of a commit.

        Finishes a sealed write set if it is durable, and discards all other changes. The thread that owns the engine
        calls this method if the last completed step of a commit is unknown, for example after an interrupt between
        `seal` and `write`. No thread may be writing the write set. If the recovery fails, it can be repeated; `commit`
        and `seal` repeat it and fail until it has succeeded.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Discards all staged changes that are in no write set."""

    @abstractmethod
    def get_meta(self, name: str) -> bytes | None:
        """Returns the staged value of `name`, or else the committed value; None if there is none."""

    @abstractmethod
    def put_meta(self, name: str, value: bytes | None) -> None:
        """Stages a named value of the engine's user (None removes it). A name has 1 to 500 bytes of UTF-8."""

    @abstractmethod
    def meta_names(self, prefix: str = "") -> list[str]:
        """Returns the names that begin with `prefix` and have a staged or committed value, sorted."""

    @abstractmethod
    def reclaim(self, max_batches: int) -> bool:
        """Frees the space of at most `max_batches` deleted batches or snapshot chunks, in a separate transaction.

        Returns True if more of them remain. The method does not use write sets: it neither stages nor commits changes.
        If it raises LogError, it has changed nothing.
        """

    @abstractmethod
    def verify(self, deep: bool = False) -> list[Finding]:
        """Checks the stored data, and returns the damage that it finds.

        Shallow: checks the first and the last batch of each partition. Deep: checks every batch (CRC, header,
        continuity, epochs), every snapshot, and finds entries that belong to no partition.
        """

    @abstractmethod
    def move_beside(self, start: Callable[[Callable[[], None]], bool] | None) -> None:
        """Lets another thread move a full area of the journal, so that no commit waits for it.

        Without such a thread, the commit that finds the journal full moves it. A log without a journal ignores the
        call.

        Args:
            start: a function that passes its argument, another function, to another thread. The thread calls that
                function once, before `close`. `start` returns False if there is no such thread. None: the log has no
                such thread from now on.
        """

    @abstractmethod
    def sync(self) -> None:
        """Forces all committed data to the device, even if the durability is not `fsync`; raises LogError."""

    @abstractmethod
    def stats(self) -> EngineStats:
        """Returns the current sizes."""

    @abstractmethod
    def close(self) -> None:
        """Discards staged changes, flushes, and releases the folder.

        `close` may be repeated; all other later calls raise an error.
        """
