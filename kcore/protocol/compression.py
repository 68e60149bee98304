"""The codecs of record batches, with the framing of Kafka's clients and a limit on the output size.

* gzip: RFC 1952, one or more members.
* snappy: written in the frame of the Java clients and librdkafka ("xerial": eight bytes of magic, two int32 version
  numbers, then blocks of int32 length and raw snappy); read in that frame or raw.
* lz4: the frame format with independent blocks, the only kind that Kafka's Java reader accepts.
* zstd: RFC 8878 frames (KIP-110).

A batch of a few bytes can claim to be gigabytes. These functions never allocate more output than the given limit. The
time is proportional to the sizes of input and output. Each gzip member and each snappy block costs some microseconds
regardless of its size. The functions therefore refuse a batch with far more members or blocks than any writer produces.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Any, Final

__all__ = [
    "CompressionError",
    "CompressionType",
    "compress",
    "compress_in_steps",
    "decompress",
    "decompress_in_steps",
    "prepared",
]


class CompressionType(IntEnum):
    """Kafka's codecs, with their numbers in a batch's attributes. The names are those of `compression.type`, in
    capitals.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """Returns the codec that a setting names: `gzip`, `snappy`, `lz4`, `zstd`, and `none` or `uncompressed`.

        Raises:
            CompressionError: no such codec exists.
        """
        found = _BY_NAME.get(name)
        if found is None:
            raise CompressionError(name, "no such codec")
        return found


class CompressionError(ValueError):
    """Bytes that a codec cannot decompress within the limit, or an unknown codec.

    Attributes:
        codec: name or number of the codec.
        reason: the cause.
    """

    def __init__(self, codec: str | int, reason: str) -> None:
        super().__init__(codec, reason)
        self.codec = codec
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.codec}: {self.reason}"


class OutputTooLargeError(CompressionError):
    """Bytes whose decompressed size is above the limit."""


_BY_NAME: Final = {codec.name.lower(): codec for codec in CompressionType} | {"uncompressed": CompressionType.NONE}

_GZIP_WBITS: Final = 31  # a gzip header and trailer around a window of 32 KiB
_GZIP_FIRST_PIECE_BYTES: Final = 128
_FREE_PIECES: Final = 1000
_MIN_PIECE_BYTES: Final = 64

STEP_BYTES: Final = 1 << 20
"""Number of output bytes of one step of `decompress_in_steps`; a step takes about 3 ms. A step that decompresses a
large block or frame outputs more bytes.
"""
PIECE_COST_BYTES: Final = 1_024
"""Cost of starting another gzip member or snappy block: decompressing this many output bytes takes the same time."""
NO_LIMIT: Final = 1 << 62
PIECE_BYTES: Final = 262_144
"""Number of bytes that `compress_in_steps` compresses in one step. It is a multiple of the size of a snappy block."""

