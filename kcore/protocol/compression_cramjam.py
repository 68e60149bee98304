"""Snappy, lz4 and zstd for `kcore.protocol.compression`, implemented with cramjam."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from kcore.protocol.compression import Buffer, CompressionError, CompressionType, check_pieces, too_large

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_HIGHEST_RATIO: Final = 22  # three bytes of snappy make 64 at most
_FIRST_OUTPUT_BYTES: Final = 64 * 1024
_FULL: Final = "failed to write whole buffer"  # cramjam's error if the output does not fit


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(data)
    return bytes(frame.finish())


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def _compress_xerial(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, max(len(view), 1), _XERIAL_BLOCK_BYTES):  # one block even for empty data: readers expect it
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


class _XerialPacker:
    """Compresses pieces, whose sizes are multiples of a block, to blocks of one frame."""

    def __init__(self) -> None:
        self._first = True

    def compress(self, piece: Buffer) -> bytes:
        """Returns the blocks of a piece; those of the first one follow the header."""
        packed = _compress_xerial(piece, None)
        first, self._first = self._first, False
        return packed if first else packed[len(_XERIAL_HEADER) :]

    def finish(self) -> bytes:
        """Returns nothing: the frame has no end."""
        return b""


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
        check_pieces("snappy", len(parts), total)
        at += size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, size_before: int, max_size_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CompressionError("snappy", str(error)) from error
    if size_before + size > max_size_bytes:
        raise too_large("snappy", max_size_bytes)
    if size > _SNAPPY_HIGHEST_RATIO * len(block):
        raise CompressionError("snappy", f"a block of {len(block)} bytes cannot have {size} bytes of data")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError("snappy", str(error)) from error


def _decompress_frames(codec: str, decompress_into: Any, data: Buffer, max_size_bytes: int) -> bytes:
    """Decompresses into a buffer that doubles until it fits: frames may omit or misstate their output size."""
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
                raise too_large(codec, max_size_bytes) from error
            size = min(max_size_bytes, 2 * size)
        else:
            return bytes(memoryview(out)[:count])


def _decompress_lz4(data: Buffer, max_size_bytes: int) -> bytes:
    return _decompress_frames("lz4", cramjam.lz4.decompress_into, data, max_size_bytes)


def _decompress_zstd(data: Buffer, max_size_bytes: int) -> bytes:
    return _decompress_frames("zstd", cramjam.zstd.decompress_into, data, max_size_bytes)


COMPRESSORS: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    CompressionType.SNAPPY: _compress_xerial,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
"""Codec -> function of the data and the level (None: the default). Snappy has no levels."""

PACKERS: Final[dict[int, Callable[[int | None], Any]]] = {
    CompressionType.SNAPPY: lambda level: _XerialPacker(),
    CompressionType.LZ4: lambda level: cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False),
    CompressionType.ZSTD: lambda level: cramjam.zstd.Compressor(level=level),
}
"""Codec -> function of the level that makes an object with the methods `compress(piece)` and `finish()`."""

DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
"""Codec -> function of the complete compressed block and the largest output in bytes."""
