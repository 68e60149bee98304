"""The codecs of record batches, with the framing that Kafka's clients use, and a limit on what comes out.

* gzip: RFC 1952, one or more members.
* snappy: written in the frame of the Java clients and librdkafka ("xerial": eight bytes of magic, two int32 version
  numbers, then blocks of int32 length and raw snappy); read in that frame or raw.
* lz4: the frame format with independent blocks, the only kind that Kafka's Java reader takes.
* zstd: RFC 8878 frames (KIP-110).

A batch of a few bytes can claim to be gigabytes. Nothing here ever holds more output than it was told to.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import cramjam

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
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_HIGHEST_RATIO: Final = 22  # three bytes of snappy make 64 at most
_FIRST_OUTPUT_BYTES: Final = 64 * 1024
_FULL: Final = "failed to write whole buffer"  # what cramjam says when the output does not fit

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
    if codec == CompressionType.SNAPPY:
        return _compress_xerial(data)
    if codec == CompressionType.LZ4:
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    if codec == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise CompressionError(codec, "no such codec")


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
        raise CompressionError(codec, "no such codec")
    return unpack(data, max_size_bytes)


def _too_large(codec: str, max_size_bytes: int) -> CompressionError:
    return CompressionError(codec, f"more than the {max_size_bytes} bytes allowed")


def _decompress_none(data: Buffer, max_size_bytes: int) -> bytes:
    if len(data) > max_size_bytes:
        raise _too_large("none", max_size_bytes)
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
            raise _too_large("gzip", max_size_bytes)
        if not member.eof:
            raise CompressionError("gzip", "the data is cut short")
        rest = member.unused_data
        if not rest:
            return out


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, max(len(view), 1), _XERIAL_BLOCK_BYTES):  # a block even of nothing: readers expect one
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_size_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_HEADER[:8]:
        return _decompress_snappy_block(view, 0, max_size_bytes)
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise CompressionError("snappy", "the frame's header is cut short")
    parts = []
    total = 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if size < 0 or size > len(view) - at:
            raise CompressionError("snappy", f"a block of {size} bytes, {len(view) - at} are left")
        parts.append(_decompress_snappy_block(view[at : at + size], total, max_size_bytes))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, size_before: int, max_size_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CompressionError("snappy", str(error)) from error
    if size_before + size > max_size_bytes:
        raise _too_large("snappy", max_size_bytes)
    if size > _SNAPPY_HIGHEST_RATIO * len(block):
        raise CompressionError("snappy", f"{len(block)} bytes cannot hold the {size} they claim")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError("snappy", str(error)) from error


def _decompress_frames(codec: str, decompress_into: Any, data: Buffer, max_size_bytes: int) -> bytes:
    """Into a buffer that doubles while it is too small: frames need not say how much comes out, and may lie."""
    if not len(data):
        raise CompressionError(codec, "no data")
    size = min(max_size_bytes, max(_FIRST_OUTPUT_BYTES, 4 * len(data)))
    while True:
        out = bytearray(size)
        try:
            count = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise CompressionError(codec, str(error)) from error
            if size == max_size_bytes:
                raise _too_large(codec, max_size_bytes) from error
            size = min(max_size_bytes, 2 * size)
        else:
            return bytes(memoryview(out)[:count])


def _decompress_lz4(data: Buffer, max_size_bytes: int) -> bytes:
    return _decompress_frames("lz4", cramjam.lz4.decompress_into, data, max_size_bytes)


def _decompress_zstd(data: Buffer, max_size_bytes: int) -> bytes:
    return _decompress_frames("zstd", cramjam.zstd.decompress_into, data, max_size_bytes)


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    CompressionType.NONE: _decompress_none,
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
