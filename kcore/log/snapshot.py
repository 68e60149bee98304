"""Snapshots in chunks: staging a snapshot that is being written, and reading the committed snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kcore.log.errors import CorruptLogError, FailureReason, LogError
from kcore.log.interface import PartitionKey, SnapshotInfo
from kcore.log.write_set import SnapshotChunk
from kcore_ext.batch.crc32c import crc32c

if TYPE_CHECKING:
    from kcore.log.storage import Storage


class SnapshotWriter:
    """A snapshot that is being written: the chunks that are in no write set yet, and the count, size and checksum of
    all chunks.
    """

    __slots__ = ("_count", "_crc", "_size_bytes", "_staged", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._staged: list[SnapshotChunk] = []
        self._count = 0
        self._size_bytes = 0
        self._crc = 0

    @staticmethod
    def accept(
        writer: SnapshotWriter | None, partition: PartitionKey, offset: int, index: int, chunk: bytes
    ) -> SnapshotWriter:
        """Adds a chunk to the snapshot, or begins a new snapshot if `index` is 0.

        Returns the writer for the next chunk.
        """
        if index == 0:
            writer = SnapshotWriter(offset)
        elif writer is None or writer.offset != offset or writer._count != index:
            expected = "a chunk 0" if writer is None else f"chunk {writer._count} at offset {writer.offset}"
            raise LogError(
                f"{partition}: snapshot chunk {index} at offset {offset}, expected {expected}",
                FailureReason.MISUSE,
            )
        data = bytes(chunk)
        size_bytes, crc = writer._size_bytes + len(data), crc32c(data, writer._crc)
        writer._staged.append(SnapshotChunk(offset, index, data))
        # The three assignments come last: after an exception the caller puts the same chunk again.
        writer._count, writer._size_bytes, writer._crc = index + 1, size_bytes, crc
        return writer

    @staticmethod
    def complete(writer: SnapshotWriter | None, partition: PartitionKey, offset: int) -> SnapshotInfo:
        """Returns the description of the whole snapshot."""
        if writer is None or writer.offset != offset:
            raise LogError(f"{partition}: no chunk was put for a snapshot at offset {offset}", FailureReason.MISUSE)
        return SnapshotInfo(offset, writer._count, writer._size_bytes, writer._crc)

    def take(self) -> list[SnapshotChunk]:
        """Returns the staged chunks for the write set that is being sealed, and clears them."""
        staged, self._staged = self._staged, []
        return staged


def read_chunks(storage: Storage, number: int, partition: PartitionKey, info: SnapshotInfo) -> Iterator[bytes]:
    """Yields the chunks in order, each read in its own transaction; checks the checksum after the last chunk."""
    crc = 0
    for index in range(info.chunk_count):
        chunk = storage.snapshot_chunk(number, info.offset, index)
        if chunk is None:
            raise CorruptLogError(partition, info.offset, f"snapshot chunk {index} of {info.chunk_count} is missing")
        crc = crc32c(chunk, crc)
        yield chunk
    if crc != info.crc:
        raise CorruptLogError(
            partition,
            info.offset,
            f"the stored snapshot CRC is {info.crc:#010x}, but the CRC of the data is {crc:#010x}",
        )
