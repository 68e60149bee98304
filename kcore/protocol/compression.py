"""The codecs of record batches, with the framing that Kafka's clients use, and a limit on what comes out.

* gzip: RFC 1952, one or more members.
* snappy: written in the frame of the Java clients and librdkafka ("xerial": eight bytes of magic, two int32 version
  numbers, then blocks of int32 length and raw snappy); read in that frame or raw.
* lz4: the frame format with independent blocks, the only kind that Kafka's Java reader takes.
* zstd: RFC 8878 frames (KIP-110).

A batch of a few bytes can claim to be gigabytes. Nothing here ever holds more output than it was told to. The work is
linear in the input and the output: gzip members and snappy blocks, each of which costs some microseconds however few
bytes it holds, are counted, and a batch that is cut into far more of them than any writer makes is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

__all__ = ["CompressionError", "CompressionType", "compress", "decompress"]


class CompressionType(IntEnum):
    """Kafka's codecs: the number in a batch's attributes. The names are those of `compression.type`, in capitals."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """The codec that a setting names: `gzip`, `snappy`, `lz4`, `zstd`, and `none` or `uncompressed`.

        Raises:
            CompressionError: there is no such codec.
        """
        found = _BY_NAME.get(name)
        if found is None:
            raise CompressionError(name, "no such codec")
        return found


class CompressionError(ValueError):
    """Bytes that a codec cannot decompress within the limit, or a codec that does not exist.

    Attributes:
        codec: name or number of the codec. reason: what went wrong.
    """

    def __init__(self, codec: str | int, reason: str) -> None:
        super().__init__(codec, reason)
        self.codec = codec
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.codec}: {self.reason}"


_BY_NAME: Final = {codec.name.lower(): codec for codec in CompressionType} | {"uncompressed": CompressionType.NONE}

_GZIP_WBITS: Final = 31  # a gzip header and trailer around a window of 32 KiB
_GZIP_FIRST_PIECE_BYTES: Final = 128
_FREE_PIECES: Final = 1000
_MIN_PIECE_BYTES: Final = 64

Buffer = bytes | bytearray | memoryview


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch.

    Args:
        codec: a CompressionType.
        data: what to compress.
        level: the codec's own scale (gzip 1 to 9, zstd up to 22, lz4 up to 17); None: its default. Snappy has none.

    Returns:
        The compressed bytes; with codec 0 the bytes as they are.

    Raises:
        CompressionError: there is no such codec.
    """
    if codec == CompressionType.NONE:
        return bytes(data)
    if codec == CompressionType.GZIP:
        return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
    # Here and below: a node that is sent no such batch starts without the library.
    from kcore.protocol.compression_cramjam import COMPRESSORS  # noqa: PLC0415

    pack = COMPRESSORS.get(codec)
    if pack is None:
        raise CompressionError(codec, "no such codec")
    return pack(data, level)


def decompress(codec: int, data: Buffer, max_size_bytes: int) -> bytes:
    """Decompress the records of a batch.

    Args:
        codec: a CompressionType.
        data: the whole compressed block.
        max_size_bytes: how much may come out.

    Returns:
        The bytes; with codec 0 those that were given.

    Raises:
        CompressionError: no such codec, corrupt data, data cut short or followed by more, or more output than allowed.
    """
    unpack = _DECOMPRESSORS.get(codec)
    if unpack is None:
        from kcore.protocol.compression_cramjam import DECOMPRESSORS  # noqa: PLC0415

        unpack = DECOMPRESSORS.get(codec)
    if unpack is None:
        raise CompressionError(codec, "no such codec")
    return unpack(data, max_size_bytes)


def too_large(codec: str, max_size_bytes: int) -> CompressionError:
    """What is raised where more comes out than is allowed."""
    return CompressionError(codec, f"more than the {max_size_bytes} bytes allowed")


def _decompress_none(data: Buffer, max_size_bytes: int) -> bytes:
    if len(data) > max_size_bytes:
        raise too_large("none", max_size_bytes)
    return bytes(data)


def check_pieces(codec: str, count: int, size_bytes: int) -> None:
    """Refuses data that is cut into too many pieces: gzip members or snappy blocks.

    Writers make one member, and blocks of 1 KiB or more. The bound leaves them far behind, and keeps what a piece costs
    below what reading the records of its 64 bytes costs.

    Args:
        codec: name of the codec.
        count: the pieces that were decompressed so far.
        size_bytes: how much came out of them.

    Raises:
        CompressionError: there are too many.
    """
    if count > _FREE_PIECES + size_bytes // _MIN_PIECE_BYTES:
        raise CompressionError(codec, f"{count} pieces hold no more than {size_bytes} bytes")


def _decompress_gzip(data: Buffer, max_size_bytes: int) -> bytes:
    rest = memoryview(data)
    out, used = _gzip_member(rest, len(rest), 0, max_size_bytes)
    if used == len(rest):  # nearly always there is one member
        return out
    parts = [out]
    total = len(out)
    while used < len(rest):
        rest = rest[used:]
        # A decompressor copies what follows its member, so a further one gets no more than it is likely to need.
        out, used = _gzip_member(rest, _GZIP_FIRST_PIECE_BYTES, total, max_size_bytes)
        parts.append(out)
        total += len(out)
        check_pieces("gzip", len(parts), total)
    return b"".join(parts)


def _gzip_member(data: memoryview, piece_bytes: int, total: int, max_size_bytes: int) -> tuple[bytes, int]:
    """Decompresses the first member of `data` behind `total` bytes; returns its output and how many bytes it took."""
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
