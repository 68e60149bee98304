"""Write sets: the data that one commit passes from the engine to the storage.

Appends and reads do not change the objects of a write set, so another thread may write the write set meanwhile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kcore.log.interface import EpochEntry, PartitionKey, SnapshotInfo

if TYPE_CHECKING:
    from kcore.log.partition import StagedPartitionLog
    from kcore_ext.log.partition import SealedPartition

_FIXED = struct.Struct(">IQBI")
_SNAPSHOT = struct.Struct(">QIQI")
_EPOCH = struct.Struct(">iQ")
_CLEANED_TO = struct.Struct(">Q")

_HAS_SNAPSHOT = 1
_HAS_CLEANED_TO = 2


class PartitionMeta(NamedTuple):
    """The stored metadata of a partition, rewritten as a whole at each change.

    `number` is the partition's short durable name in this store; it is not reused after a drop. Below `cleaned_to` the
    log was compacted, so offsets may be missing there.
    """

    number: int
    log_start_offset: int
    epochs: tuple[EpochEntry, ...]
    snapshot: SnapshotInfo | None
    cleaned_to: int = 0

    def encode(self) -> bytes:
        """Encodes the fixed part with flags, the optional parts that the flags announce, and the epochs.

        All numbers are big-endian.
        """
        flags = (_HAS_SNAPSHOT if self.snapshot is not None else 0) | (_HAS_CLEANED_TO if self.cleaned_to else 0)
        parts = [_FIXED.pack(self.number, self.log_start_offset, flags, len(self.epochs))]
        if self.snapshot is not None:
            parts.append(_SNAPSHOT.pack(*self.snapshot))
        if self.cleaned_to:
            parts.append(_CLEANED_TO.pack(self.cleaned_to))
        parts.extend(_EPOCH.pack(*entry) for entry in self.epochs)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> PartitionMeta:
        """Decodes the result of `encode`; raises ValueError for bytes that `encode` does not write."""
        try:
            number, log_start_offset, flags, epoch_count = _FIXED.unpack_from(data)
            position = _FIXED.size
            snapshot = None
            cleaned_to = 0
            if flags & ~(_HAS_SNAPSHOT | _HAS_CLEANED_TO):
                raise ValueError(f"unknown flags {flags:#x}")
            if flags & _HAS_SNAPSHOT:
                snapshot = SnapshotInfo(*_SNAPSHOT.unpack_from(data, position))
                position += _SNAPSHOT.size
            if flags & _HAS_CLEANED_TO:
                (cleaned_to,) = _CLEANED_TO.unpack_from(data, position)
                position += _CLEANED_TO.size
            end = position + epoch_count * _EPOCH.size
            if end != len(data):
                raise ValueError(f"the metadata has {len(data)} bytes instead of {end}")
            epochs = tuple(EpochEntry(*pair) for pair in _EPOCH.iter_unpack(data[position:end]))
        except struct.error as error:
            raise ValueError(str(error)) from error
        return cls(number, log_start_offset, epochs, snapshot, cleaned_to)


class StoredPartition(NamedTuple):
    """A partition as loaded when a store is opened. `garbage` is True if `reclaim` can delete some of its entries."""

    key: PartitionKey
    meta: PartitionMeta
    end_offset: int
    garbage: bool


class SnapshotChunk(NamedTuple):
    """A staged chunk of a snapshot."""

    offset: int
    chunk_index: int
    data: bytes


class NewPartition(NamedTuple):
    """A partition that the controller creates in a store that several nodes share.

    Attributes:
        key: the partition's name.
        meta: the first metadata of the partition, with its number.
        leader: the id of the node that leads it; -1 for none.
        leader_epoch: the epoch of that leader.
    """

    key: PartitionKey
    meta: PartitionMeta
    leader: int
    leader_epoch: int


class LeaderChange(NamedTuple):
    """A new leader of a partition in a store that several nodes share.

    Attributes:
        key: the partition's name.
        leader: the id of the new leader; -1 for none.
        leader_epoch: the new epoch, higher than `previous_epoch`.
        previous_epoch: the epoch that the store must have; otherwise the store refuses the whole write set.
    """

    key: PartitionKey
    leader: int
    leader_epoch: int
    previous_epoch: int


class ClusterChanges(NamedTuple):
    """The changes of a write set that only the controller makes, in a store that several nodes share.

    The store first removes partitions, then creates partitions, then changes leaders. A write set that only changes
    named values (`WriteSet.metas`) also has a `ClusterChanges` object, for its `controller_epoch`.

    Attributes:
        controller_epoch: the epoch in which this node leads the metadata log. The store refuses the write set if
            another node or epoch leads it, even if the write set has no batch of the metadata log.
        created: new partitions.
        moved: new leaders of existing partitions.
        removed: partitions whose entries `Storage.reclaim` deletes later.
    """

    controller_epoch: int
    created: tuple[NewPartition, ...] = ()
    moved: tuple[LeaderChange, ...] = ()
    removed: tuple[PartitionKey, ...] = ()


class WriteSet:
    """The data that one commit makes durable. `partitions` ascend by number.

    `next_number` is the lowest partition number that was never assigned, or 0 if the write set creates no partition.
    The storage sets `is_durable` once the write set is durable; after an interrupted write, `Storage.resolve_write`
    sets it. `cluster` has the controller's changes in a store that several nodes share; in such a store, `drops` is
    empty.
    """

    __slots__ = ("cluster", "drops", "is_durable", "metas", "next_number", "partitions")

    def __init__(
        self,
        partitions: list[SealedPartition],
        metas: dict[str, bytes | None],
        drops: list[StagedPartitionLog],
        next_number: int,
    ) -> None:
        self.partitions = partitions
        self.metas = metas
        self.drops = drops
        self.next_number = next_number
        self.is_durable = False
        self.cluster: ClusterChanges | None = None

    def size_bytes(self) -> int:
        """Returns the size of all batches, rewrites and chunks. It visits each of them."""
        return sum(
            sum(map(len, sealed.batches))
            + sum(len(chunk.data) for chunk in sealed.chunks or ())
            + sum(len(batch or b"") for batch in sealed.rewrites.values())
            for sealed in self.partitions
        )

    @property
    def empty(self) -> bool:
        """True if there is nothing to write."""
        return not (self.partitions or self.metas or self.drops or self.cluster)
