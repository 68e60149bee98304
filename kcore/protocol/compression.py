"""The codecs of record batches, with the framing that Kafka's clients use, and a limit on what comes out.

* gzip: RFC 1952, one or more members.
* snappy: written in the frame of the Java clients and librdkafka ("xerial": eight bytes of magic, two int32 version
  numbers, then blocks of int32 length and raw snappy); read in that frame or raw.
* lz4: the frame format with independent blocks, the only kind that Kafka's Java reader takes.
* zstd: RFC 8878 frames (KIP-110).

A batch of a few bytes can claim to be gigabytes. Nothing here ever holds more output than it was told to.
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


def _decompress_gzip(data: Buffer, max_size_bytes: int) -> bytes:
    out = b""
    rest = bytes(data)
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            out += member.decompress(rest, max_size_bytes - len(out) + 1)
        except zlib.error as error:
            raise CompressionError("gzip", str(error)) from error
        if len(out) > max_size_bytes:
            raise too_large("gzip", max_size_bytes)
        if not member.eof:
            raise CompressionError("gzip", "the data is cut short")
        rest = member.unused_data
        if not rest:
            return out


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    CompressionType.NONE: _decompress_none,
    CompressionType.GZIP: _decompress_gzip,
}
