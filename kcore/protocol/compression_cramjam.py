"""Snappy, lz4 and zstd for `kcore.protocol.compression`, implemented with cramjam."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from kcore.protocol.compression import (
    PIECE_COST_BYTES,
    Buffer,
    CompressionError,
    CompressionType,
    Decompression,
    check_pieces,
    too_large,
)

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
    """A compressor that writes pieces of data as the blocks of one frame.

    The size of each piece, except the last piece, is a multiple of the block size.
    """

    def __init__(self) -> None:
        self._first = True

    def compress(self, piece: Buffer) -> bytes:
        """Returns the compressed blocks of a piece.

        Before the blocks of the first piece it returns the header of the frame.
        """
        packed = _compress_xerial(piece, None)
        first, self._first = self._first, False
        return packed if first else packed[len(_XERIAL_HEADER) :]

    def finish(self) -> bytes:
        """Returns b"", because the frame has no end mark."""
        return b""


class _Snappy(Decompression):
    """The decompression of the blocks of a frame, or of a raw block in a single step."""

    __slots__ = ("_at",)

    def __init__(self, data: Buffer, max_size_bytes: int) -> None:
        super().__init__(data, max_size_bytes)
        self._at = -1

    def run(self, limit_bytes: int) -> bool:
        """Decompresses blocks; see `Decompression.run`."""
        self.step_bytes = 0
        view = self.data
        if self._at < 0:
            if bytes(view[:8]) != _XERIAL_HEADER[:8]:
                self.parts.append(_decompress_snappy_block(view, 0, self.max_size_bytes))
                return True
            if len(view) < len(_XERIAL_HEADER):
                raise CompressionError("snappy", "the frame's header is cut short")
            self._at = len(_XERIAL_HEADER)
        while self._at < len(view):
            if self.step_bytes >= limit_bytes:
                return False
            at = self._at + 4
            size = int.from_bytes(view[self._at : at], "big", signed=True)
            if size < 0 or size > len(view) - at:
                raise CompressionError("snappy", f"a block needs {size} bytes, and {len(view) - at} bytes are left")
            block = _decompress_snappy_block(view[at : at + size], self.size_bytes, self.max_size_bytes)
            self.parts.append(block)
            self.size_bytes += len(block)
            self.step_bytes += len(block) + PIECE_COST_BYTES
            check_pieces("snappy", len(self.parts), self.size_bytes)
            self._at = at + size
        return True


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


class _Frames(Decompression):
    """The decompression of frames into a buffer of sufficient size.

    Frames may omit or misstate the size of their output. The first buffer is an estimate; whenever the output does not
    fit, the decompression starts again with a buffer of twice the size. One step can include several attempts.

    Args:
        codec: the name of the codec.
        decompress_into: cramjam's function for the codec.
        data: the frames.
        max_size_bytes: the largest output.
    """

    __slots__ = ("_codec", "_decompress_into", "_room_bytes")

    def __init__(self, codec: str, decompress_into: Any, data: Buffer, max_size_bytes: int) -> None:
        super().__init__(data, max_size_bytes)
        if not len(data):
            raise CompressionError(codec, "no data")
        self._codec = codec
        self._decompress_into = decompress_into
        self._room_bytes = min(max_size_bytes, max(_FIRST_OUTPUT_BYTES, 4 * len(data)))

    def run(self, limit_bytes: int) -> bool:
        """Decompresses the frames into buffers of increasing size; see `Decompression.run`."""
        self.step_bytes = 0
        while self.step_bytes < limit_bytes:
            out = bytearray(self._room_bytes)
            self.step_bytes += self._room_bytes
            try:
                count = self._decompress_into(self.data, out)
            except cramjam.DecompressionError as error:
                if _FULL not in str(error):
                    raise CompressionError(self._codec, str(error)) from error
                if self._room_bytes == self.max_size_bytes:
                    raise too_large(self._codec, self.max_size_bytes) from error
                self._room_bytes = min(self.max_size_bytes, 2 * self._room_bytes)
            else:
                self.parts.append(bytes(memoryview(out)[:count]))
                return True
        return False


def _lz4(data: Buffer, max_size_bytes: int) -> Decompression:
    return _Frames("lz4", cramjam.lz4.decompress_into, data, max_size_bytes)


def _zstd(data: Buffer, max_size_bytes: int) -> Decompression:
    return _Frames("zstd", cramjam.zstd.decompress_into, data, max_size_bytes)


COMPRESSORS: Final[dict[int, Callable[[Buffer, int | None], bytes]]] = {
    CompressionType.SNAPPY: _compress_xerial,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
"""Codec -> function that compresses data. Its arguments are the data and the level (None: the codec's default). Snappy
ignores the level.
"""

PACKERS: Final[dict[int, Callable[[int | None], Any]]] = {
    CompressionType.SNAPPY: lambda level: _XerialPacker(),
    CompressionType.LZ4: lambda level: cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False),
    CompressionType.ZSTD: lambda level: cramjam.zstd.Compressor(level=level),
}
"""Codec -> function that returns a compressor with the methods `compress(piece)` and `finish()`. The function's
argument is the compression level.
"""

DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], Decompression]]] = {
    CompressionType.SNAPPY: _Snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
"""Codec -> function that returns a `Decompression`. The function's arguments are the complete compressed block and the
maximum number of output bytes.
"""
