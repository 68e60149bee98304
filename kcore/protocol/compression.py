"""The codecs of record batches, with the framing of Kafka's clients and a limit on the output size.

* gzip: RFC 1952, one or more members.
* snappy: written in the frame of the Java clients and librdkafka ("xerial": eight bytes of magic, two int32 version
  numbers, then blocks of int32 length and raw snappy); read in that frame or raw.
* lz4: the frame format with independent blocks, the only kind that Kafka's Java reader accepts.
* zstd: RFC 8878 frames (KIP-110).

A batch of a few bytes can claim to be gigabytes. These functions never hold more output than the given limit. Their
work is linear in input and output: gzip members and snappy blocks, which cost some microseconds each regardless of
size, are counted. A batch with far more of them than any writer produces is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Any, Final

__all__ = ["CompressionError", "CompressionType", "compress", "compress_in_steps", "decompress"]


class CompressionType(IntEnum):
    """Kafka's codecs: the number in a batch's attributes. The names are those of `compression.type`, in capitals."""

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
        codec: name or number of the codec. reason: the cause.
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

PIECE_BYTES: Final = 262_144
"""Bytes that `compress_in_steps` compresses in one step; a multiple of the blocks of snappy."""

Buffer = bytes | bytearray | memoryview


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses the records of a batch.

    Args:
        codec: a CompressionType.
        data: the bytes to compress.
        level: the codec's own scale (gzip 1 to 9, zstd up to 22, lz4 up to 17); None: its default. Snappy has none.

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
        The number of bytes in each piece, after it was compressed.

    Returns:
        The compressed bytes. The blocks of their frames may differ from those of `compress`.

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
        OutputTooLargeError: more output than allowed.
        CompressionError: unknown codec, or corrupt, truncated or trailing data.
    """
    unpack = _DECOMPRESSORS.get(codec)
    if unpack is None:
        from kcore.protocol.compression_cramjam import DECOMPRESSORS  # noqa: PLC0415

        unpack = DECOMPRESSORS.get(codec)
    if unpack is None:
        raise CompressionError(codec, "no such codec")
    return unpack(data, max_size_bytes)


def too_large(codec: str, max_size_bytes: int) -> CompressionError:
    """Returns the error for an output above the limit."""
    return OutputTooLargeError(codec, f"more than the {max_size_bytes} bytes allowed")


def _decompress_none(data: Buffer, max_size_bytes: int) -> bytes:
    if len(data) > max_size_bytes:
        raise too_large("none", max_size_bytes)
    return bytes(data)


def check_pieces(codec: str, count: int, size_bytes: int) -> None:
    """Refuses data that is cut into too many pieces: gzip members or snappy blocks.

    Writers produce one member, and blocks of 1 KiB or more. The bound allows a piece for every 64 bytes of output. Such
    a piece costs less to decompress than its records cost to read.

    Args:
        codec: name of the codec.
        count: number of pieces decompressed so far.
        size_bytes: size of their output.

    Raises:
        CompressionError: the number of pieces is too high.
    """
    if count > _FREE_PIECES + size_bytes // _MIN_PIECE_BYTES:
        raise CompressionError(codec, f"{count} pieces hold no more than {size_bytes} bytes")


def _decompress_gzip(data: Buffer, max_size_bytes: int) -> bytes:
    rest = memoryview(data)
    out, used = _gzip_member(rest, len(rest), 0, max_size_bytes)
    if used == len(rest):  # nearly always the only member
        return out
    parts = [out]
    total = len(out)
    while used < len(rest):
        rest = rest[used:]
        # A decompressor copies the data after its member, so a further one gets no more than it is likely to need.
        out, used = _gzip_member(rest, _GZIP_FIRST_PIECE_BYTES, total, max_size_bytes)
        parts.append(out)
        total += len(out)
        check_pieces("gzip", len(parts), total)
    return b"".join(parts)


def _gzip_member(data: memoryview, piece_bytes: int, total: int, max_size_bytes: int) -> tuple[bytes, int]:
    """Decompresses the first member of `data` after `total` bytes; returns its output and the number of consumed
    bytes.
    """
    member = zlib.decompressobj(_GZIP_WBITS)
    parts = []
    at = 0
    while not member.eof:
        if at == len(data):
            raise CompressionError("gzip", "the data is cut short")
        piece = data[at : at + piece_bytes]
        try:
            out = member.decompress(piece, max_size_bytes - total + 1)
        except zlib.error as error:
            raise CompressionError("gzip", str(error)) from error
        total += len(out)
        if total > max_size_bytes:
            raise too_large("gzip", max_size_bytes)
        parts.append(out)
        at += len(piece)
        piece_bytes *= 2
    return b"".join(parts), at - len(member.unused_data)


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    CompressionType.NONE: _decompress_none,
    CompressionType.GZIP: _decompress_gzip,
}