Buffer = bytes | bytearray | memoryview


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses the records of a batch.

    Args:
        codec: a CompressionType.
        data: the bytes to compress.
        level: the level in the codec's own scale (gzip 1 to 9, zstd up to 22, lz4 up to 17); None: the codec's default.
            Snappy has no levels.

    Returns:
        The compressed bytes; with codec 0 the unchanged bytes.

    Raises:
        CompressionError: no such codec exists.
    """
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.GZIP:
        return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
    # Here and below: a node that never receives such a batch starts without the library.
    from kcore.protocol.compression_cramjam import COMPRESSORS  # noqa: PLC0415

    pack = COMPRESSORS.get(codec)
    if pack is None:
        raise CompressionError(codec, "no such codec")
    return pack(data, level)


def compress_in_steps(codec: int, data: Buffer, level: int | None = None) -> Generator[int, None, bytes]:
    """Compresses the records of a batch like `compress`, a piece at a time.

    Args:
        codec: a CompressionType.
        data: the bytes to compress.
        level: see `compress`.

    Yields:
        After each piece, the number of bytes in this piece before the compression.

    Returns:
        The compressed bytes. Their frames may have other blocks than the result of `compress`.

    Raises:
        CompressionError: no such codec exists.
    """
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.GZIP:
        packer: Any = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    else:
        from kcore.protocol.compression_cramjam import PACKERS  # noqa: PLC0415

        make = PACKERS.get(codec)
        if make is None:
            raise CompressionError(codec, "no such codec")
        packer = make(level)
    view = memoryview(data)
    parts = []
    for start in range(0, max(len(view), 1), PIECE_BYTES):
        piece = bytes(view[start : start + PIECE_BYTES])
        part = packer.compress(piece)
        if type(part) is bytes:  # cramjam collects the output and returns its size
            parts.append(part)
        yield len(piece)
    parts.append(bytes(packer.flush() if codec == CompressionType.GZIP else packer.finish()))
    return b"".join(parts)


def decompress(codec: int, data: Buffer, max_size_bytes: int) -> bytes:
    """Decompresses the records of a batch.

    Args:
        codec: a CompressionType.
        data: the whole compressed block.
        max_size_bytes: the largest output.

    Returns:
        The decompressed bytes; with codec 0 the unchanged bytes.

    Raises:
        OutputTooLargeError: the output would exceed `max_size_bytes`.
        CompressionError: the codec is unknown, or the data are corrupt, truncated, or followed by other bytes.
    """
    if codec == CompressionType.NONE:
        return _decompress_none(data, max_size_bytes)
    work = _decompression(codec, data, max_size_bytes)
    work.run(NO_LIMIT)
    return work.result()


def decompress_in_steps(codec: int, data: Buffer, max_size_bytes: int) -> Generator[int, None, bytes]:
    """Decompresses the records of a batch like `decompress`, in steps of about `STEP_BYTES` of output.

    Args:
        codec: a CompressionType.
        data: the whole compressed block.
        max_size_bytes: the largest output.

    Yields:
        The cost of each step except the last, in output bytes: decompressing that many bytes takes about the same time.

    Returns:
        The decompressed bytes.

    Raises:
        CompressionError: as for `decompress`; OutputTooLargeError is a subclass.
    """
    if codec == CompressionType.NONE:
        return _decompress_none(data, max_size_bytes)
    work = _decompression(codec, data, max_size_bytes)
    while not work.run(STEP_BYTES):
        yield work.step_bytes
    return work.result()


def _decompression(codec: int, data: Buffer, max_size_bytes: int) -> Decompression:
    if codec == CompressionType.GZIP:
        return _Gzip(data, max_size_bytes)
    from kcore.protocol.compression_cramjam import DECOMPRESSORS  # noqa: PLC0415

    unpack = DECOMPRESSORS.get(codec)
    if unpack is None:
        raise CompressionError(codec, "no such codec")
    return unpack(data, max_size_bytes)


def prepared(records: bytes | None) -> Callable[[int, Buffer, int], bytes]:
    """Returns a replacement for `decompress`, for one batch whose records are decompressed already.

    The returned function has the parameters of `decompress`. It ignores its arguments and returns `records`.

    Args:
        records: the decompressed records of the batch. None if the batch is not compressed; the returned function must
            then not be called.
    """

    def unpacked(codec: int, data: Buffer, max_size_bytes: int) -> bytes:
        assert records is not None, "the batch is not compressed"
        return records

    return unpacked


def too_large(codec: str, max_size_bytes: int) -> CompressionError:
    """Returns the error for an output above the limit."""
    return OutputTooLargeError(codec, f"more than the {max_size_bytes} bytes allowed")


def _decompress_none(data: Buffer, max_size_bytes: int) -> bytes:
    if len(data) > max_size_bytes:
        raise too_large("none", max_size_bytes)
    return bytes(data)


def check_pieces(codec: str, count: int, size_bytes: int) -> None:
    """Refuses data that consists of too many pieces, which are gzip members or snappy blocks.

    Known writers produce a single gzip member, and snappy blocks of at least 1 KiB. The limit is 1,000 pieces, plus one
    piece for every 64 bytes of output. Decompressing a piece of 64 bytes costs less than reading its records.

    Args:
        codec: name of the codec.
        count: number of pieces decompressed so far.
        size_bytes: total output size of these pieces.

    Raises:
        CompressionError: the number of pieces is too high.
    """
    if count > _FREE_PIECES + size_bytes // _MIN_PIECE_BYTES:
        raise CompressionError(codec, f"{count} compressed pieces for only {size_bytes} bytes of data are too many")


class Decompression(ABC):
    """The decompression of one block, in steps.

    Args:
        data: the compressed block.
        max_size_bytes: the largest output.

    Attributes:
        data: the compressed block.
        max_size_bytes: the largest output.
        step_bytes: the cost of the last step, in output bytes: decompressing that many bytes usually takes the same
            time.
        parts: the pieces of output so far.
        size_bytes: the total size of `parts`.
    """

    __slots__ = ("data", "max_size_bytes", "parts", "size_bytes", "step_bytes")

    def __init__(self, data: Buffer, max_size_bytes: int) -> None:
        self.data = memoryview(data)
        self.max_size_bytes = max_size_bytes
        self.step_bytes = 0
        self.parts: list[bytes] = []
        self.size_bytes = 0

    @abstractmethod
    def run(self, limit_bytes: int) -> bool:
        """Runs a step that ends after about `limit_bytes` of output; returns True at the end of the block.

        Raises:
            CompressionError: the block is invalid, or its output is too large.
        """

    def result(self) -> bytes:
        """Returns the output."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class _Gzip(Decompression):
    """The decompression of one or more gzip members.

    zlib copies all input that follows the end of a member. Passing the whole remaining input for each member would
    therefore take quadratic time. Only the first member, which is nearly always the only member, is decompressed from
    the whole input. For each further member the input is passed in pieces that begin small and double in size.
    """

    __slots__ = ("_has_more", "_member", "_members", "_piece", "_piece_bytes", "_used")

    def __init__(self, data: Buffer, max_size_bytes: int) -> None:
        super().__init__(data, max_size_bytes)
        self._members = 0
        self._begin(len(self.data))

    def _begin(self, piece_bytes: int) -> None:
        """Begins a member, whose first piece of input has at most `piece_bytes` bytes."""
        self._member = zlib.decompressobj(_GZIP_WBITS)
        self._piece: Buffer = b""  # input that the decompressor has not taken yet
        self._piece_bytes = piece_bytes
        self._used = 0  # input up to the end of the piece
        self._has_more = False  # the decompressor may have output without further input

    def run(self, limit_bytes: int) -> bool:
        """Decompresses pieces of members; see `Decompression.run`."""
        self.step_bytes = 0
        while self.step_bytes < limit_bytes:
            if not self._member.eof:
                self._continue()
                continue
            self._members += 1
            self.step_bytes += PIECE_COST_BYTES
            if self._members > 1:
                check_pieces("gzip", self._members, self.size_bytes)
            self.data = self.data[self._used - len(self._member.unused_data) :]
            if not len(self.data):
                return True
            self._begin(_GZIP_FIRST_PIECE_BYTES)
        return False

    def _continue(self) -> None:
        """Decompresses the next piece of the current member."""
        if not self._piece and not self._has_more:
            if self._used == len(self.data):
                raise CompressionError("gzip", "the data is cut short")
            self._piece = self.data[self._used : self._used + self._piece_bytes]
            self._used += len(self._piece)
            self._piece_bytes *= 2
        room = min(STEP_BYTES, self.max_size_bytes - self.size_bytes + 1)
        out = _inflated(self._member, self._piece, room)
        self._piece, self._has_more = self._member.unconsumed_tail, len(out) == room
        self.size_bytes += len(out)
        self.step_bytes += len(out)
        if self.size_bytes > self.max_size_bytes:
            raise too_large("gzip", self.max_size_bytes)
        self.parts.append(out)


def _inflated(member: Any, piece: Buffer, most_bytes: int) -> bytes:
    """Decompresses a piece of a gzip member.

    This code is a separate short function, because CPython 3.11 unwinds a long function repeatedly if memory runs out.
    """
    try:
        out: bytes = member.decompress(piece, most_bytes)
    except zlib.error as error:
        raise CompressionError("gzip", str(error)) from error
    return out
